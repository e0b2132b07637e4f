package callwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version of the frames and of what they carry.
const Version = 1

// Bounds of what a peer may send.
const (
	MaxFrame  = 4 << 20 // bytes of one frame
	maxVerb   = 64
	maxWithin = 24 * time.Hour
	header    = 4
)

// ErrMalformed is a frame that no honest peer sends.
var ErrMalformed = errors.New("malformed frame")

// ErrVersion is a peer of another version: restart it with the same release.
var ErrVersion = errors.New("the other process speaks another version: restart both from one release")

type kind string

const (
	hello  kind = "hello"
	call   kind = "call"
	cancel kind = "cancel"
	note   kind = "note"
	answer kind = "answer"
)

// frame is everything that travels.
type frame struct {
	Kind     kind            `json:"kind"`
	Version  int             `json:"version,omitempty"`   // hello
	ID       uint64          `json:"id,omitempty"`        // all but hello
	Verb     string          `json:"verb,omitempty"`      // call
	WithinMS int64           `json:"within_ms,omitempty"` // call; 0 is a day
	Body     json.RawMessage `json:"body,omitempty"`
	Failure  *Failure        `json:"failure,omitempty"` // answer
}

func (f frame) check() error {
	switch f.Kind {
	case hello:
		return nil
	case call:
		if f.Verb == "" || len(f.Verb) > maxVerb || f.WithinMS < 0 || f.WithinMS > maxWithin.Milliseconds() {
			return fmt.Errorf("%w: a call has a verb and a time", ErrMalformed)
		}
	case cancel, note, answer:
	default:
		return fmt.Errorf("%w: unknown kind", ErrMalformed)
	}
	if f.ID == 0 {
		return fmt.Errorf("%w: no number", ErrMalformed)
	}
	return nil
}

// decode reads one frame's text. The error never quotes it.
func decode(text []byte) (frame, error) {
	var f frame
	if err := Strictly(text, &f); err != nil {
		return frame{}, fmt.Errorf("%w: not the JSON of a frame", ErrMalformed)
	}
	return f, f.check()
}

// Strictly reads exactly one JSON value into v and refuses fields that v has not.
func Strictly(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// encode is a frame with its length in front.
func encode(f frame) ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(text) > MaxFrame {
		return nil, fmt.Errorf("encode frame: %d bytes are more than the %d that one may have", len(text), MaxFrame)
	}
	out := make([]byte, header, header+len(text))
	binary.BigEndian.PutUint32(out, uint32(len(text))) //nolint:gosec // at most MaxFrame
	return append(out, text...), nil
}

// receive reads one frame.
func receive(r io.Reader) (frame, error) {
	var size [header]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n == 0 || n > MaxFrame {
		return frame{}, fmt.Errorf("%w: %d bytes", ErrMalformed, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return frame{}, err
	}
	return decode(text)
}
