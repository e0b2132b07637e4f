package containerd

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// draining is how long the output may go on after the program: what it started in the
// background may hold the stream open for ever.
const draining = 2 * time.Second

// Exec implements runtime.Driver. The program gets the container's environment, user
// and confinement. If the context ends first, it is killed.
func (d *Driver) Exec(ctx context.Context, name string, e runtime.Exec) (int, error) {
	if len(e.Args) == 0 || e.Args[0] == "" {
		return 0, runtime.Refuse(runtime.CommandMissing, "exec", name, "no program is named")
	}
	task, err := d.runningTask(ctx, "exec", name)
	if err != nil {
		return 0, err
	}
	spec, err := task.Spec(ctx)
	if err != nil {
		return 0, typed("exec", name, err)
	}
	input := &ending{reader: e.Stdin, ended: make(chan struct{})}
	process, err := task.Exec(ctx, "exec-"+strings.ToLower(rand.Text()), processOf(spec.Process, e), d.streams(e, input))
	if err != nil {
		return 0, launched("exec", name, err)
	}
	code, err := d.follow(ctx, process, input)
	return code, launched("exec", name, err)
}

// runningTask returns the task of a container that runs.
func (d *Driver) runningTask(ctx context.Context, op, name string) (client.Task, error) {
	c, err := d.client.LoadContainer(ctx, name)
	if err != nil {
		return nil, typed(op, name, err)
	}
	task, err := c.Task(ctx, nil)
	if err != nil {
		return nil, typed(op, name, err)
	}
	state, err := task.Status(ctx)
	if err != nil {
		return nil, typed(op, name, err)
	}
	if state.Status != client.Running {
		return nil, runtime.Refuse(runtime.NotFound, op, name, "no such container runs: it is %s", state.Status)
	}
	return task, nil
}

// processOf is the container's own process with other arguments.
func processOf(own *specs.Process, e runtime.Exec) *specs.Process {
	p := *own
	p.Terminal, p.Args = false, e.Args
	p.Env = slices.DeleteFunc(slices.Clone(own.Env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := e.Env[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		p.Env = append(p.Env, name+"="+e.Env[name])
	}
	return &p
}

func (d *Driver) streams(e runtime.Exec, input *ending) cio.Creator {
	var stdin io.Reader
	if e.Stdin != nil {
		stdin = input
	}
	output := func(w io.Writer) io.Writer {
		if w == nil {
			return io.Discard
		}
		return w
	}
	return cio.NewCreator(cio.WithStreams(stdin, output(e.Stdout), output(e.Stderr)), cio.WithFIFODir(d.pipeDir()))
}

func (d *Driver) pipeDir() string { return filepath.Join(d.cfg.StateDir, "fifo") }

// ending is a reader that tells when it has nothing more.
type ending struct {
	reader io.Reader
	once   sync.Once
	ended  chan struct{}
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.reader.Read(p)
	if err != nil {
		e.once.Do(func() { close(e.ended) })
	}
	return n, err
}

// follow starts a process and stays until it has ended and is removed.
func (d *Driver) follow(ctx context.Context, process client.Process, input *ending) (int, error) {
	always := context.WithoutCancel(ctx)
	exit, err := process.Wait(always)
	if err != nil {
		return 0, err
	}
	if err := process.Start(ctx); err != nil {
		_, _ = process.Delete(always) // the error of the start says more
		return 0, err
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-input.ended:
			_ = process.CloseIO(always, client.WithStdinCloser) // else the program waits for more; if it is gone, fine
		case <-over:
		}
	}()
	var status client.ExitStatus
	select {
	case status = <-exit:
	case <-ctx.Done():
		if err := process.Kill(always, syscall.SIGKILL); err != nil && !errdefs.IsNotFound(err) {
			return 0, err
		}
		<-exit
		d.drain(process)
		_, err := process.Delete(always)
		return 0, errors.Join(ctx.Err(), err)
	}
	d.drain(process)
	if _, err := process.Delete(always); ignoreGone(err) != nil {
		return 0, err
	}
	code, _, err := status.Result()
	return int(code), err
}

// drain waits for the last words of a process.
func (d *Driver) drain(process client.Process) {
	done := make(chan struct{})
	go func() { process.IO().Wait(); close(done) }()
	timer := d.cfg.Clock.NewTimer(draining)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}
