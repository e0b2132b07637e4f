// Package spool keeps what an agent has to tell until the control plane has taken it
// in: events and usage samples, in one rising sequence, in one append-only file that
// survives restarts of the agent and hours without a control plane.
//
// It does not know what the records mean and never sends anything. Instants are the
// host's uptime; what an earlier boot left is aged by the wall clock, which is all
// that is left of it. Records hold no secret.
package spool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
)

// Limits of a spool. An event is never dropped for a sample: when the spool is full,
// the oldest samples go and their interval shows as a gap; when events alone fill it,
// the oldest event goes. Dropped counts both.
const (
	DefaultMaxRecords = 200_000
	compactAt         = 4 << 20 // bytes; rewritten when it has doubled since
	maxID             = 1 << 60
)

// Config opens a spool.
type Config struct {
	Path   string
	BootID string
	Uptime func() time.Duration
	Now    func() time.Time // wall clock, for records of an earlier boot
	// MaxRecords bounds what is kept; 0 is DefaultMaxRecords.
	MaxRecords int
}

// Record is one thing to tell: exactly one of Event and Samples is set. Their ages
// are set when they are read.
type Record struct {
	ID      uint64
	Event   *agentlink.Event
	Samples *agentlink.Samples
}

// line is a record as on disk.
type line struct {
	ID       uint64             `json:"id,omitempty"`
	Taken    uint64             `json:"taken,omitempty"` // everything up to it is acknowledged
	BootID   string             `json:"boot,omitempty"`
	UptimeUS int64              `json:"uptime_us,omitempty"`
	WallMS   int64              `json:"wall_ms,omitempty"`
	Event    *agentlink.Event   `json:"event,omitempty"`
	Samples  *agentlink.Samples `json:"samples,omitempty"`
}

// Spool is an open spool. It is safe for concurrent use; one process at a time may
// have it open.
type Spool struct {
	cfg     Config
	changed chan struct{}

	mu      sync.Mutex
	f       *os.File
	size    int64
	next    uint64 // id of the next record
	taken   uint64
	rewrite int64
	queue   []line // not taken yet, oldest first
	dropped uint64 // records dropped since the file was opened
}

// Open reads the spool at the path, or makes it. A torn last line, which a crash
// leaves, is cut off; damage before it costs the damaged records only, because
// what a spool holds is worth telling but nothing is decided by it.
func Open(cfg Config) (*Spool, error) {
	if cfg.MaxRecords == 0 {
		cfg.MaxRecords = DefaultMaxRecords
	}
	f, err := os.OpenFile(cfg.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &Spool{cfg: cfg, changed: make(chan struct{}, 1), f: f, next: 1, rewrite: compactAt}
	err = s.load()
	if err == nil {
		err = syncDir(cfg.Path) // a new file must outlive a crash, or its numbers begin again
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read spool %s: %w", cfg.Path, err), f.Close())
	}
	if len(s.queue) > 0 {
		s.signal()
	}
	return s, nil
}

// Close closes the file.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.f.Close()
}

// Changed is signalled when there is something new to tell.
func (s *Spool) Changed() <-chan struct{} { return s.changed }

func (s *Spool) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Event adds an event of this instant less its age. It is on disk when it returns.
func (s *Spool) Event(e agentlink.Event) error {
	return s.add(line{Event: &e}, e.Age)
}

// Samples adds readings whose interval ended at this instant less their age.
func (s *Spool) Samples(x agentlink.Samples) error {
	return s.add(line{Samples: &x}, x.Age)
}

func (s *Spool) add(l line, age time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.ID, l.BootID = s.next, s.cfg.BootID
	l.UptimeUS = (s.cfg.Uptime() - max(age, 0)).Microseconds()
	l.WallMS = s.cfg.Now().Add(-max(age, 0)).UnixMilli()
	if err := s.write(l); err != nil {
		return err
	}
	s.next++
	s.queue = append(s.queue, l)
	s.bound()
	s.signal()
	s.maybeCompact()
	return nil
}

// bound drops the oldest samples, and only then events, while there are too many.
func (s *Spool) bound() {
	for len(s.queue) > s.cfg.MaxRecords {
		drop := max(slices.IndexFunc(s.queue, func(l line) bool { return l.Samples != nil }), 0)
		// What is older than the dropped one moves up: it is little or nothing, what is
		// younger is much.
		copy(s.queue[1:drop+1], s.queue[:drop])
		s.queue = s.queue[1:]
		s.dropped++
	}
}

