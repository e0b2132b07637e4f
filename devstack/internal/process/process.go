// Package process supervises child processes: starts them, waits until they are
// ready, restarts the ones that die and stops all in reverse order.
//
// It signals nothing but its own children, by process id. It does not know what
// the children do. Children end with this process, even when it is killed.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	defaultReadyIn = 60 * time.Second
	readyPoll      = 20 * time.Millisecond
	stopGrace      = 15 * time.Second
	restartDelay   = 100 * time.Millisecond
	// A child that dies this many times in a row within shortLife has a fault
	// that another start does not cure.
	maxShortLives = 20
	shortLife     = 2 * time.Second
)

// Spec describes one child.
type Spec struct {
	// Name is shown in errors and unique among the children of a supervisor.
	Name string
	Path string
	Args []string
	// Env is added to our own environment, less what configures Tranche or a
	// Postgres client.
	Env []string
	// Log is the file that gets stdout and stderr, appended.
	Log string
	// Stop is the signal that asks for an orderly end; zero is SIGTERM.
	Stop syscall.Signal
	// User runs the child; nil: ourselves.
	User *User
	// Ready is polled until it returns nil; nil: ready once started.
	Ready func(context.Context) error
	// ReadyIn bounds the wait; zero is a minute.
	ReadyIn time.Duration
}

// User is a system account by number.
type User struct{ UID, GID int }

// Process is a supervised child, over all its restarts.
type Process struct {
	spec Spec

	mu       sync.Mutex
	pid      int // 0 between two lives
	starts   int
	stopping bool
	err      error // why it was given up
	wake     chan struct{}
	done     chan struct{} // closed when it is stopped or given up
}

// Start starts the child and waits until it is ready. The child is restarted
// whenever it ends by itself, until Stop.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	p := &Process{spec: spec, wake: make(chan struct{}), done: make(chan struct{})}
	cmd, err := p.launch()
	if err != nil {
		return nil, err
	}
	go p.supervise(cmd)
	if err := p.WaitReady(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return nil, errors.Join(err, p.Stop(stopCtx))
	}
	return p, nil
}

// Name returns the name of the spec.
func (p *Process) Name() string { return p.spec.Name }

// PID returns the process id of the present life, 0 between two.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Starts returns how often the child was started; 1 after Start.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Signal sends a signal to the present life, for tests that kill.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return fmt.Errorf("%s is not running", p.spec.Name)
	}
	if err := syscall.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// WaitReady returns once the child says it is ready, or with the reason and the
// end of its log.
func (p *Process) WaitReady(ctx context.Context) error {
	if p.spec.Ready == nil {
		return nil
	}
	limit := p.spec.ReadyIn
	if limit == 0 {
		limit = defaultReadyIn
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := p.spec.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return errors.Join(fmt.Errorf("%s ended before it was ready", p.spec.Name), p.Err())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", p.spec.Name, err, p.tail())
		}
	}
}

// Done is closed when the child is stopped or given up.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the child was given up; nil while it runs or after Stop.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Stop asks the child to end, kills it when ctx ends first, and returns when it
// is gone. It may be called again.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	first := !p.stopping
	p.stopping = true
	pid, sig := p.pid, p.spec.Stop
	if first {
		close(p.wake)
	}
	p.mu.Unlock()
	if sig == 0 {
		sig = syscall.SIGTERM
	}
	if first && pid != 0 {
		_ = syscall.Kill(pid, sig) // it may be gone already
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if pid := p.PID(); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.done
	return fmt.Errorf("%s did not end in time and was killed", p.spec.Name)
}

// supervise waits for one life after the other.
func (p *Process) supervise(cmd *exec.Cmd) {
	defer close(p.done)
	short := 0
	for {
		began := time.Now()
		waitErr := cmd.Wait()
		p.mu.Lock()
		p.pid = 0
		stopping := p.stopping
		p.mu.Unlock()
		if stopping {
			return
		}
		if short++; time.Since(began) > shortLife {
			short = 0
		}
		if short >= maxShortLives {
			p.giveUp(fmt.Errorf("%s ends again and again (%w)\n%s", p.spec.Name, errors.Join(waitErr), p.tail()))
			return
		}
		next, err := p.relaunch()
		if next == nil {
			p.giveUp(err)
			return
		}
		cmd = next
	}
}

// relaunch starts the next life; nil when it was stopped in between.
func (p *Process) relaunch() (*exec.Cmd, error) {
	select {
	case <-time.After(restartDelay):
		return p.launch()
	case <-p.wake:
		return nil, nil
	}
}

func (p *Process) giveUp(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopping {
		p.err = err
	}
}

func (p *Process) launch() (*exec.Cmd, error) {
	log, err := os.OpenFile(p.spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.spec.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(p.spec.Path, p.spec.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(environment(), p.spec.Env...)
	attributes(cmd, p.spec.User)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil
	}
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.spec.Name, err)
	}
	p.pid = cmd.Process.Pid
	p.starts++
	return cmd, nil
}

// tail returns the last lines of the log.
func (p *Process) tail() string {
	const lines, most = 15, 8 << 10
	text, err := os.ReadFile(p.spec.Log)
	if err != nil {
		return ""
	}
	text = text[max(0, len(text)-most):]
	parts := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	parts = parts[max(0, len(parts)-lines):]
	return "  " + string(bytes.Join(parts, []byte("\n  ")))
}

// Run executes a command to its end and returns its standard output.
func Run(ctx context.Context, spec Spec) ([]byte, error) {
	cmd := exec.CommandContext(ctx, spec.Path, spec.Args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(environment(), spec.Env...)
	attributes(cmd, spec.User)
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return out.Bytes(), fmt.Errorf("run %s: %w\n%s", spec.Name, err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}

// environment is ours without what would configure the children by accident.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "TRANCHE_") || strings.HasPrefix(pair, "PG")
	})
}
