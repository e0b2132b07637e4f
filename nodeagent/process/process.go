// Package process names processes of the host by number and start time, and
// signals them without ever hitting another one that got the same number. It
// owns no process. Start times are clock ticks since boot, as the kernel counts.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
)

// ErrGone says that the process has ended, or that its number is another's now.
var ErrGone = errors.New("process is gone")

// Identity is one process of one boot. The zero Identity is nobody.
type Identity struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // ticks since boot
}

// String is for people.
func (i Identity) String() string {
	return strconv.Itoa(i.PID) + "@" + strconv.FormatUint(i.Started, 10)
}

// Of names the process that has the number now; ErrGone if none has. A process
// that ended but was not collected by its parent counts as gone; one whose first
// thread ended while others run does not.
func Of(pid int) (Identity, error) {
	if pid <= 0 {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, ErrGone)
	}
	st, err := readStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, err)
	}
	if st.ended() && ended(pid, stat.ended) {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, ErrGone)
	}
	return Identity{PID: pid, Started: st.started}, nil
}

// Ending says that every thread is on its way out: what the process holds is
// being released, and it runs none of its own code any more.
func (i Identity) Ending() bool { return !i.Alive() || ended(i.PID, stat.ending) }

// ended says whether all threads of a process are as asked.
func ended(pid int, is func(stat) bool) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "task")
	threads, err := os.ReadDir(dir)
	if err != nil {
		return isGone(err)
	}
	for _, t := range threads {
		st, err := readStat(filepath.Join(dir, t.Name(), "stat"))
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil || !is(st) {
			return false
		}
	}
	return true
}

func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// stat is what the kernel says about a thread.
type stat struct {
	state   string
	flags   uint64
	started uint64
}

// exiting is the kernel's mark of a thread that is on its way out.
const exiting = 0x4

func (s stat) ended() bool  { return s.state == "Z" || s.state == "X" }
func (s stat) ending() bool { return s.ended() || s.flags&exiting != 0 }

// readStat reads a stat file. The name in parentheses may itself hold spaces and
// parentheses.
func readStat(path string) (stat, error) {
	raw, err := os.ReadFile(path)
	if isGone(err) {
		return stat{}, ErrGone
	}
	if err != nil {
		return stat{}, err
	}
	text := string(raw)
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return stat{}, errors.New("stat has no name")
	}
	fields := strings.Fields(text[end+1:])
	const stateField, flagsField, startField = 0, 6, 19 // the 3rd, 9th and 22nd of the whole line
	if len(fields) <= startField {
		return stat{}, errors.New("stat is too short")
	}
	flags, errFlags := strconv.ParseUint(fields[flagsField], 10, 64)
	started, errStart := strconv.ParseUint(fields[startField], 10, 64)
	if err := errors.Join(errFlags, errStart); err != nil {
		return stat{}, fmt.Errorf("read stat: %w", err)
	}
	return stat{state: fields[stateField], flags: flags, started: started}, nil
}

// Alive says whether this very process still runs.
func (i Identity) Alive() bool {
	now, err := Of(i.PID)
	return err == nil && now == i
}

// Signal sends a signal to this very process: the number is pinned first and the
// start time compared then, so that a reused number is never hit. ErrGone if it
// has ended.
func (i Identity) Signal(s syscall.Signal) error {
	p, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("open process %s: %w", i, err)
	}
	defer func() { _ = p.Release() }()
	if !i.Alive() {
		return fmt.Errorf("signal process %s: %w", i, ErrGone)
	}
	err = p.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %s: %w", i, ErrGone)
	}
	if err != nil {
		return fmt.Errorf("signal process %s: %w", i, err)
	}
	return nil
}

// lookAgain is how often Await looks.
const lookAgain = 20 * time.Millisecond

// Await returns when the process has ended, or with the context's error.
func (i Identity) Await(ctx context.Context, c clock.Clock) error {
	for i.Alive() {
		timer := c.NewTimer(lookAgain)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for the end of process %s: %w", i, ctx.Err())
		}
	}
	return nil
}

// Kill ends the process at once and waits for its end; it succeeds if it had ended.
func (i Identity) Kill(ctx context.Context, c clock.Clock) error {
	if err := i.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return i.Await(ctx, c)
}