// Dropped is how many records the bound has cost since Open.
func (s *Spool) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Len is how many records wait to be taken.
func (s *Spool) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Pending returns up to n records above an id, oldest first, with their ages now.
func (s *Spool) Pending(above uint64, n int) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Record
	for _, l := range s.queue {
		if l.ID <= above {
			continue
		}
		if len(out) == n {
			break
		}
		r := Record{ID: l.ID}
		if l.Event != nil {
			e := *l.Event
			e.ID, e.Age = l.ID, s.age(l)
			r.Event = &e
		} else {
			x := *l.Samples
			x.ID, x.Age = l.ID, s.age(l)
			r.Samples = &x
		}
		out = append(out, r)
	}
	return out
}

func (s *Spool) age(l line) time.Duration {
	if l.BootID == s.cfg.BootID {
		return max(0, s.cfg.Uptime()-time.Duration(l.UptimeUS)*time.Microsecond)
	}
	return max(0, s.cfg.Now().Sub(time.UnixMilli(l.WallMS)))
}

// Taken forgets the records up to and including an id. An id that was never given out
// says that an earlier file was lost: what waits would be taken for what that one held,
// and is numbered anew behind it.
func (s *Spool) Taken(through uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if through <= s.taken {
		return nil
	}
	if through >= s.next {
		return s.renumber(through)
	}
	if err := s.write(line{Taken: through}); err != nil {
		return err
	}
	s.forget(through)
	s.maybeCompact()
	return nil
}

// renumber gives what waits the ids behind one.
func (s *Spool) renumber(through uint64) error {
	if through > maxID {
		return fmt.Errorf("number the spool anew: %d is no id of a record", through)
	}
	old, taken, next := s.queue, s.taken, s.next
	s.taken, s.next = through, through+1
	s.queue = slices.Clone(old)
	for i := range s.queue {
		s.queue[i].ID = s.next
		s.next++
	}
	if err := s.compact(); err != nil {
		s.queue, s.taken, s.next = old, taken, next
		return err
	}
	s.signal()
	return nil
}

func (s *Spool) forget(through uint64) {
	s.taken = max(s.taken, through)
	i := 0
	for i < len(s.queue) && s.queue[i].ID <= through {
		i++
	}
	s.queue = s.queue[i:]
}

func (s *Spool) write(l line) error {
	text, err := encode(l)
	if err == nil {
		_, err = s.f.Write(text)
	}
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		// Half a line would spoil the next one.
		_, seek := s.f.Seek(s.size, io.SeekStart)
		return fmt.Errorf("write spool: %w", errors.Join(err, s.f.Truncate(s.size), seek))
	}
	s.size += int64(len(text))
	return nil
}

func encode(l line) ([]byte, error) {
	body, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(body), body), nil
}

func decode(text []byte) (line, bool) {
	sum, body, ok := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(" "))
	if !ok {
		return line{}, false
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.ChecksumIEEE(body) {
		return line{}, false
	}
	var l line
	err = json.Unmarshal(body, &l)
	return l, err == nil
}

func (s *Spool) load() error {
	in := bufio.NewReader(s.f)
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // nothing more, or a torn line
		}
		if err != nil {
			return err
		}
		s.size += int64(len(text))
		l, ok := decode(text)
		if !ok {
			continue
		}
		s.next = max(s.next, l.ID+1, l.Taken+1)
		if l.ID > 0 {
			s.queue = append(s.queue, l)
			continue
		}
		s.forget(l.Taken)
	}
	s.bound()
	if err := s.f.Truncate(s.size); err != nil {
		return err
	}
	_, err := s.f.Seek(s.size, io.SeekStart)
	return err
}

// maybeCompact rewrites a file that holds mostly what was taken. What it is called after
// is on disk already, so a failure is left to the next time: told to the caller, it would
// have the same thing recorded twice.
func (s *Spool) maybeCompact() {
	if s.size >= s.rewrite && s.compact() != nil {
		s.rewrite = s.size + compactAt
	}
}

// compact rewrites the file with nothing but what waits.
func (s *Spool) compact() error {
	text, err := encode(line{Taken: s.taken})
	for _, l := range s.queue {
		var one []byte
		if err == nil {
			one, err = encode(l)
		}
		text = append(text, one...)
	}
	if err != nil {
		return fmt.Errorf("compact spool: %w", err)
	}
	f, err := os.OpenFile(s.cfg.Path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("compact spool: %w", err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(s.cfg.Path+".new", s.cfg.Path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact spool: %w", err), f.Close())
	}
	old := s.f
	s.f, s.size = f, int64(len(text))
	s.rewrite = max(compactAt, 2*s.size)
	return errors.Join(syncDir(s.cfg.Path), old.Close())
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync spool folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
