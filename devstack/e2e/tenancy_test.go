package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// twoOrganizations asks for everything that another organization has: the answer
// is the one to an id that nobody has.
func twoOrganizations(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	victim, owner := r.buyer(t, ctx, "Victim")
	snoop, _ := r.buyer(t, ctx, "Snoop")

	created, err := owner.CreateInstance(ctx, victim.Project, wanted(market.MPS, "secret"))
	require.NoError(t, err)
	running, err := owner.WaitInstance(ctx, victim.Project, created.Id, wire.WaitStatusRunning)
	require.NoError(t, err)
	operation, err := created.Operation.Get()
	require.NoError(t, err)
	keys, err := client.Collect(owner.APIKeys(ctx))
	require.NoError(t, err)

	body := `{"offer":"` + market.MPS.Offer + `","image":"registry.example/test:1"}`
	theirs := strings.NewReplacer("{project}", victim.Project, "{instance}", created.Id, "{operation}", operation.Id, "{key}", keys[0].Id)
	nobodys := strings.NewReplacer("{project}", id.New[id.Project]().String(), "{instance}", id.New[id.Instance]().String(),
		"{operation}", id.New[id.Operation]().String(), "{key}", id.New[id.Key]().String())
	ours := strings.NewReplacer("{project}", snoop.Project)
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/v1/projects/{project}/instances", ""},
		{"POST", "/v1/projects/{project}/instances", body},
		{"GET", "/v1/projects/{project}/instances/{instance}", ""},
		{"DELETE", "/v1/projects/{project}/instances/{instance}", ""},
		{"POST", "/v1/projects/{project}/instances/{instance}/actions/start", ""},
		{"POST", "/v1/projects/{project}/instances/{instance}/actions/stop", ""},
		{"GET", "/v1/projects/{project}/operations", ""},
		{"GET", "/v1/projects/{project}/usage", ""},
		{"GET", "/v1/operations/{operation}", ""},
		{"DELETE", "/v1/organization/api-keys/{key}", ""},
	} {
		foreign := ask(t, ctx, r, snoop.Key, request.method, theirs.Replace(request.path), request.body)
		unknown := ask(t, ctx, r, snoop.Key, request.method, nobodys.Replace(request.path), request.body)
		require.Equal(t, http.StatusNotFound, foreign.status, "%s %s", request.method, request.path)
		require.Equal(t, unknown, foreign, "%s %s", request.method, request.path)

		// Their instance in our own project is no way in either.
		if strings.Contains(request.path, "{instance}") {
			mixed := ask(t, ctx, r, snoop.Key, request.method, theirs.Replace(ours.Replace(request.path)), request.body)
			require.Equal(t, unknown, mixed, "%s %s", request.method, request.path)
		}
	}
	after, err := owner.GetInstance(ctx, victim.Project, created.Id)
	require.NoError(t, err)
	require.Equal(t, running.Status, after.Status)
	require.Equal(t, running.Generation, after.Generation)
	whoami, err := owner.Whoami(ctx)
	require.NoError(t, err, "the key was not revoked")
	require.Equal(t, keys[0].Id, whoami.Key)
	remove(t, ctx, owner, victim, created.Id)
}

// seen is an answer without what differs between any two.
type seen struct {
	status  int
	headers http.Header
	problem map[string]any
}

func ask(t *testing.T, ctx context.Context, r *region, key, method, path, body string) seen {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, r.URL()+path, bytes.NewBufferString(body))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	if method == http.MethodPost {
		request.Header.Set("Idempotency-Key", client.NewIdempotencyKey())
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	s := seen{status: response.StatusCode, headers: response.Header.Clone()}
	require.NoError(t, json.Unmarshal(text, &s.problem), string(text))
	require.NotContains(t, string(text), path[strings.LastIndexByte(path, '/'):], "the id is not echoed")
	delete(s.problem, "request_id")
	delete(s.problem, "instance")
	for name := range s.headers {
		switch lower := strings.ToLower(name); {
		case lower == "date", strings.Contains(lower, "request-id"), strings.HasPrefix(lower, "ratelimit"), lower == "content-length":
			s.headers.Del(name)
		}
	}
	return s
}
