package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/api"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/openapi"
)

// row is one operation of the specification.
type row struct {
	id, method, path string
	op               *openapi3.Operation
}

func (r row) texts(extension string) []string {
	var out []string
	raw, _ := json.Marshal(r.op.Extensions[extension])
	_ = json.Unmarshal(raw, &out)
	return out
}

// concrete fills the path with ids that exist nowhere, except the project.
func (r row) concrete(project string) string {
	ids := map[string]string{
		"{project}": project, "{instance}": id.New[id.Instance]().String(), "{operation}": id.New[id.Operation]().String(),
		"{organization}": id.New[id.Org]().String(), "{api_key}": id.New[id.Key]().String(),
		"{invoice}": id.New[id.Invoice]().String(), "{join_token}": id.New[id.JoinToken]().String(),
		"{host}": id.New[id.Host]().String(), "{offer}": "nothing", "{price_book}": id.New[id.PriceBook]().String(),
		"{period}": "1999-01", "{gpu}": id.New[id.GPU]().String(), "{registry_login}": id.New[id.RegistryLogin]().String(),
		"{contract}": id.New[id.Contract]().String(), "{reservation}": id.New[id.Reservation]().String(),
		"{line}": "1", "{top_up}": id.New[id.PaymentAttempt]().String(), "{issuer}": "nobody", "{statement_line}": id.New[id.StatementLine]().String(), "{discrepancy}": id.New[id.Discrepancy]().String(),
		"{budget}": id.New[id.Budget]().String(), "{payment}": id.New[id.Payment]().String(), "{provider}": "nobody",
		"{approval}": id.New[id.Approval]().String(), "{approval_kind}": "nothing",
	}
	path := r.path
	for name, value := range ids {
		path = strings.ReplaceAll(path, name, value)
	}
	return path
}

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Spec)
	require.NoError(t, err)
	return doc
}

func rows(t *testing.T) []row {
	t.Helper()
	var out []row
	for path, item := range document(t).Paths.Map() {
		for method, op := range item.Operations() {
			out = append(out, row{op.OperationID, method, path, op})
		}
	}
	slices.SortFunc(out, func(a, b row) int { return strings.Compare(a.id, b.id) })
	require.NotEmpty(t, out)
	return out
}

func TestEveryOperationHasItsPolicyRow(t *testing.T) {
	policy := auth.Policy()
	for _, r := range rows(t) {
		rule, ok := policy[r.id]
		require.True(t, ok, "%s has no row in internal/auth", r.id)
		delete(policy, r.id)
		want := []string{}
		if rule.Scope != "" {
			want = append(want, string(rule.Scope))
		}
		require.ElementsMatch(t, want, r.texts("x-scopes"), "%s: scopes of the policy and of the specification", r.id)
		require.Equal(t, strings.Contains(r.path, "{"), rule.Named, "%s: Named", r.id)
		require.Equal(t, r.op.Security != nil && len(*r.op.Security) == 0, rule.Audience == auth.Public, "%s: public", r.id)
		require.Equal(t, strings.HasPrefix(r.path, "/v1/admin/"), rule.Audience == auth.ForOperators, "%s: audience", r.id)
	}
	require.Empty(t, policy, "policy rows without an operation")
}

func TestEveryOperationIsDescribed(t *testing.T) {
	known := api.ProblemCodes()
	used := map[string]bool{"capacity.none": true} // of operations, not of answers
	for _, c := range instance.Codes() {
		used[c.Name] = true // of instances and operations
	}
	for _, r := range rows(t) {
		require.NotEmpty(t, r.op.Summary, r.id)
		require.Contains(t, []any{"read", "write", "launch", "webhook"}, r.op.Extensions["x-rate-class"], r.id)
		require.NotNil(t, r.op.Responses.Default(), "%s: the shared problem", r.id)
		codes := r.texts("x-error-codes")
		require.NotEmpty(t, codes, r.id)
		for _, code := range codes {
			require.Contains(t, known, code, "%s names a code without documentation", r.id)
			used[code] = true
		}
		if body := r.op.RequestBody; body != nil {
			require.NotEmpty(t, body.Value.Content["application/json"].Examples, "%s: example", r.id)
		}
	}
	require.ElementsMatch(t, known, slices.Collect(maps.Keys(used)), "documented codes and those of operations")
}

func TestRequestsAreClosedAndBounded(t *testing.T) {
	doc := document(t)
	for _, r := range rows(t) {
		if r.op.RequestBody == nil {
			continue
		}
		ref := r.op.RequestBody.Value.Content["application/json"].Schema
		require.NotEmpty(t, ref.Ref, "%s: the body's schema has a name", r.id)
		requireClosed(t, r.id, ref)
	}
	for name, s := range doc.Components.Schemas {
		for field, p := range s.Value.Properties {
			inline := p.Ref == "" && p.Value.Type.Is("object") && len(p.Value.Properties) > 0
			require.False(t, inline, "%s.%s: an inline object has no name", name, field)
		}
	}
}

