package api

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

const (
	maxBody       = 1 << 20  // bytes
	maxHeader     = 16 << 10 // bytes of request line and headers
	maxCredential = 8 << 10  // bytes
)

// check is one step before the handler. It adds to the call or refuses it.
type check func(*call, http.ResponseWriter, *http.Request) *fault.Error

// checks lists what every request passes, in this order.
func (a *API) checks() []check {
	return []check{
		a.checkHeaderSize,
		a.checkDeclaredSize,
		a.authenticate,
		a.limitRate,
		a.authorise,
		a.readBody,
		a.checkRequest,
	}
}

// checkHeaderSize counts as net/http does: names, values and four bytes a line.
func (a *API) checkHeaderSize(_ *call, _ http.ResponseWriter, r *http.Request) *fault.Error {
	size := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for name, values := range r.Header {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	if size > maxHeader {
		return fault.New(fault.TooLarge, codeHeaderTooLarge, "The request line and headers are larger than 16 KiB.")
	}
	return nil
}

func (a *API) checkDeclaredSize(_ *call, _ http.ResponseWriter, r *http.Request) *fault.Error {
	if r.ContentLength > maxBody {
		return bodyTooLarge()
	}
	return nil
}

func bodyTooLarge() *fault.Error {
	return fault.New(fault.TooLarge, codeTooLarge, "The body is larger than 1 MiB.")
}

func (a *API) authenticate(c *call, _ http.ResponseWriter, r *http.Request) *fault.Error {
	if auth.IsPublic(c.op.id) {
		return nil
	}
	token, err := bearer(r.Header)
	if err != nil {
		return fault.From(err)
	}
	known, err := a.config.Authenticate(r.Context(), token)
	if err != nil {
		return fault.From(err)
	}
	c.principal, c.limits = known.Principal, known.Limits
	if project, ok := c.principal.SoleProject(); ok && c.params["project"] == "-" {
		c.params["project"] = project.String()
	}
	return nil
}

func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", auth.Missing()
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxCredential {
		return "", auth.Invalid()
	}
	return token, nil
}

func (a *API) limitRate(c *call, w http.ResponseWriter, r *http.Request) *fault.Error {
	return a.limiter.check(c, w, r)
}

// authorise decides by the operation and the ids in the path, before anything of
// the request's shape is looked at.
func (a *API) authorise(c *call, _ http.ResponseWriter, r *http.Request) *fault.Error {
	if f := a.locate(c, r); f != nil {
		return f
	}
	if err := auth.Authorize(c.principal, c.op.id, c.resource); err != nil {
		return fault.From(err)
	}
	c.path = fullPath(c.op.path, c.params)
	return nil
}

// locate finds out to whom the project in the path belongs. Ids further down are
// looked up by the handler in the transaction that needs them.
func (a *API) locate(c *call, r *http.Request) *fault.Error {
	text, named := c.params["project"]
	if !named || c.principal.Kind != auth.Org {
		return nil
	}
	project, err := id.Parse[id.Project](text)
	if err != nil {
		return auth.NotFound()
	}
	org, err := a.projects.owner(r.Context(), c.principal, project)
	if err != nil {
		return fault.From(err)
	}
	c.resource = auth.Resource{Org: org, Project: project}
	return nil
}

func fullPath(pattern string, params map[string]string) string {
	for name, value := range params {
		pattern = strings.ReplaceAll(pattern, "{"+name+"}", value)
	}
	return pattern
}

func (a *API) readBody(c *call, w http.ResponseWriter, r *http.Request) *fault.Error {
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return bodyTooLarge()
	case err != nil:
		return invalid(codeMalformed, "The body ended early.").Because(err)
	}
	c.body = body
	return nil
}

// checkRequest refuses a wrong shape with 400, unless the path names something
// that the caller cannot see: then that is said first.
func (a *API) checkRequest(c *call, _ http.ResponseWriter, r *http.Request) *fault.Error {
	f := checkShape(c, r)
	if f == nil {
		return nil
	}
	if err := a.config.Exists(r.Context(), c.principal, c.params); err != nil {
		return fault.From(err)
	}
	return f
}

// route finds the operation of a request. It refuses an unknown path with 404
// and a wrong method with 405.
func (a *API) route(c *call, w http.ResponseWriter, r *http.Request) (*fault.Error, int) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	if rctx := chi.NewRouteContext(); a.mux.Match(rctx, r.Method, path) {
		c.op = a.operations[r.Method+" "+rctx.RoutePattern()]
		c.params = map[string]string{}
		for _, name := range c.op.names {
			c.params[name] = rctx.URLParam(name)
		}
		return nil, 0
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if a.mux.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return auth.NotFound(), http.StatusNotFound
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return invalid(codeInvalid, "The path exists and does not take this method."), http.StatusMethodNotAllowed
}
