package callwire

import (
	"context"
	"errors"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Whose error a Failure is.
const (
	ofGPU     = "gpu"
	ofRuntime = "runtime"
	ofContext = "context"
	ofOther   = "other"
)

// Failure is an error on its way: typed errors of the driver and runtime ports arrive
// with their kind, subject and holders, others as their text.
type Failure struct {
	Of      string          `json:"of"`
	Kind    string          `json:"kind,omitempty"`
	Op      string          `json:"op,omitempty"`
	Subject string          `json:"subject,omitempty"` // GPU or container
	Detail  string          `json:"detail,omitempty"`
	Cause   string          `json:"cause,omitempty"` // of the typed error
	Text    string          `json:"text"`            // of the whole error
	Holders []gpudrv.Holder `json:"holders,omitempty"`
}

// failureOf takes an error apart.
func failureOf(err error) *Failure {
	f := &Failure{Of: ofOther, Text: err.Error()}
	if e, ok := errors.AsType[*gpudrv.Error](err); ok {
		f.Of, f.Kind, f.Op, f.Subject, f.Detail, f.Holders = ofGPU, string(e.Kind), e.Op, e.GPU, e.Detail, e.Holders
		f.Cause = text(e.Unwrap())
	} else if e, ok := errors.AsType[*runtime.Error](err); ok {
		f.Of, f.Kind, f.Op, f.Subject, f.Detail = ofRuntime, string(e.Kind), e.Op, e.Name, e.Detail
		f.Cause = text(e.Unwrap())
	} else if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		f.Of = ofContext
	}
	return f
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// err puts the error together again.
func (f *Failure) err() error {
	var cause error
	if f.Cause != "" {
		cause = errors.New(f.Cause)
	}
	var typed error
	switch f.Of {
	case ofGPU:
		e := gpudrv.Refuse(gpudrv.Kind(f.Kind), f.Op, f.Subject, "%s", f.Detail).HeldBy(f.Holders...)
		if typed = e; cause != nil {
			typed = e.Because(cause)
		}
	case ofRuntime:
		e := runtime.Refuse(runtime.Kind(f.Kind), f.Op, f.Subject, "%s", f.Detail)
		if typed = e; cause != nil {
			typed = e.Because(cause)
		}
	case ofContext:
		typed = context.Canceled
	default:
		return errors.New(f.Text)
	}
	if typed.Error() == f.Text {
		return typed
	}
	return &told{text: f.Text, typed: typed}
}

// told is a typed error with the words that were put around it.
type told struct {
	text  string
	typed error
}

func (t *told) Error() string { return t.text }
func (t *told) Unwrap() error { return t.typed }
