package gpudrv

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the typed reason of a refused or failed driver call. The text is the
// reason code that the agent reports.
type Kind string

// The kinds.
const (
	InUse       Kind = "IN_USE"      // held by processes or monitors: Holders
	NoRoom      Kind = "NO_ROOM"     // the slot is taken or the GPU short of something
	NeedsReset  Kind = "NEEDS_RESET" // pending until the GPU is reset
	GPULost     Kind = "GPU_LOST"    // off the bus; nothing works until a reboot
	Unsupported Kind = "UNSUPPORTED" // never works on this GPU, driver, mode or build
	Invalid     Kind = "INVALID"     // the arguments are not legal
	NotFound    Kind = "NOT_FOUND"   // no such GPU, instance or share
	Hung        Kind = "HUNG"        // no answer within the call's deadline
	// Mismatch: library and kernel module are of different versions, as after an
	// upgrade without a reboot; nothing works until the driver is loaded again.
	Mismatch Kind = "LIB_MISMATCH"
	Broken   Kind = "FAILED" // the driver failed without a known reason
)

// Holder is someone who keeps a device open.
type Holder struct {
	PID  int    `json:"pid"`  // 0 when unknown
	Name string `json:"name"` // process name, or the daemon it is known to be
}

// Error is the error of every driver call.
type Error struct {
	Kind    Kind
	Op      string // the call, for example create_gpu_instance
	GPU     string // UUID, "" for host calls
	Detail  string
	Holders []Holder // InUse only; empty when the driver names nobody
	cause   error
}

// Refuse makes an error of a kind.
func Refuse(kind Kind, op, gpu, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, GPU: gpu, Detail: fmt.Sprintf(format, args...)}
}

// HeldBy returns a copy that names the holders.
func (e *Error) HeldBy(h ...Holder) *Error { c := *e; c.Holders = h; return &c }

// Because returns a copy with a cause.
func (e *Error) Because(cause error) *Error { c := *e; c.cause = cause; return &c }

// Error is one line: call, GPU, kind, detail, holders.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.GPU != "" {
		b.WriteString(" on " + e.GPU)
	}
	b.WriteString(": " + string(e.Kind))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for i, h := range e.Holders {
		if i == 0 {
			b.WriteString("; held by")
		}
		fmt.Fprintf(&b, " %s(%d)", h.Name, h.PID)
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of a driver error anywhere in the chain; Broken for
// any other error and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Broken
}

// HoldersOf returns who holds the device, as far as the driver says.
func HoldersOf(err error) []Holder {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Holders
	}
	return nil
}

// IsTransient says whether the same call may succeed later without anybody's help.
func IsTransient(err error) bool {
	k := KindOf(err)
	return k == InUse || k == Hung || k == Broken
}
