// Package fault owns the fifteen kinds of failure the product knows, and the
// error value that carries one: a stable code for programs, a sentence for
// people, a hint what to do, and the private cause.
//
// It does not know HTTP or retry policies: api/problem.go maps kind to status,
// workflows map kind to retry, each in one table. A new kind needs an ADR.
package fault

import (
	"errors"
	"time"
)

// Kind classifies a failure by who has to do what about it.
type Kind string

// The fifteen kinds.
const (
	Invalid              Kind = "invalid"
	Unauthenticated      Kind = "unauthenticated"
	Forbidden            Kind = "forbidden"
	NotFound             Kind = "not_found"
	Conflict             Kind = "conflict"
	PreconditionFailed   Kind = "precondition_failed"
	PreconditionRequired Kind = "precondition_required"
	TooLarge             Kind = "too_large"
	Unprocessable        Kind = "unprocessable"
	RateLimited          Kind = "rate_limited"
	OverQuota            Kind = "over_quota"
	OverBudget           Kind = "over_budget"
	NoCapacity           Kind = "no_capacity"
	Unavailable          Kind = "unavailable"
	Internal             Kind = "internal"
)

// Kinds lists every kind; tables keyed by kind are tested against it.
var Kinds = []Kind{
	Invalid, Unauthenticated, Forbidden, NotFound, Conflict, PreconditionFailed,
	PreconditionRequired, TooLarge, Unprocessable, RateLimited, OverQuota,
	OverBudget, NoCapacity, Unavailable, Internal,
}

// Field is one refused part of an input. Pointer is a JSON pointer into the body,
// or names a header or parameter.
type Field struct{ Pointer, Code, Detail string }

// Error is a failure that may be shown to a caller: everything but the cause.
type Error struct {
	Kind       Kind
	Code       string // stable and dotted, for example quota.exceeded
	Detail     string // what and why, one sentence
	Suggestion string // what to do
	Fields     []Field
	RetryAfter time.Duration // 0: not said
	cause      error
}

// New makes a failure of a kind with its stable code and public sentence.
func New(kind Kind, code, detail string) *Error {
	return &Error{Kind: kind, Code: code, Detail: detail}
}

// Suggest returns a copy that says what to do.
func (e *Error) Suggest(text string) *Error { c := *e; c.Suggestion = text; return &c }

// Because returns a copy that carries the private cause.
func (e *Error) Because(cause error) *Error { c := *e; c.cause = cause; return &c }

// After returns a copy that says when trying again makes sense.
func (e *Error) After(d time.Duration) *Error { c := *e; c.RetryAfter = d; return &c }

// With returns a copy that lists refused fields.
func (e *Error) With(fields ...Field) *Error {
	c := *e
	c.Fields = append(append([]Field(nil), e.Fields...), fields...)
	return &c
}

// Error is for logs: it includes the cause and must not reach a caller.
func (e *Error) Error() string {
	if e.cause == nil {
		return e.Code + ": " + e.Detail
	}
	return e.Code + ": " + e.Detail + ": " + e.cause.Error()
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// Is matches another failure by code, so errors.Is(err, fault.New(k, code, ""))
// asks for the code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// From returns the failure in err's chain, or an internal one that wraps err.
// It returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(Internal, "internal", "Something went wrong on our side.").
		Suggest("Try again; if it persists, send us the request id.").Because(err)
}

// KindOf returns the kind of err; Internal for an error that is no fault, "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	return From(err).Kind
}

// CodeOf returns the stable code of err; "internal" for an error that is no fault.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	return From(err).Code
}
