package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
)

// serve starts a fake service and a client that pauses without waiting.
func serve(t *testing.T, h http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, "trn_test_secret", opts...)
	require.NoError(t, err)
	return c
}

func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": "T", "status": status, "detail": "Because.", "instance": "urn:tranche:request:req_1",
		"code": code, "request_id": "req_1", "retryable": status == 429, "suggestion": "Do this.",
		"errors": []map[string]string{{"pointer": "/name", "code": "pattern", "detail": "has a tab"}},
	})
}

func TestARefusalIsATypedProblem(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { problem(w, 403, "quota.exceeded") })

	_, err := c.CreateInstance(t.Context(), client.OnlyProject, client.InstanceCreate{Offer: "x", Image: "y"})

	var p *client.Problem
	require.ErrorAs(t, err, &p)
	require.Equal(t, "quota.exceeded", client.CodeOf(err))
	require.Equal(t, 403, p.Status)
	require.EqualError(t, err, "Because. [/name: has a tab] Do this. (quota.exceeded, request req_1)")
	require.False(t, client.IsNotFound(err))
}

func TestAnAnswerThatIsNoProblemSaysSo(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 404) })
	_, err := c.Whoami(t.Context())
	require.ErrorContains(t, err, "Check that the address is that of a Tranche API.")
}

func TestAMutationIsRepeatedWithTheSameKeyAndBody(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	var keys [3]string
	var bodies [3]map[string]any
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1) - 1
		keys[n] = r.Header.Get("Idempotency-Key")
		_ = json.NewDecoder(r.Body).Decode(&bodies[n])
		if n < 2 {
			problem(w, http.StatusServiceUnavailable, "service.unavailable")
			return
		}
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte(`{"id":"inst_1"}`))
	})

	got, err := c.CreateInstance(t.Context(), "-", client.InstanceCreate{Offer: "o", Image: "i"})

	require.NoError(t, err)
	require.Equal(t, "inst_1", got.Id)
	require.Len(t, keys[0], 32)
	require.Equal(t, [3]string{keys[0], keys[0], keys[0]}, keys)
	require.Equal(t, "o", bodies[2]["offer"])
}

func TestRetryAfterIsHonouredAndBoundedByTheContext(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		problem(w, 429, "rate.limited")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Whoami(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestRetriesCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); problem(w, 503, "service.unavailable") },
		client.WithRetries(0))
	_, err := c.Whoami(t.Context())
	require.Equal(t, "service.unavailable", client.CodeOf(err))
	require.EqualValues(t, 1, calls.Load())
}

func TestARefusalThatCannotChangeIsNotRepeated(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); problem(w, 409, "state.conflict") })
	_, err := c.StopInstance(t.Context(), "-", "inst_1")
	require.Equal(t, "state.conflict", client.CodeOf(err))
	require.EqualValues(t, 1, calls.Load())
}

func TestTheCredentialFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization") != "")
	}))
	t.Cleanup(thief.Close)
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) },
		client.WithRetries(0))
	_, err := c.Whoami(t.Context())
	require.Error(t, err)
	require.False(t, stolen.Load())
}

func TestListsWalkAllPagesAndStopWhenToldTo(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		n, _ := strconv.Atoi(r.URL.Query().Get("page_token"))
		next := ""
		if n < 2 {
			next = `,"next_page_token":"` + strconv.Itoa(n+1) + `"`
		}
		_, _ = w.Write([]byte(`{"items":[{"id":"a` + strconv.Itoa(n) + `"},{"id":"b"}]` + next + `}`))
	})

	all, err := client.Collect(c.Offers(t.Context()))
	require.NoError(t, err)
	require.Len(t, all, 6)
	require.Equal(t, "a2", all[4].Id)
	require.EqualValues(t, 3, calls.Load())

	for range c.Offers(t.Context()) {
		break
	}
	require.EqualValues(t, 4, calls.Load())
}

func TestAnEmptyListIsNotNil(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) })
	all, err := client.Collect(c.Invoices(t.Context(), client.InvoiceFilter{}))
	require.NoError(t, err)
	require.NotNil(t, all)
}

