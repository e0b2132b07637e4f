package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/org"
)

// call is what is known of one request; each check adds to it.
type call struct {
	id        id.Request
	started   time.Time
	op        *operation        // nil until the route is known
	params    map[string]string // path parameters as sent
	principal auth.Principal    // zero on public operations
	limits    org.RateLimits
	resource  auth.Resource // what the path ids name
	path      string        // the full path with ids, `-` resolved
	query     url.Values
	key       string // idempotency key; empty: none
	header    http.Header
	body      []byte
	value     any // the parsed body
}

func (c *call) operationID() string {
	if c.op == nil {
		return "none"
	}
	return c.op.id
}

type callKey struct{}

func withCall(r *http.Request, c *call) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callKey{}, c))
}

// callFrom returns the call of a handler's context. The zero call stands in
// where there is none, as in a test of one handler.
func callFrom(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// answer records what was written, for the log, the metrics and for knowing
// whether a refusal can still be written.
type answer struct {
	http.ResponseWriter
	status int
	bytes  int
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += n
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
