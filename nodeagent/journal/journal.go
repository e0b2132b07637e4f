// Package journal owns what an agent remembers across its own death: one
// append-only, fsynced, versioned file with one entry before and after each driver
// or runtime call, carrying the full tuple of the slice concerned.
//
// It does not know what a step means or what to do about it (nodeagent). Instants
// are microseconds of the host's uptime within the entry's boot, never wall-clock
// time. Entries hold no secret.
package journal

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
	"strconv"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
)

// format is the version in the file's first line; another one is refused.
const format = 1

// Step says how far an assignment is. Each is written before the call it names, or
// after the call whose success it records.
type Step string

// The steps, in their usual order.
const (
	Carve   Step = "carve"   // slices are about to be made
	Carved  Step = "carved"  // they exist, read back
	Start   Step = "start"   // the container is about to be started
	Running Step = "running" // it runs since StartedUS
	Failed  Step = "failed"  // given up for Reason; what exists stays
	Ended   Step = "ended"   // the run is over
	Stop    Step = "stop"    // under a tombstone: the container is about to be ended
	Remove  Step = "remove"  // the slices are about to be removed
	Gone    Step = "gone"    // proven: nothing is left
)

// Slot is one slot of an assignment with what was read back from the driver.
type Slot struct {
	Slot   gpu.Slot  `json:"slot"`
	PCI    string    `json:"pci,omitempty"`
	Device string    `json:"device,omitempty"` // "" until carved
	Memory units.MiB `json:"memory_mib,omitempty"`
	SMs    int       `json:"sms,omitempty"`
}

// Entry is the state of one assignment after a step. The last entry of an
// assignment is what is known of it.
type Entry struct {
	Step       Step          `json:"step"`
	Assignment id.Assignment `json:"assignment"`
	Fence      int64         `json:"fence"`
	Timeline   int64         `json:"timeline"`
	Instance   id.Instance   `json:"instance"`
	Run        int           `json:"run"`
	BootID     string        `json:"boot_id"`
	Slots      []Slot        `json:"slots,omitempty"`
	Image      string        `json:"image,omitempty"`
	Command    []string      `json:"command,omitempty"`
	// Env is the plain environment; secrets are never written.
	Env        map[string]string `json:"env,omitempty"`
	VCPU       int               `json:"vcpu,omitempty"`
	RAM        units.MiB         `json:"ram_mib,omitempty"`
	Shm        units.MiB         `json:"shm_mib,omitempty"`
	Org        id.Org            `json:"org,omitzero"`
	Name       string            `json:"name,omitempty"`
	Ports      []Port            `json:"ports,omitempty"`
	HasSecrets bool              `json:"has_secrets,omitempty"`
	// StartedUS and EndedUS are set from Running and Ended on; 0 if unknown.
	StartedUS int64  `json:"started_us,omitempty"`
	EndedUS   int64  `json:"ended_us,omitempty"`
	ExitCode  int    `json:"exit_code,omitempty"`
	Code      string `json:"code,omitempty"` // reason
	Detail    string `json:"detail,omitempty"`
	// Credited: the platform ended the run, not the tenant.
	Credited bool `json:"credited,omitempty"`
	// Halt: the run is over for us, and its container is about to be ended.
	Halt bool `json:"halt,omitempty"`
	// Scrubbed is the evidence that the slices were clean before they were removed.
	Scrubbed string `json:"scrubbed,omitempty"`
}

// Port is a port of the container that is published on the host.
type Port struct {
	Container int    `json:"container"`
	Host      int    `json:"host"`
	Protocol  string `json:"protocol"`
}

// keepGone is how many finished assignments a compaction keeps, newest first: their
// fences still refuse delayed orders.
const keepGone = 1024

// compactAt is the size, in bytes, from which a journal is rewritten when it has
// grown to four times what the last rewriting left.
const compactAt = 1 << 20

// File is an open journal. It is not safe for concurrent use.
type File struct {
	path string
	f    *os.File
	size int64
	next int64 // rewrite at this size
}

// Begun says whether there is a journal at path, damaged or not: a file whose first
// line is whole.
func Begun(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open journal: %w", err)
	}
	_, good, err := read(f)
	return good > 0 || err != nil, f.Close()
}

// Open reads the journal at path, or makes it, and returns the last entry of each
// assignment in the order of their first. A torn last line, which a crash leaves,
// is cut off; damage before it fails: what was in flight would not be known.
func Open(path string) (*File, []Entry, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	entries, good, err := read(f)
	if err == nil {
		err = f.Truncate(good)
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	j := &File{path: path, f: f, size: good, next: compactAt}
	if err == nil && good == 0 {
		err = j.write(header{Format: format})
	}
	if err == nil {
		err = syncDir(path)
	}
	if err == nil && j.size > compactAt {
		entries = live(entries)
		err = j.compact(entries)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read journal %s: %w", path, err), j.f.Close())
	}
	return j, entries, nil
}

type header struct {
	Format int `json:"format"`
}

// Append writes an entry and returns when it is on disk.
func (j *File) Append(e Entry) error {
	if err := j.write(e); err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	if j.size < j.next {
		return nil
	}
	if _, err := j.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	entries, _, err := read(j.f)
	if err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	return j.compact(live(entries))
}

// Close closes the file.
func (j *File) Close() error { return j.f.Close() }

func (j *File) write(v any) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(line); err != nil {
		return err
	}
	j.size += int64(len(line))
	return j.f.Sync()
}

// encode makes one line: checksum, space, JSON, newline.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(body), body), nil
}

func decode(line []byte, v any) error {
	sum, body, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	if !ok {
		return errors.New("no checksum")
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil || uint32(want) != crc32.ChecksumIEEE(body) {
		return errors.New("wrong checksum")
	}
	return json.Unmarshal(body, v)
}

// read returns the last entries and the length of the good part.
func read(f *os.File) ([]Entry, int64, error) {
	var entries []Entry
	place := map[id.Assignment]int{}
	var good int64
	in := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, good, nil // nothing more, or a torn line
		}
		if err != nil {
			return nil, 0, err
		}
		var e Entry
		var h header
		if n == 1 {
			err = decode(line, &h)
		} else {
			err = decode(line, &e)
		}
		if err != nil {
			if _, more := in.Peek(1); errors.Is(more, io.EOF) {
				return entries, good, nil // the last line never got to disk whole
			}
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		if n == 1 && h.Format != format {
			return nil, 0, fmt.Errorf("format %d, this agent writes %d", h.Format, format)
		}
		good += int64(len(line))
		if n == 1 {
			continue
		}
		if i, ok := place[e.Assignment]; ok {
			entries[i] = e
			continue
		}
		place[e.Assignment] = len(entries)
		entries = append(entries, e)
	}
}

// compact writes a journal of these entries alone and swaps it in: after a crash
// either the old or the new one is there.
func (j *File) compact(entries []Entry) error {
	text, err := encode(header{Format: format})
	for _, e := range entries {
		var line []byte
		if err == nil {
			line, err = encode(e)
		}
		text = append(text, line...)
	}
	if err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	f, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("compact journal: %w", err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact journal: %w", err), f.Close())
	}
	old := j.f
	j.f, j.size = f, int64(len(text))
	j.next = max(compactAt, 4*j.size)
	return errors.Join(syncDir(j.path), old.Close())
}

// live drops the oldest finished assignments.
func live(entries []Entry) []Entry {
	gone := 0
	for _, e := range entries {
		if e.Step == Gone {
			gone++
		}
	}
	var out []Entry
	for _, e := range entries {
		if e.Step == Gone {
			if gone--; gone >= keepGone {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync journal folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