func TestWaitingForAnOperationReturnsItsProblem(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.NotEmpty(t, r.URL.Query().Get("wait"))
		if calls.Add(1) == 1 {
			_, _ = w.Write([]byte(`{"id":"op_1","kind":"instance.create","status":"running"}`))
			return
		}
		_, _ = w.Write([]byte(`{"id":"op_1","kind":"instance.create","status":"failed",
			"problem":{"code":"capacity.none","detail":"No GPU is free.","suggestion":"Try mig."}}`))
	})
	op, err := c.WaitOperation(t.Context(), "op_1")
	require.Equal(t, "capacity.none", client.CodeOf(err))
	require.EqualError(t, err, "instance.create failed: No GPU is free. Try mig. (capacity.none, operation op_1)")
	require.EqualValues(t, "failed", op.Status)
}

func TestWaitingForAnInstanceEndsWhenItSettlesElsewhere(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"id":"inst_1","status":"failed","transitioning":false,
			"status_reason":{"code":"capacity.none","detail":"No GPU is free."}}`))
	})
	_, err := c.WaitInstance(t.Context(), "-", "inst_1", "running")
	require.Equal(t, "capacity.none", client.CodeOf(err))
}

func TestIfGenerationSendsTheETag(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, `"g7"`, r.Header.Get("If-Match"))
		_, _ = w.Write([]byte(`{"id":"host_1"}`))
	})
	_, err := c.Admin().CordonHost(t.Context(), "host_1", client.IfGeneration(7))
	require.NoError(t, err)
}

func TestAnAddressMustBeHTTP(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://", "::"} {
		_, err := client.New(bad, "k")
		require.Error(t, err, bad)
	}
}

func TestAChangeOfModeIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	answers := []string{"running", "running", "failed"}
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var in map[string]any
			_ = json.NewDecoder(r.Body).Decode(&in)
			if in["dry_run"] == true {
				_, _ = w.Write([]byte(`{"gpu":"gpu_1","to":"mig"}`))
				return
			}
			if r.Header.Get("If-Match") != `"g3"` {
				problem(w, 428, "precondition.required")
				return
			}
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{"id":"op_1","status":"running"}`))
			return
		}
		n := int(calls.Add(1)) - 1
		_, _ = w.Write([]byte(`{"id":"op_1","kind":"gpu.set_mode","status":"` + answers[min(n, 2)] + `",
			"problem":{"code":"gpu.mode_failed","detail":"It did not.","suggestion":"Look."}}`))
	})
	yes := true
	in := client.GPUModeChange{Mode: "mig", WhenEmpty: &yes, DryRun: &yes}
	op, err := c.Admin().SetGPUMode(t.Context(), "gpu_1", in, client.IfGeneration(3))
	require.NoError(t, err, "a dry run is asked for by its own method")
	require.Equal(t, "op_1", op.Id)
	effect, err := c.Admin().GPUModeEffect(t.Context(), "gpu_1", client.GPUModeChange{Mode: "mig", WhenEmpty: &yes})
	require.NoError(t, err)
	require.Equal(t, "mig", effect.To)

	_, err = c.Admin().WaitOperation(t.Context(), "op_1")
	var ended *client.OperationError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, "gpu.mode_failed", client.CodeOf(err))
	require.EqualError(t, err, "gpu.set_mode failed: It did not. Look. (gpu.mode_failed, operation op_1)")
	require.EqualValues(t, 3, calls.Load())
}

func TestSamplesAskForTheirSpan(t *testing.T) {
	t.Parallel()
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("from")+" "+r.URL.Query().Get("to"))
		_, _ = w.Write([]byte(`{"items":[{"source":"gpm","readings":{"sm_util_ppm":7}}]}`))
	})
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	all, err := client.Collect(c.Samples(t.Context(), "-", "inst_1", at, time.Time{}))
	require.NoError(t, err)
	require.EqualValues(t, 7, all[0].Readings["sm_util_ppm"])
	require.Equal(t, []string{"2026-11-30T12:00:00Z "}, asked)
}
