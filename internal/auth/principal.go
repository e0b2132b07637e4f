package auth

import (
	"context"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/internal/id"
)

// PrincipalKind says on which side of the counter a caller stands.
type PrincipalKind string

// The kinds of principal.
const (
	Org      PrincipalKind = "org"      // acts for one organization
	Operator PrincipalKind = "operator" // runs the installation
)

// Principal is an authenticated caller.
type Principal struct {
	Kind PrincipalKind
	// Org is the caller's organization; zero for operators.
	Org id.Org
	// Projects are the only ones visible to the caller; nil means every project
	// of the organization.
	Projects []id.Project
	Scopes   []Scope
	// Key is the API key that was shown, or exchanged for the token shown.
	Key id.Key
	// Epoch is the session epoch that the credential was made in. A caller of
	// this package refuses a token whose epoch is behind the key's row.
	Epoch int64
	// FromToken is true for an access token, false for the API key itself.
	FromToken bool
}

// Has reports whether the principal holds the scope.
func (p Principal) Has(s Scope) bool { return slices.Contains(p.Scopes, s) }

// SoleProject returns the only project of the credential, which the path
// segment "-" stands for. It reports false when there are none or several.
func (p Principal) SoleProject() (id.Project, bool) {
	if len(p.Projects) != 1 {
		return id.Project{}, false
	}
	return p.Projects[0], true
}

// Sees reports whether the project is among those of the credential. It does not
// say that the project belongs to the organization; the database does.
func (p Principal) Sees(project id.Project) bool {
	return p.Kind == Operator || p.Projects == nil || slices.Contains(p.Projects, project)
}

// String names whose view a list shows: two credentials with equal text see the
// same rows. It holds no secret and is what a page token is bound to.
func (p Principal) String() string {
	if p.Kind == Operator {
		return string(Operator)
	}
	projects := make([]string, len(p.Projects))
	for i, project := range p.Projects {
		projects[i] = project.String()
	}
	slices.Sort(projects)
	view := string(p.Kind) + "/" + p.Org.String()
	if p.Projects != nil {
		view += "/" + strings.Join(projects, ",")
	}
	return view
}

type principalKey struct{}

// WithPrincipal returns a context that carries the caller.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the caller that WithPrincipal put there.
func PrincipalFrom(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
