package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// terminal is one run of the command line against a fake service.
type terminal struct {
	t      *testing.T
	env    map[string]string
	stdin  string
	out    bytes.Buffer
	err    bytes.Buffer
	called []string
}

func setup(t *testing.T, h http.HandlerFunc) *terminal {
	t.Helper()
	term := &terminal{t: t, env: map[string]string{"HOME": t.TempDir(), "TRANCHE_API_KEY": "trn_test_x"}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		term.called = append(term.called, r.Method+" "+r.URL.RequestURI())
		h(w, r)
	}))
	t.Cleanup(s.Close)
	term.env["TRANCHE_API_URL"] = s.URL
	return term
}

func (term *terminal) run(ctx context.Context, args ...string) int {
	term.out.Reset()
	term.err.Reset()
	return run(ctx, args, streams{strings.NewReader(term.stdin), &term.out, &term.err},
		func(k string) string { return term.env[k] })
}

func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "detail": "No.", "title": "T", "status": status})
	}
}

func TestEveryProblemHasItsExitCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{
		"auth.missing": exitAuth, "auth.expired": exitAuth, "auth.forbidden": exitAuth,
		"resource.not_found": exitNotFound, "state.conflict": exitConflict, "name.taken": exitConflict,
		"precondition.failed": exitConflict, "idempotency.mismatch": exitConflict,
		"capacity.none": exitCapacity, "offer.unavailable": exitCapacity, "offer.unknown": exitNotFound,
		"quota.exceeded": exitQuota, "budget.exhausted": exitQuota, "request.invalid": exitUsage,
		"internal": exitError, "something.new": exitError, "": exitError,
	} {
		require.Equal(t, want, exitCode(code), code)
	}
}

func TestAnEmptyListIsAnEmptyArrayAndSuccess(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) })
	for _, list := range [][]string{{"offers", "ls"}, {"instance", "ls"}, {"invoice", "ls"}, {"host", "ls"}, {"usage"}} {
		require.Equal(t, exitOK, term.run(t.Context(), append(list, "-o", "json")...), term.err.String())
		require.Equal(t, "[]\n", term.out.String(), list)
		require.Empty(t, term.err.String())
		require.Equal(t, exitOK, term.run(t.Context(), list...))
		require.Equal(t, 1, strings.Count(term.out.String(), "\n"), "a table without items is its head")
	}
}

func TestARefusalGoesToStandardErrorWithItsExitCode(t *testing.T) {
	t.Parallel()
	term := setup(t, refuse(404, "resource.not_found"))
	require.Equal(t, exitNotFound, term.run(t.Context(), "instance", "get", "inst_x", "-o", "json"))
	require.Empty(t, term.out.String())
	require.Contains(t, term.err.String(), "No. (resource.not_found)")
}

func TestUsageErrorsAskNobody(t *testing.T) {
	t.Parallel()
	term := setup(t, refuse(500, "internal"))
	for _, args := range [][]string{
		{"instance", "create", "--offer", "x"}, {"instance", "get"}, {"instance", "get", "a", "b"}, {"instance", "fly"},
		{"nonsense"}, {"offers", "ls", "--wat"}, {"offers", "ls", "-o", "xml"}, {"usage", "--from", "yesterday"},
		{"invoice", "get"}, {"invoice", "get", "inv_x", "--preview"}, {"login"}, {"host", "cordon"},
	} {
		require.Equal(t, exitUsage, term.run(t.Context(), args...), "%v: %s", args, term.err.String())
	}
	require.Empty(t, term.called)
	delete(term.env, "TRANCHE_API_KEY")
	require.Equal(t, exitUsage, term.run(t.Context(), "offers", "ls"))
	require.Contains(t, term.err.String(), "tranche login")
}

const accepted = `{"id":"inst_1","project":"proj_1","name":"n","offer":"o","status":"queued","image":"i",
	"operation":{"id":"op_1","kind":"instance.create","status":"queued"},"price_per_hour":{"amount":"0.49","currency":"USD"},
	"cost_so_far":{"amount":"0","currency":"USD"},"isolation":{"gpu":"partitioned","host":"shared_kernel"},"created_at":"2026-11-30T12:00:00.000000Z"}`

