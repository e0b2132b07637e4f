package sshgw

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The events of an audit record.
const (
	Opened = "opened"
	Closed = "closed"
)

// Record is one entry of the audit: a session that opened, or closed.
type Record struct {
	Event       string        `json:"event"`
	Session     string        `json:"session"` // unique; with Event the record's identity
	At          time.Time     `json:"at"`
	Instance    string        `json:"instance"`
	Assignment  string        `json:"assignment"`
	Principal   string        `json:"principal,omitempty"` // holder named by a certificate
	Serial      uint64        `json:"serial,omitempty"`    // of the certificate
	Fingerprint string        `json:"fingerprint"`         // of the user's key
	Remote      string        `json:"remote"`
	Kinds       []string      `json:"kinds,omitempty"` // closed: shell exec sftp forward reverse-forward logs
	In          int64         `json:"in,omitempty"`    // closed: bytes towards the instance
	Out         int64         `json:"out,omitempty"`   // closed: bytes from the instance
	Duration    time.Duration `json:"duration,omitempty"`
	Reason      string        `json:"reason,omitempty"` // closed: why
}

// Restarted is the reason of a session whose gateway ended without a word.
const Restarted = "gateway restarted"

// Spool keeps audit records until somebody has carried them away. It is a folder, so
// that the gateway writes and another process collects without a lock between them:
//
//	open/SESSION     the session is open; or its closing, not yet handed over
//	draft/…          being written
//	ready/…          records to be collected, oldest name first
//
// Each record enters ready by one rename, so it is there once or not at all.
type Spool struct{ dir string }

// Collected is a record that waits in the spool.
type Collected struct {
	Record
	name string
}

// OpenSpool prepares the folder for collecting.
func OpenSpool(dir string) (*Spool, error) {
	for _, part := range []string{"open", "draft", "ready"} {
		if err := os.MkdirAll(filepath.Join(dir, part), 0o750); err != nil {
			return nil, fmt.Errorf("open the audit spool: %w", err)
		}
	}
	return &Spool{dir: dir}, nil
}

// Recover hands over what an earlier gateway left: openings that were on their way, and
// closings of sessions that ended with it, as of the given instant. Only the gateway
// calls it, before its first session.
func (s *Spool) Recover(at time.Time) error {
	if err := errors.Join(s.recoverOpenings(), s.recoverSessions(at)); err != nil {
		return fmt.Errorf("recover the audit spool: %w", err)
	}
	return nil
}

func (s *Spool) recoverOpenings() error {
	drafts, err := os.ReadDir(filepath.Join(s.dir, "draft"))
	if err != nil {
		return err
	}
	for _, d := range drafts {
		session, opening := strings.CutSuffix(d.Name(), "."+Opened)
		if _, absent := os.Stat(filepath.Join(s.dir, "open", session)); opening && absent == nil {
			err = s.hand(filepath.Join("draft", d.Name()))
		} else {
			err = os.Remove(filepath.Join(s.dir, "draft", d.Name()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) recoverSessions(at time.Time) error {
	left, err := os.ReadDir(filepath.Join(s.dir, "open"))
	if err != nil {
		return err
	}
	for _, l := range left {
		name := filepath.Join("open", l.Name())
		if strings.HasPrefix(l.Name(), ".") {
			// A closing that was never finished: its session still counts as open.
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
				return err
			}
			continue
		}
		r, err := s.read(name)
		switch {
		case err == nil && r.Event == Opened:
			r.Event, r.Reason, r.Duration, r.At = Closed, Restarted, max(0, at.Sub(r.At)), at
			err = s.Add(r)
		case err == nil:
			err = s.hand(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Add takes a record. When it returns nil the record survives a crash.
func (s *Spool) Add(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("audit %s of %s: %w", r.Event, r.Session, err)
	}
	open := filepath.Join("open", r.Session)
	if r.Event == Opened {
		draft := filepath.Join("draft", r.Session+"."+Opened)
		err = publish(filepath.Join(s.dir, draft), text)
		if err == nil {
			// From here on the session counts as open, and its opening is on its way.
			err = os.Link(filepath.Join(s.dir, draft), filepath.Join(s.dir, open))
		}
		if err == nil {
			err = s.hand(draft)
		}
	} else {
		// One file holds the closing and marks the session as open until it is moved.
		if err = publish(filepath.Join(s.dir, open), text); err == nil {
			err = s.hand(open)
		}
	}
	if err != nil {
		return fmt.Errorf("audit %s of %s: %w", r.Event, r.Session, err)
	}
	return nil
}

// hand moves a written record to those that are ready.
func (s *Spool) hand(name string) error {
	r, err := s.read(name)
	if err != nil {
		return err
	}
	target := fmt.Sprintf("%020d-%s-%s", r.At.UnixNano(), r.Session, r.Event)
	if err := os.Rename(filepath.Join(s.dir, name), filepath.Join(s.dir, "ready", target)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Join(s.dir, "ready"))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (s *Spool) read(name string) (Record, error) {
	var r Record
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// Collect returns the oldest records, at most limit.
func (s *Spool) Collect(limit int) ([]Collected, error) {
	names, err := os.ReadDir(filepath.Join(s.dir, "ready"))
	if err != nil {
		return nil, fmt.Errorf("collect audit records: %w", err)
	}
	all := make([]Collected, 0, min(limit, len(names)))
	for _, n := range names[:min(limit, len(names))] {
		r, err := s.read(filepath.Join("ready", n.Name()))
		if err != nil {
			return all, fmt.Errorf("collect audit records: %w", err)
		}
		all = append(all, Collected{Record: r, name: n.Name()})
	}
	return all, nil
}

// Forget drops a record that was carried away. Doing so twice is doing so once.
func (s *Spool) Forget(c Collected) error {
	err := os.Remove(filepath.Join(s.dir, "ready", c.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget audit record: %w", err)
	}
	return nil
}
