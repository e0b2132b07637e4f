package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Process is a worker that runs, and the pipe to it.
type Process interface {
	io.ReadWriteCloser
	PID() int
	// Kill asks for its end and does not wait.
	Kill() error
	// Wait returns when it has ended, which may be never. Several may wait.
	Wait() error
}

// Start starts a worker that leaves GPUs alone.
type Start func(excluded []string) (Process, error)

// ExcludeFlag is the flag by which a worker is told what to leave alone; its value is
// UUIDs with commas between.
const ExcludeFlag = "--exclude-gpu"

// Command starts workers as a program of their own, with the pipe as standard input and
// output. The worker ends by itself when its pipe does, so it does not outlive its
// parent unless it is stuck.
func Command(path string, args ...string) Start {
	return func(excluded []string) (Process, error) {
		if len(excluded) > 0 {
			args := append(args[:len(args):len(args)], ExcludeFlag+"="+strings.Join(excluded, ","))
			return launch(exec.Command(path, args...)) //nolint:gosec // the agent's own program
		}
		return launch(exec.Command(path, args...)) //nolint:gosec // the agent's own program
	}
}

func launch(cmd *exec.Cmd) (Process, error) {
	cmd.Stderr = os.Stderr
	// A signal to the agent's group is the agent's to act on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start gpu worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start gpu worker: %w", err), in.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start gpu worker: %w", err), in.Close(), out.Close())
	}
	p := &program{cmd: cmd, in: in, out: out, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		p.end = cmd.Wait()
	}()
	return p, nil
}

type program struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	gone chan struct{}
	end  error // once gone
}

func (p *program) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p *program) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *program) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }
func (p *program) PID() int                    { return p.cmd.Process.Pid }
func (p *program) Kill() error                 { return p.cmd.Process.Kill() }

func (p *program) Wait() error {
	<-p.gone
	return p.end
}
