package auth_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// cast is who plays in the tests of the policy.
type cast struct {
	mine, foreign        id.Org
	project, elsewhere   id.Project
	tenant, operator     auth.Principal
	limited, scopeless   auth.Principal
	nobody, withoutAnOrg auth.Principal
}

func actors() cast {
	c := cast{
		mine: id.New[id.Org](), foreign: id.New[id.Org](),
		project: id.New[id.Project](), elsewhere: id.New[id.Project](),
	}
	c.tenant = auth.Principal{Kind: auth.Org, Org: c.mine, Scopes: auth.OrgScopes()}
	c.limited = c.tenant
	c.limited.Projects = []id.Project{c.project}
	c.scopeless = auth.Principal{Kind: auth.Org, Org: c.mine}
	c.operator = auth.Principal{Kind: auth.Operator, Scopes: auth.OperatorScopes()}
	c.withoutAnOrg = auth.Principal{Kind: auth.Org, Scopes: auth.OrgScopes()}
	return c
}

func TestEveryRowAgainstEveryKindOfPrincipal(t *testing.T) {
	t.Parallel()
	c := actors()
	for operation, rule := range auth.Policy() {
		outside := "auth.forbidden"
		if rule.Named {
			outside = "resource.not_found"
		}
		want := map[string]struct {
			p    auth.Principal
			code string
		}{
			"tenant":            {c.tenant, map[bool]string{true: outside}[rule.Audience == auth.ForOperators]},
			"operator":          {c.operator, map[bool]string{true: outside}[rule.Audience == auth.ForOrg]},
			"nobody":            {c.nobody, map[bool]string{true: outside}[rule.Audience != auth.Public]},
			"org without an id": {c.withoutAnOrg, map[bool]string{true: outside}[rule.Audience != auth.Public]},
		}
		for who, w := range want {
			require.Equal(t, w.code, fault.CodeOf(auth.Authorize(w.p, operation, auth.Resource{})), "%s by %s", operation, who)
		}
		if rule.Audience == auth.ForOrg {
			require.NotEmpty(t, rule.Scope, "%s needs a scope", operation)
			require.Equal(t, "auth.forbidden", fault.CodeOf(auth.Authorize(c.scopeless, operation, auth.Resource{})), operation)
			require.True(t, slices.Contains(auth.OrgScopes(), rule.Scope), operation)
		}
		if rule.Audience == auth.ForOperators {
			require.True(t, slices.Contains(auth.OperatorScopes(), rule.Scope), operation)
		}
	}
}

func TestWhatBelongsToAnotherIsNotThere(t *testing.T) {
	t.Parallel()
	c := actors()
	notFound := auth.NotFound()
	for name, tc := range map[string]struct {
		p auth.Principal
		r auth.Resource
	}{
		"another organization":                  {c.tenant, auth.Resource{Org: c.foreign}},
		"another organization, without a scope": {c.scopeless, auth.Resource{Org: c.foreign}},
		"a project outside the key's":           {c.limited, auth.Resource{Org: c.mine, Project: c.elsewhere}},
	} {
		require.Equal(t, notFound, auth.Authorize(tc.p, "getInstance", tc.r), name)
	}
	require.NoError(t, auth.Authorize(c.limited, "getInstance", auth.Resource{Org: c.mine, Project: c.project}))
	require.NoError(t, auth.Authorize(c.tenant, "getInstance", auth.Resource{Org: c.mine, Project: c.elsewhere}))
}

func TestAnOperationWithoutARowIsRefused(t *testing.T) {
	t.Parallel()
	c := actors()
	for _, p := range []auth.Principal{c.tenant, c.operator} {
		require.Equal(t, "auth.forbidden", fault.CodeOf(auth.Authorize(p, "mineBitcoin", auth.Resource{})))
	}
	require.False(t, auth.IsPublic("mineBitcoin"))
	require.True(t, auth.IsPublic("getJwks"))
}

func TestATokenIsNotExchangedForAnother(t *testing.T) {
	t.Parallel()
	c := actors()
	require.NoError(t, auth.Authorize(c.tenant, "createToken", auth.Resource{}))
	c.tenant.FromToken = true
	require.Equal(t, "auth.forbidden", fault.CodeOf(auth.Authorize(c.tenant, "createToken", auth.Resource{})))
	require.NoError(t, auth.Authorize(c.tenant, "whoami", auth.Resource{}))
}

func TestTheTableIsACopy(t *testing.T) {
	t.Parallel()
	auth.Policy()["getInstance"] = auth.Rule{Audience: auth.Public}
	require.False(t, auth.IsPublic("getInstance"))
}

func TestNobodyGrantsMoreThanTheyHold(t *testing.T) {
	t.Parallel()
	c := actors()
	require.NoError(t, auth.CanGrant(c.tenant, auth.OrgScopes(), nil))
	require.NoError(t, auth.CanGrant(c.limited, auth.OrgScopes(), []id.Project{c.project}))
	require.Contains(t, fault.From(auth.CanGrant(c.limited, nil, nil)).Suggestion, "project", "scopes are not what is missing")
	require.NoError(t, auth.CanGrant(c.scopeless, nil, nil))
	for name, err := range map[string]error{
		"an operator's scope":  auth.CanGrant(c.tenant, []auth.Scope{auth.OperatorRead}, nil),
		"a scope not held":     auth.CanGrant(c.scopeless, []auth.Scope{auth.UsageRead}, nil),
		"all projects, of one": auth.CanGrant(c.limited, nil, nil),
	} {
		require.Equal(t, "auth.forbidden", fault.CodeOf(err), name)
	}
	require.Equal(t, "resource.not_found", fault.CodeOf(auth.CanGrant(c.limited, nil, []id.Project{c.elsewhere})))
}

func TestTheViewNamesWhatIsSeenAndNotTheKey(t *testing.T) {
	t.Parallel()
	c := actors()
	rotated := c.tenant
	rotated.Key = id.New[id.Key]()
	require.Equal(t, c.tenant.String(), rotated.String())
	none := c.tenant
	none.Projects = []id.Project{}
	views := []string{c.tenant.String(), c.limited.String(), c.operator.String(), none.String()}
	slices.Sort(views)
	require.Len(t, slices.Compact(views), 4)
	swapped := c.tenant
	swapped.Projects = []id.Project{c.elsewhere, c.project}
	ordered := c.tenant
	ordered.Projects = []id.Project{c.project, c.elsewhere}
	require.Equal(t, ordered.String(), swapped.String())
}

func TestTheSoleProject(t *testing.T) {
	t.Parallel()
	c := actors()
	project, ok := c.limited.SoleProject()
	require.True(t, ok)
	require.Equal(t, c.project, project)
	_, ok = c.tenant.SoleProject()
	require.False(t, ok)
}

func TestThePrincipalTravelsInTheContext(t *testing.T) {
	t.Parallel()
	c := actors()
	_, ok := auth.PrincipalFrom(context.Background())
	require.False(t, ok)
	p, ok := auth.PrincipalFrom(auth.WithPrincipal(context.Background(), c.tenant))
	require.True(t, ok)
	require.Equal(t, c.tenant, p)
}