func requireClosed(t *testing.T, at string, ref *openapi3.SchemaRef) {
	t.Helper()
	s := ref.Value
	switch {
	case s.Type.Is("object") && len(s.Properties) > 0:
		require.NotNil(t, s.AdditionalProperties.Has, "%s is open", at)
		require.False(t, *s.AdditionalProperties.Has, "%s is open", at)
		for name, p := range s.Properties {
			requireClosed(t, at+"/"+name, p)
		}
	case s.Type.Is("array"):
		require.NotNil(t, s.MaxItems, "%s has no bound", at)
		requireClosed(t, at+"/[]", s.Items)
	case s.Type.Is("string"):
		bounded := s.MaxLength != nil || s.Pattern != "" || len(s.Enum) > 0 || s.Format == "date-time"
		require.True(t, bounded, "%s has no bound", at)
	case s.Type.Is("integer"):
		require.NotNil(t, s.Max, "%s has no bound", at)
		require.NotNil(t, s.Min, "%s has no bound", at)
	}
}

func TestExamplesFitTheirSchemas(t *testing.T) {
	doc := document(t)
	for name, example := range doc.Components.Examples {
		schema := doc.Components.Schemas[name]
		require.NotNil(t, schema, "example %s has no schema", name)
		err := schema.Value.VisitJSON(example.Value.Value, openapi3.EnableFormatValidation())
		require.NoError(t, err, "example %s", name)
	}
}

// Whoever asks, each operation answers with the right refusal and never a 5xx.
func TestAuthorizationMatrix(t *testing.T) {
	policy := auth.Policy()
	for _, r := range rows(t) {
		if policy[r.id].Audience == auth.Public {
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			b := newBench(t)
			send := func(as, project string) (int, string) {
				w := b.do(t, ask{as: as, method: r.method, path: r.concrete(project), body: `{"unknown":1}`})
				return w.Code, refused(t, w).Code
			}
			status, code := send("", b.project.String())
			require.Equal(t, "401 auth.missing", fmt.Sprint(status, " ", code))
			status, code = send("rubbish", b.project.String())
			require.Equal(t, "401 auth.invalid", fmt.Sprint(status, " ", code))

			switch {
			case policy[r.id].Audience == auth.ForOperators:
				status, code = send(tenant, b.project.String())
				requireNotForYou(t, policy[r.id].Named, status, code)
			case policy[r.id].Audience == auth.ForOrg:
				status, code = send(operator, b.project.String())
				requireNotForYou(t, policy[r.id].Named, status, code)
			}
			if strings.Contains(r.path, "{project}") && policy[r.id].Audience == auth.ForOrg {
				status, code = send(other, b.project.String())
				require.Equal(t, http.StatusNotFound, status)
				require.Equal(t, "resource.not_found", code)
			}
			require.Empty(t, b.calls)
		})
	}
}

func requireNotForYou(t *testing.T, named bool, status int, code string) {
	t.Helper()
	if named {
		require.Equal(t, "404 resource.not_found", fmt.Sprint(status, " ", code))
		return
	}
	require.Equal(t, "403 auth.forbidden", fmt.Sprint(status, " ", code))
}

// What exists elsewhere and what exists nowhere answer alike.
func TestForeignEqualsRandom(t *testing.T) {
	b := newBench(t)
	mask := func(a ask) (string, http.Header) {
		w := b.do(t, a)
		p := refused(t, w)
		h := w.Header().Clone()
		for _, name := range []string{"X-Request-Id", "Ratelimit", "Ratelimit-Policy"} {
			h.Del(name)
		}
		return strings.ReplaceAll(w.Body.String(), p.RequestId, "req"), h
	}
	foreign, foreignHeader := mask(ask{as: tenant, method: "GET", path: "/v1/projects/{foreign}/instances"})
	random, randomHeader := mask(ask{as: tenant, method: "GET", path: "/v1/projects/{random}/instances"})
	require.Equal(t, random, foreign)
	require.Equal(t, randomHeader, foreignHeader)
	require.NotContains(t, foreign, b.foreign.String())
}

func TestProblemDocsAreCurrent(t *testing.T) {
	const path = "../docs/api/problems.md"
	want := api.ProblemDocs()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll("../docs/api", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run UPDATE_GOLDEN=1 go test ./api -run TestProblemDocsAreCurrent")
}
