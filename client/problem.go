package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// Problem is a refusal of the service (RFC 9457). Branch on Code, show Detail and
// Suggestion to people, quote RequestID to the operator.
type Problem struct {
	Status     int
	Code       string // stable and dotted, for example quota.exceeded
	Title      string
	Detail     string
	Suggestion string
	RequestID  string
	Retryable  bool
	RetryAfter time.Duration // 0: not said
	Errors     []FieldProblem
}

// FieldProblem is one refused part of a request.
type FieldProblem = wire.FieldProblem

// Error is one line for people.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Detail)
	if p.Detail == "" {
		b.WriteString(p.Title)
	}
	for _, e := range p.Errors {
		b.WriteString(" [" + e.Pointer + ": " + e.Detail + "]")
	}
	if p.Suggestion != "" {
		b.WriteString(" " + p.Suggestion)
	}
	b.WriteString(" (" + p.Code)
	if p.RequestID != "" {
		b.WriteString(", request " + p.RequestID)
	}
	return b.String() + ")"
}

// CodeOf returns the code of a *Problem or *OperationError in err's chain, or "".
func CodeOf(err error) string {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	if o, ok := errors.AsType[*OperationError](err); ok {
		return o.Code
	}
	return ""
}

// IsNotFound reports whether the service said that there is no such resource.
func IsNotFound(err error) bool { return CodeOf(err) == "resource.not_found" }

// OperationError is an operation that ended without success.
type OperationError struct {
	Operation  Operation
	Code       string
	Detail     string
	Suggestion string
}

// Error is one line for people.
func (e *OperationError) Error() string {
	s := string(e.Operation.Kind) + " " + string(e.Operation.Status) + ": " + e.Detail
	if e.Suggestion != "" {
		s += " " + e.Suggestion
	}
	return s + " (" + e.Code + ", operation " + e.Operation.Id + ")"
}

func problemOf(resp *http.Response, body []byte) error {
	var w wire.Problem
	p := &Problem{Status: resp.StatusCode, Code: "internal", Title: http.StatusText(resp.StatusCode)}
	if json.Unmarshal(body, &w) == nil && w.Code != "" {
		p.Code, p.Title, p.Detail = w.Code, w.Title, w.Detail
		p.RequestID, p.Retryable = w.RequestId, w.Retryable
		if w.Suggestion != nil {
			p.Suggestion = *w.Suggestion
		}
		if w.Errors != nil {
			p.Errors = *w.Errors
		}
	} else {
		p.Detail = "The server answered " + resp.Status + " without a problem document."
		p.Suggestion = "Check that the address is that of a Tranche API."
	}
	p.RetryAfter = retryAfter(resp.Header)
	return p
}

// retryAfter reads the header in its form of seconds, which is the service's.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}
