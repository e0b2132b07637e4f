package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/time/rate"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// Config is what the API needs from outside.
type Config struct {
	// Handlers answer the operations; NewHandlers makes those of the product.
	Handlers StrictServerInterface
	// Authenticate returns who shows the credential. It fails with an auth code.
	Authenticate func(ctx context.Context, credential string) (app.Authenticated, error)
	// ProjectOwner returns the organization of a project that the principal can
	// see, else resource.not_found.
	ProjectOwner func(context.Context, auth.Principal, id.Project) (id.Org, error)
	// Exists fails with resource.not_found when a path parameter (by its name in
	// the specification) names nothing that the principal can see.
	Exists func(context.Context, auth.Principal, map[string]string) error
	// Ready reports the parts behind /readyz.
	Ready func(context.Context) []Check
	Clock clock.Clock
	Log   *slog.Logger
}

// API is the public API as an http.Handler, /livez and /readyz included.
type API struct {
	config     Config
	operations map[string]*operation // by method and pattern
	mux        *chi.Mux
	steps      []check
	limiter    *limiter
	projects   *projectOwners
	metrics    *metrics
}

// New builds the API. It fails only when the specification that is built in is
// wrong.
func New(config Config) (*API, error) {
	operations, err := builtIn()
	if err != nil {
		return nil, err
	}
	a := &API{
		config: config, operations: operations, mux: chi.NewRouter(), metrics: newMetrics(),
		limiter:  &limiter{now: config.Clock.Now, buckets: map[string]*rate.Limiter{}},
		projects: &projectOwners{lookup: config.ProjectOwner, known: map[id.Project]id.Org{}},
	}
	a.steps = a.checks()
	strict := NewStrictHandlerWithOptions(config.Handlers, []StrictMiddlewareFunc{refuseEmpty}, StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  a.failShape,
		ResponseErrorHandlerFunc: a.fail,
	})
	HandlerWithOptions(strict, ChiServerOptions{BaseRouter: a.mux, ErrorHandlerFunc: a.failShape})
	return a, nil
}

// Metrics is the handler of /metrics, for a port of its own.
func (a *API) Metrics() http.Handler { return a.metrics }

// Server returns a server with a time limit on every phase. The longest answer
// is a long poll of 60 s.
func (a *API) Server(addr string) *http.Server {
	return &http.Server{
		Addr: addr, Handler: a,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      90 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(a.config.Log.Handler(), slog.LevelDebug),
	}
}

// ServeHTTP answers one request: the checks in their order, then the handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez":
		a.livez(w, r)
		return
	case "/readyz":
		a.readyz(w, r)
		return
	}
	c := &call{id: id.New[id.Request](), started: a.config.Clock.Now(), header: r.Header}
	out := &answer{ResponseWriter: w}
	a.metrics.inFlight.Add(1)
	defer a.finish(c, out, r)
	defer a.recover(c, out, r)

	h := out.Header()
	h.Set("X-Request-Id", c.id.String())
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	a.serve(c, out, r)
}

func (a *API) serve(c *call, w http.ResponseWriter, r *http.Request) {
	if f, status := a.route(c, w, r); f != nil {
		refuseAs(w, c, f, status)
		return
	}
	r = withCall(r, c)
	for _, step := range a.steps {
		if f := step(c, w, r); f != nil {
			a.fail(w, r, f)
			return
		}
	}
	r = r.WithContext(auth.WithPrincipal(r.Context(), c.principal))
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	a.mux.ServeHTTP(w, r)
}

// fail answers an error of a check or a handler. Causes of internal failures go
// to the log, never to the caller.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	c, f := callFrom(r.Context()), fault.From(err)
	if f.Kind == fault.Internal {
		if r.Context().Err() != nil {
			f = fault.New(fault.Unavailable, "service.unavailable", "The request ended before its answer.").Because(err)
		} else {
			a.config.Log.ErrorContext(r.Context(), "internal failure", "request_id", c.id, "operation", c.operationID(), "error", err)
		}
	}
	if out, ok := w.(*answer); ok && out.status != 0 {
		return // the answer has begun
	}
	refuse(w, c, f)
}

// failShape answers what only the generated decoder found wrong, such as an
// integer written as 1.0.
func (a *API) failShape(w http.ResponseWriter, r *http.Request, err error) {
	a.fail(w, r, invalid(codeInvalid, "The request has a part of the wrong type.").Because(err))
}

// refuseEmpty turns a handler's forgotten answer into an error: the generated
// code would answer 200 with nothing.
func refuseEmpty(next StrictHandlerFunc, operation string) StrictHandlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request, request any) (any, error) {
		response, err := next(ctx, w, r, request)
		if err == nil && response == nil {
			return nil, errors.New("handler of " + operation + " gave neither answer nor error")
		}
		return response, err
	}
}

func (a *API) recover(c *call, w *answer, r *http.Request) {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	a.metrics.panics.Add(1)
	a.config.Log.ErrorContext(r.Context(), "panic", "request_id", c.id, "operation", c.operationID(),
		"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if w.status == 0 {
		refuse(w, c, fault.From(errors.New("panic")))
	}
}

func (a *API) finish(c *call, w *answer, r *http.Request) {
	a.metrics.inFlight.Add(-1)
	took := a.config.Clock.Now().Sub(c.started)
	a.metrics.observe(c.operationID(), w.status, took)
	level := slog.LevelDebug
	if r.Method != http.MethodGet {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.String("request_id", c.id.String()), slog.String("operation", c.operationID()), slog.String("method", r.Method),
		slog.Int("status", w.status), slog.Int("bytes", w.bytes), slog.Duration("took", took),
	}
	if !c.principal.Org.IsZero() {
		attrs = append(attrs, slog.String("org_id", c.principal.Org.String()))
	}
	a.config.Log.LogAttrs(r.Context(), level, "request", attrs...)
}
