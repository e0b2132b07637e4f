// Package wire owns the two small protocols between a host and the guest, the
// program that is process 1 of an instance: the frames of the control connection
// and the preamble of a shell connection. Both ends import it.
//
// It opens no socket and knows no container. A guest is only as trustworthy as the
// tenant who can stop it: whatever it says is bounded here, and judged by the host.
// Instants are nanoseconds of the host's uptime (CLOCK_BOOTTIME).
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the version of both protocols. A guest lives as long as its instance,
// so a host of this version also serves guests of every older one: fields are added,
// never changed.
const Version = 1

// Where things lie inside an instance. Everything there is mounted read-only.
const (
	Folder  = "/.tranche/run"
	Binary  = "/.tranche/guest"
	Control = "control.sock"   // in Folder; the agent listens
	Shell   = "ssh/ssh.sock"   // in Folder; the SSH gateway listens
	Beat    = 10 * time.Second // how often a guest says that it lives
	Silence = 3 * Beat         // when a host takes a guest for hung
	Pool    = 2                // idle shell connections that a guest keeps open
	Stay    = 5 * time.Second  // how long a frame may take once its first byte came
)

// Largest frames, in bytes. A host reads only MaxFromGuest and MaxPreamble.
const (
	MaxFromGuest = 4 << 10
	MaxFromHost  = 2 << 20
	MaxPreamble  = 4 << 10
)

// Phase is where the main process of an instance stands.
type Phase string

// The phases.
const (
	Waiting Phase = "waiting" // for what the host has to tell
	Running Phase = "running"
	Idle    Phase = "idle" // there is no main process; the instance is used by SSH
	Exited  Phase = "exited"
)

// Kind says what a frame is.
type Kind string

// The frames. A guest begins with hello; the host answers with boot if the guest
// waits, with welcome otherwise. After that only the guest speaks.
const (
	Hello   Kind = "hello"
	Ready   Kind = "ready"  // the main process started, or there is none
	Ended   Kind = "exited" // the main process ended; the guest follows at once
	Pulse   Kind = "beat"
	Boot    Kind = "boot"
	Welcome Kind = "welcome"
)

// FromGuest is a frame of the guest.
type FromGuest struct {
	Kind    Kind   `json:"kind"`
	Version int    `json:"version,omitempty"` // hello
	Build   string `json:"build,omitempty"`   // hello: version of the program
	Phase   Phase  `json:"phase,omitempty"`   // hello
	Uptime  int64  `json:"uptime,omitempty"`  // hello if started, ready, exited: when
	Code    int    `json:"code,omitempty"`    // exited: 0–255, 128 + n for signal n
	Reason  string `json:"reason,omitempty"`  // exited: why it never started; "" if it did
}

// FromHost is a frame of the host.
type FromHost struct {
	Kind    Kind              `json:"kind"`
	Version int               `json:"version"`
	User    string            `json:"user,omitempty"`    // boot: user[:group] as an image names it; "" is root
	Workdir string            `json:"workdir,omitempty"` // boot: "" is /
	Secrets map[string]string `json:"secrets,omitempty"` // boot: environment that no disk sees
	Grace   int64             `json:"grace,omitempty"`   // boot: nanoseconds from SIGTERM to SIGKILL
}

// Preamble opens a shell connection: who was let in, and under which name the audit
// knows it. The host writes it when the connection is used; SSH follows.
type Preamble struct {
	Version   int    `json:"version"`
	Session   string `json:"session"`
	Principal string `json:"principal"` // key fingerprint, or the id in a certificate
	Remote    string `json:"remote"`    // address of the client
}

// ErrTooLarge is what Read fails with, wrapped, for a frame over the limit.
var ErrTooLarge = errors.New("frame is too large")

// ErrMalformed is what Read fails with, wrapped, for a frame that is not one JSON
// object of the wanted shape, or that breaks a bound.
var ErrMalformed = errors.New("frame is malformed")

// bounded is a message that knows its own bounds.
type bounded interface{ check() error }

// Read reads one frame of at most limit bytes: four bytes of length, big-endian, then
// one JSON object. Unknown fields are allowed, for the other side may be newer. body,
// if set, is called between the length and the object, for a deadline. Errors are
// ErrTooLarge, ErrMalformed or the reader's.
func Read(r io.Reader, limit int, into bounded, body func() error) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read length of frame: %w", err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 {
		return fmt.Errorf("%w: empty", ErrMalformed)
	}
	if uint64(size) > uint64(limit) {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
	}
	if body != nil {
		if err := body(); err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %s", ErrMalformed, "not the JSON object that was wanted")
	}
	return into.check()
}

// Write writes one frame in a single call. It fails with ErrTooLarge when the message
// does not fit.
func Write(w io.Writer, limit int, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(text) > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(text), limit)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	if _, err := w.Write(append(frame, text...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

func (f *FromGuest) check() error {
	switch {
	case f.Kind != Hello && f.Kind != Ready && f.Kind != Ended && f.Kind != Pulse:
		return fmt.Errorf("%w: unknown kind", ErrMalformed)
	case f.Kind == Hello && f.Version < 1:
		return fmt.Errorf("%w: hello without a version", ErrMalformed)
	case f.Kind == Hello && f.Phase != Waiting && f.Phase != Running && f.Phase != Idle && f.Phase != Exited:
		return fmt.Errorf("%w: unknown phase", ErrMalformed)
	case f.Code < 0 || f.Code > 255:
		return fmt.Errorf("%w: exit code outside 0–255", ErrMalformed)
	case f.Uptime < 0:
		return fmt.Errorf("%w: an instant before the boot", ErrMalformed)
	case len(f.Reason) > 512 || len(f.Build) > 64:
		return fmt.Errorf("%w: a text is too long", ErrMalformed)
	}
	return nil
}

func (f *FromHost) check() error {
	if f.Kind != Boot && f.Kind != Welcome {
		return fmt.Errorf("%w: unknown kind", ErrMalformed)
	}
	return nil
}

func (p *Preamble) check() error {
	if p.Version < 1 || p.Session == "" {
		return fmt.Errorf("%w: a preamble names version and session", ErrMalformed)
	}
	return nil
}
