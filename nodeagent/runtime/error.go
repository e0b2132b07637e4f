package runtime

import (
	"errors"
	"fmt"
)

// Kind is the typed reason of a failed call. The text is the reason code that the
// agent reports.
type Kind string

// The kinds. Those with the prefix IMAGE and COMMAND are the tenant's own doing: no
// other host would do better.
const (
	ImageInvalid      Kind = "IMAGE_INVALID"      // not a reference, or not an image for this machine
	ImageNotFound     Kind = "IMAGE_NOT_FOUND"    // the registry has no such image
	ImageUnauthorized Kind = "IMAGE_UNAUTHORIZED" // the registry wants other credentials
	ImageRefused      Kind = "IMAGE_REFUSED"      // not on the allow-list, too large, too many layers
	ImageUnavailable  Kind = "IMAGE_UNAVAILABLE"  // the registry does not answer, or too slowly
	CommandMissing    Kind = "COMMAND_MISSING"    // neither the tenant nor the image names one
	CommandFailed     Kind = "COMMAND_FAILED"     // the program is not in the image or cannot be run
	LimitInvalid      Kind = "LIMIT_INVALID"      // below the minimum, or more than the host has
	PortInUse         Kind = "PORT_IN_USE"        // a published port is taken on the host
	NotFound          Kind = "NOT_FOUND"          // no such container, or it does not run
	Unavailable       Kind = "RUNTIME_UNAVAILABLE"
	Broken            Kind = "RUNTIME_FAILED" // without a known reason
)

// Error is the error of every call of a Driver.
type Error struct {
	Kind   Kind
	Op     string // start, stop, list, stats, exec, pull, attach
	Name   string // of the container, "" if it concerns none
	Detail string
	cause  error
}

// Refuse makes an error of a kind.
func Refuse(kind Kind, op, name, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Name: name, Detail: fmt.Sprintf(format, args...)}
}

// Because returns a copy with a cause.
func (e *Error) Because(cause error) *Error { c := *e; c.cause = cause; return &c }

// Error is one line: call, kind, detail, cause.
func (e *Error) Error() string {
	text := e.Op + ": " + string(e.Kind)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of a runtime error anywhere in the chain; Broken for any
// other error and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Broken
}
