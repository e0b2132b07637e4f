package gpudrv

import (
	"encoding/json"
	"fmt"
)

// Value is one reading: reported, not reported by this GPU, or failed. The zero
// Value is "not reported" without a reason. A missing reading is never a zero.
type Value[T any] struct {
	v      T
	state  state
	reason string
}

type state uint8

const (
	notReported state = iota
	reported
	failed
)

// Reported is a reading that the driver gave.
func Reported[T any](v T) Value[T] { return Value[T]{v: v, state: reported} }

// NotReported is a reading that this GPU or driver does not offer.
func NotReported[T any](reason string) Value[T] { return Value[T]{reason: reason} }

// Failed is a reading that the driver offers but could not give now.
func Failed[T any](reason string) Value[T] { return Value[T]{state: failed, reason: reason} }

// Get returns the reading and whether it was reported.
func (v Value[T]) Get() (T, bool) { return v.v, v.state == reported }

// Or returns the reading, or the fallback if there is none.
func (v Value[T]) Or(fallback T) T {
	if v.state == reported {
		return v.v
	}
	return fallback
}

// HasFailed says whether the driver should have answered but did not.
func (v Value[T]) HasFailed() bool { return v.state == failed }

// Reason says why there is no reading; "" when there is one.
func (v Value[T]) Reason() string { return v.reason }

// String is for people: the reading, "n/a" or "failed: …".
func (v Value[T]) String() string {
	switch v.state {
	case reported:
		return fmt.Sprint(v.v)
	case failed:
		return "failed: " + v.reason
	default:
		return "n/a"
	}
}

// valueJSON is the form in recordings: exactly one member is set.
type valueJSON struct {
	Reported    json.RawMessage `json:"reported,omitempty"`
	NotReported *string         `json:"not_reported,omitempty"`
	Failed      *string         `json:"failed,omitempty"`
}

// MarshalJSON writes {"reported":v}, {"not_reported":reason} or {"failed":reason}.
func (v Value[T]) MarshalJSON() ([]byte, error) {
	var out valueJSON
	switch v.state {
	case reported:
		raw, err := json.Marshal(v.v)
		if err != nil {
			return nil, err
		}
		out.Reported = raw
	case failed:
		out.Failed = &v.reason
	default:
		out.NotReported = &v.reason
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes and refuses anything else; null
// changes nothing, as is the custom.
func (v *Value[T]) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var in valueJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	switch {
	case in.Reported != nil && in.NotReported == nil && in.Failed == nil:
		var t T
		if err := json.Unmarshal(in.Reported, &t); err != nil {
			return err
		}
		*v = Reported(t)
	case in.NotReported != nil && in.Reported == nil && in.Failed == nil:
		*v = NotReported[T](*in.NotReported)
	case in.Failed != nil && in.Reported == nil && in.NotReported == nil:
		*v = Failed[T](*in.Failed)
	default:
		return fmt.Errorf("a value is exactly one of reported, not_reported, failed")
	}
	return nil
}
