package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/api"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// bench is an API over handlers that tests steer, with two organizations known.
type bench struct {
	*api.API
	clock   *clock.Fake
	project id.Project // of the first organization
	foreign id.Project // of the second
	config  api.Config
	limits  org.RateLimits
	calls   []string // what handlers saw
}

const (
	tenant   = "tenant" // all scopes, first organization
	other    = "other"  // all scopes, second organization
	operator = "operator"
	reader   = "reader" // first organization, may only read instances
)

// handlers answers the few operations that the tests of the checks reach.
type handlers struct {
	api.StrictServerInterface
	bench *bench
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		clock:   clock.NewFake(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)),
		project: id.New[id.Project](), foreign: id.New[id.Project](),
		limits: org.RateLimits{Read: 100_000, Write: 100_000, Launch: 100_000},
	}
	mine, theirs := id.New[id.Org](), id.New[id.Org]()
	principals := map[string]auth.Principal{
		tenant:   {Kind: auth.Org, Org: mine, Key: id.New[id.Key](), Scopes: auth.OrgScopes()},
		other:    {Kind: auth.Org, Org: theirs, Key: id.New[id.Key](), Scopes: auth.OrgScopes()},
		reader:   {Kind: auth.Org, Org: mine, Key: id.New[id.Key](), Scopes: []auth.Scope{auth.InstancesRead}},
		operator: {Kind: auth.Operator, Key: id.New[id.Key](), Scopes: auth.OperatorScopes()},
	}
	owners := map[id.Project]id.Org{b.project: mine, b.foreign: theirs}
	b.config = api.Config{
		Handlers: &handlers{bench: b},
		Authenticate: func(_ context.Context, credential string) (app.Authenticated, error) {
			p, ok := principals[credential]
			if !ok {
				return app.Authenticated{}, auth.Invalid()
			}
			return app.Authenticated{Principal: p, Limits: b.limits}, nil
		},
		ProjectOwner: func(_ context.Context, p auth.Principal, project id.Project) (id.Org, error) {
			if org, ok := owners[project]; ok && org == p.Org {
				return org, nil
			}
			return id.Org{}, auth.NotFound()
		},
		Exists: func(_ context.Context, _ auth.Principal, params map[string]string) error {
			if _, err := id.Parse[id.Instance](params["instance"]); params["instance"] != "" && err != nil {
				return auth.NotFound()
			}
			return nil
		},
		Ready: func(context.Context) []api.Check { return []api.Check{{Name: "database", Status: api.CheckOK}} },
		Clock: b.clock, Log: slog.New(slog.DiscardHandler),
	}
	built, err := api.New(b.config)
	require.NoError(t, err)
	b.API = built
	return b
}

func (h *handlers) CreateInstance(ctx context.Context, req api.CreateInstanceRequestObject) (api.CreateInstanceResponseObject, error) {
	h.bench.calls = append(h.bench.calls, "createInstance")
	switch req.Body.Image {
	case "panic":
		panic("boom")
	case "nothing":
		return nil, nil
	case "broken":
		return nil, io.ErrUnexpectedEOF
	}
	return api.CreateInstance202JSONResponse{Body: wire.Instance{Id: id.New[id.Instance]().String()}}, nil
}

func (h *handlers) StopInstance(context.Context, api.StopInstanceRequestObject) (api.StopInstanceResponseObject, error) {
	h.bench.calls = append(h.bench.calls, "stopInstance")
	return api.StopInstance202JSONResponse{}, nil
}

func (h *handlers) ListOffers(context.Context, api.ListOffersRequestObject) (api.ListOffersResponseObject, error) {
	return api.ListOffers200JSONResponse{Items: []wire.Offer{}}, nil
}

// ask is one request of a test.
type ask struct {
	as, method, path, body string
	header                 map[string]string
	drop                   string // header to leave out
}

func (b *bench) do(t *testing.T, a ask) *httptest.ResponseRecorder {
	t.Helper()
	path := strings.NewReplacer("{mine}", b.project.String(), "{foreign}", b.foreign.String(),
		"{random}", id.New[id.Project]().String()).Replace(a.path)
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r := httptest.NewRequest(a.method, "http://api.test"+path, body)
	headers := map[string]string{"Idempotency-Key": "k-1", "Content-Type": "application/json"}
	if a.as != "" {
		headers["Authorization"] = "Bearer " + a.as
	}
	maps.Copy(headers, a.header)
	delete(headers, a.drop)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	return w
}

