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
// that ended but was not collected by its parent counts as gone.
func Of(pid int) (Identity, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || pid <= 0 {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	state, started, err := parseStat(string(raw))
	if err != nil {
		return Identity{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	if state == "Z" || state == "X" {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, ErrGone)
	}
	return Identity{PID: pid, Started: started}, nil
}

// parseStat reads state and start time of /proc/PID/stat. The name in parentheses
// may itself hold spaces and parentheses.
func parseStat(text string) (state string, started uint64, err error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return "", 0, errors.New("stat has no name")
	}
	fields := strings.Fields(text[end+1:])
	const stateField, startField = 0, 19 // the third and the 22nd of the whole line
	if len(fields) <= startField {
		return "", 0, errors.New("stat is too short")
	}
	started, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("start time: %w", err)
	}
	return fields[stateField], started, nil
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
