package api

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// problemBase is the address of docs/api/problems.md; a code is its fragment.
const problemBase = "https://tranche.dev/problems#"

// statuses is the one table from a failure's kind to an HTTP status.
var statuses = map[fault.Kind]int{
	fault.Invalid:              http.StatusBadRequest,
	fault.Unauthenticated:      http.StatusUnauthorized,
	fault.OverBudget:           http.StatusPaymentRequired,
	fault.Forbidden:            http.StatusForbidden,
	fault.OverQuota:            http.StatusForbidden,
	fault.NotFound:             http.StatusNotFound,
	fault.Conflict:             http.StatusConflict,
	fault.NoCapacity:           http.StatusConflict,
	fault.PreconditionFailed:   http.StatusPreconditionFailed,
	fault.TooLarge:             http.StatusRequestEntityTooLarge,
	fault.Unprocessable:        http.StatusUnprocessableEntity,
	fault.PreconditionRequired: http.StatusPreconditionRequired,
	fault.RateLimited:          http.StatusTooManyRequests,
	fault.Unavailable:          http.StatusServiceUnavailable,
	fault.Internal:             http.StatusInternalServerError,
}

// statusOf maps a failure; the header limit alone has a status of its own kind.
func statusOf(f *fault.Error) int {
	if f.Code == codeHeaderTooLarge {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	if s, ok := statuses[f.Kind]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// retryable reports whether the same request can succeed later without a change.
func retryable(f *fault.Error) bool {
	if doc, ok := problemDocs[f.Code]; ok {
		return doc.retryable
	}
	switch f.Kind {
	case fault.RateLimited, fault.Unavailable, fault.NoCapacity, fault.Internal:
		return true
	default:
		return false
	}
}

// problemOf builds the body of a refusal. A 404 is always the same text, so that
// it tells nothing about what exists.
func problemOf(c *call, f *fault.Error, status int) wire.Problem {
	p := wire.Problem{
		Type:      problemBase + f.Code,
		Title:     f.Code,
		Status:    int32(status),
		Detail:    f.Detail,
		Instance:  "urn:tranche:request:" + c.id.String(),
		Code:      f.Code,
		RequestId: c.id.String(),
		Retryable: retryable(f),
	}
	doc, ok := problemDocs[f.Code]
	if ok {
		p.Title = doc.title
	}
	if f.Kind == fault.NotFound {
		p.Detail = doc.meaning
		return p
	}
	suggestion := f.Suggestion
	if suggestion == "" && ok {
		suggestion = doc.remedy
	}
	if suggestion != "" {
		p.Suggestion = &suggestion
	}
	if s := seconds(f.RetryAfter); s > 0 {
		p.RetryAfterS = &s
	}
	if len(f.Fields) > 0 {
		fields := make([]wire.FieldProblem, len(f.Fields))
		for i, x := range f.Fields {
			fields[i] = wire.FieldProblem{Pointer: x.Pointer, Code: x.Code, Detail: x.Detail}
		}
		p.Errors = &fields
	}
	return p
}

// seconds rounds up, so that a caller never comes back too early.
func seconds(d time.Duration) int32 {
	return int32(min(math.Ceil(d.Seconds()), 86400))
}

// refuse answers a failure as problem+json with the status of its kind.
func refuse(w http.ResponseWriter, c *call, f *fault.Error) {
	refuseAs(w, c, f, statusOf(f))
}

func refuseAs(w http.ResponseWriter, c *call, f *fault.Error, status int) {
	p := problemOf(c, f, status)
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"code":"internal","status":500}`) // strings alone: cannot happen
	}
	h := w.Header()
	for _, name := range []string{"ETag", "Location", "Idempotent-Replayed"} {
		h.Del(name)
	}
	h.Set("Content-Type", "application/problem+json")
	if p.RetryAfterS != nil {
		h.Set("Retry-After", strconv.Itoa(int(*p.RetryAfterS)))
	}
	if f.Kind == fault.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="tranche"`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller is gone if this fails
}
