package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/tranche-cloud/tranche/internal/app"
)

// visit writes one answer of the generated server.
type visit func(http.ResponseWriter) error

// once runs work at most once for the idempotency key of the call. A repetition
// gets the stored answer, which is not nil then. What work returns is stored: it
// must be free of secrets.
func (h *Handlers) once(ctx context.Context, work func(context.Context) (visit, error)) (*repeated, error) {
	return keyed(ctx, h.app.Idempotent, work)
}

// onceApart is once for work that takes long, asks somebody outside and is idempotent
// by its content: no transaction is open while it lasts.
func (h *Handlers) onceApart(ctx context.Context, work func(context.Context) (visit, error)) (*repeated, error) {
	return keyed(ctx, h.app.IdempotentApart, work)
}

// keyed runs work under the idempotency key of the call.
func keyed(
	ctx context.Context, run func(context.Context, app.Once, func(context.Context) (app.Answer, error)) (app.Answer, bool, error),
	work func(context.Context) (visit, error),
) (*repeated, error) {
	c := callFrom(ctx)
	key := app.Once{
		Org: c.principal.Org, Principal: c.principal.String(), Method: c.op.method, Path: c.path, Key: c.key,
		Fingerprint: fingerprint(c.value),
	}
	answer, replayed, err := run(ctx, key, func(ctx context.Context) (app.Answer, error) {
		write, err := work(ctx)
		if err != nil {
			return app.Answer{}, err
		}
		var kept record
		if err := write(&kept); err != nil {
			return app.Answer{}, err
		}
		return kept.answer(), nil
	})
	if err != nil || !replayed {
		return nil, err
	}
	return &repeated{answer}, nil
}

// fingerprint identifies a request's body whatever its spacing and the order of
// its members.
func fingerprint(value any) []byte {
	canonical, err := json.Marshal(value) // maps are written in order of their keys
	if err != nil {
		canonical = nil // the value was parsed from JSON: cannot happen
	}
	sum := sha256.Sum256(canonical)
	return sum[:]
}

// record keeps an answer instead of sending it.
type record struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (r *record) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *record) WriteHeader(status int) { r.status = status }

func (r *record) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *record) answer() app.Answer {
	headers := map[string]string{}
	for name := range r.header {
		headers[name] = r.header.Get(name)
	}
	body := r.body.Bytes()
	if len(body) == 0 {
		body = []byte("null") // what is kept is JSON
	}
	return app.Answer{Status: r.status, Headers: headers, Body: body}
}

// repeated is a stored answer, sent again. It fits every operation that honours
// an idempotency key.
type repeated struct{ answer app.Answer }

// either is what a handler returns after once: the failure, the answer sent again, or
// the fresh one.
func either[R any](fresh R, again *repeated, err error) (R, error) {
	var none R
	if err != nil {
		return none, err
	}
	if again == nil {
		return fresh, nil
	}
	if r, ok := any(again).(R); ok {
		return r, nil
	}
	return none, errors.New("a stored answer does not fit its operation")
}

func (a *repeated) write(w http.ResponseWriter) error {
	for name, value := range a.answer.Headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Idempotent-Replayed", "true")
	if a.answer.Status == http.StatusNoContent {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.answer.Status)
	_, err := w.Write(a.answer.Body)
	return err
}