func service(op string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1/operations/"):
			_, _ = w.Write([]byte(op))
		case r.Method == http.MethodGet:
			_, _ = w.Write([]byte(strings.Replace(accepted, "queued", "running", 1)))
		default:
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(accepted))
		}
	}
}

func TestCreateWaitsAndPrintsOnlyTheDocument(t *testing.T) {
	t.Parallel()
	term := setup(t, service(`{"id":"op_1","status":"succeeded","kind":"instance.create"}`))
	code := term.run(t.Context(), "instance", "create", "--offer", "o", "--image", "i", "-o", "json", "--", "python", "a.py")
	require.Equal(t, exitOK, code, term.err.String())
	var doc map[string]any
	require.NoError(t, json.Unmarshal(term.out.Bytes(), &doc))
	require.Equal(t, "running", doc["status"])
	require.Contains(t, term.err.String(), "waiting for op_1")
}

func TestNoWaitReturnsAtAcceptance(t *testing.T) {
	t.Parallel()
	term := setup(t, service(`{}`))
	require.Equal(t, exitOK, term.run(t.Context(), "instance", "stop", "inst_1", "--no-wait"))
	require.Equal(t, []string{"POST /v1/projects/-/instances/inst_1/actions/stop"}, term.called)
}

func TestAFailedOperationHasTheExitCodeOfItsProblem(t *testing.T) {
	t.Parallel()
	term := setup(t, service(`{"id":"op_1","status":"failed","kind":"instance.create",
		"problem":{"code":"capacity.none","detail":"No GPU is free.","suggestion":null}}`))
	require.Equal(t, exitCapacity, term.run(t.Context(), "instance", "create", "--offer", "o", "--image", "i"))
	require.Contains(t, term.err.String(), "No GPU is free.")
}

func TestATimeoutSaysThatTheWorkGoesOn(t *testing.T) {
	t.Parallel()
	term := setup(t, service(`{"id":"op_1","status":"running","kind":"instance.create"}`))
	require.Equal(t, exitTimeout, term.run(t.Context(), "op", "wait", "op_1", "--timeout", "50ms"))
	require.Contains(t, term.err.String(), "tranche op wait op_1")
}

func TestCtrlCDetachesAndDeletesNothing(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	term := setup(t, nil)
	h := service(`{"id":"op_1","status":"running","kind":"instance.create"}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		term.called = append(term.called, r.Method)
		if strings.HasPrefix(r.URL.Path, "/v1/operations/") {
			interrupt()
		}
		h(w, r)
	}))
	t.Cleanup(s.Close)
	term.env["TRANCHE_API_URL"] = s.URL
	require.Equal(t, exitDetached, term.run(ctx, "instance", "create", "--offer", "o", "--image", "i"))
	require.Contains(t, term.err.String(), "Detached.")
	require.NotContains(t, term.called, http.MethodDelete)
}

func TestLoginKeepsTheKeyForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Bearer trn_test_from_stdin", r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"kind":"organization","key":"key_1","key_name":"ci","scopes":[]}`))
	})
	url := term.env["TRANCHE_API_URL"]
	delete(term.env, "TRANCHE_API_URL")
	delete(term.env, "TRANCHE_API_KEY")
	term.stdin = "trn_test_from_stdin\n"
	require.Equal(t, exitOK, term.run(t.Context(), "login", "--api-url", url, "--with-token"), term.err.String())
	require.NotContains(t, term.out.String()+term.err.String(), "from_stdin")

	info, err := os.Stat(filepath.Join(term.env["HOME"], ".config", "tranche", "login.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, exitOK, term.run(t.Context(), "whoami"))
}

func TestHostileTextCannotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{\"items\":[{\"id\":\"inst_1\",\"name\":\"a\\u001b[2Jb\\tc\"}]}"))
	})
	require.Equal(t, exitOK, term.run(t.Context(), "instance", "ls"))
	require.NotContains(t, term.out.String(), "\x1b")
	require.Contains(t, term.out.String(), "a\uFFFD[2Jb\uFFFDc")
}

func TestCordonActsOnTheGenerationItRead(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			require.Equal(t, `"g4"`, r.Header.Get("If-Match"))
		}
		_, _ = w.Write([]byte(`{"id":"host_1","generation":4,"state":"cordoned"}`))
	})
	require.Equal(t, exitOK, term.run(t.Context(), "host", "cordon", "host_1"), term.err.String())
}