// refused reads a problem and checks what every problem has.
func refused(t *testing.T, w *httptest.ResponseRecorder) wire.Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var p wire.Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, w.Code, int(p.Status))
	require.NotEmpty(t, p.Title)
	require.NotEmpty(t, p.Detail)
	require.Equal(t, "https://tranche.dev/problems#"+p.Code, p.Type)
	require.Equal(t, "urn:tranche:request:"+p.RequestId, p.Instance)
	require.Equal(t, w.Header().Get("X-Request-Id"), p.RequestId)
	return p
}

const goodBody = `{"offer":"h100-whole","image":"ghcr.io/acme/trainer:1"}`

func TestGoodRequestReachesItsHandler(t *testing.T) {
	b := newBench(t)
	w := b.do(t, ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances", body: goodBody})
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.Equal(t, []string{"createInstance"}, b.calls)
	require.Equal(t, `"credential-launch";q=100000;w=60, "project-launch";q=100000;w=60`, w.Header().Get("RateLimit-Policy"))
}

func TestHandlersMistakesBecomeProblems(t *testing.T) {
	for image, want := range map[string]string{"panic": "internal", "nothing": "internal", "broken": "internal"} {
		t.Run(image, func(t *testing.T) {
			w := newBench(t).do(t, ask{
				as: tenant, method: "POST", path: "/v1/projects/{mine}/instances",
				body: `{"offer":"h100-whole","image":"` + image + `"}`,
			})
			p := refused(t, w)
			require.Equal(t, want, p.Code)
			require.Equal(t, 500, w.Code)
			require.True(t, p.Retryable)
			require.NotContains(t, w.Body.String(), "EOF")
			require.NotContains(t, w.Body.String(), "boom")
		})
	}
}

func TestRateLimit(t *testing.T) {
	b := newBench(t)
	b.limits = org.RateLimits{Read: 600, Write: 120, Launch: 2}
	create := ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances", body: goodBody}
	for range 2 {
		require.Equal(t, http.StatusAccepted, b.do(t, create).Code)
	}
	w := b.do(t, create)
	p := refused(t, w)
	require.Equal(t, "rate.limited", p.Code)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "30", w.Header().Get("Retry-After"))
	require.Equal(t, int32(30), *p.RetryAfterS)
	require.Equal(t, `"credential-launch";r=0;t=60, "project-launch";r=0;t=60`, w.Header().Get("RateLimit"))

	stop := ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances/" + id.New[id.Instance]().String() + "/actions/stop"}
	require.Equal(t, http.StatusAccepted, b.do(t, stop).Code, "other classes have buckets of their own")

	b.clock.Advance(30 * time.Second)
	require.Equal(t, http.StatusAccepted, b.do(t, create).Code)
	require.Equal(t, http.StatusTooManyRequests, b.do(t, create).Code)
}

func TestHealthAndMetrics(t *testing.T) {
	b := newBench(t)
	require.Equal(t, 200, b.do(t, ask{method: "GET", path: "/livez"}).Code)
	w := b.do(t, ask{method: "GET", path: "/readyz"})
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"status":"ok","checks":[{"name":"database","status":"ok"}]}`, w.Body.String())

	for status, code := range map[api.CheckStatus]int{api.CheckDegraded: 200, api.CheckDown: 503} {
		config := b.config
		config.Ready = func(context.Context) []api.Check { return []api.Check{{Name: "outbox", Status: status}} }
		built, err := api.New(config)
		require.NoError(t, err)
		w := httptest.NewRecorder()
		built.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		require.Equal(t, code, w.Code)
	}

	b.do(t, ask{as: tenant, method: "GET", path: "/v1/offers"})
	m := httptest.NewRecorder()
	b.Metrics().ServeHTTP(m, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, m.Body.String(), `tranche_api_request_seconds_count{operation="listOffers",status="2xx"} 1`)
	require.Contains(t, m.Body.String(), "tranche_api_in_flight 0")
}
