package runc

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/agent/runtime/logfile"
	"github.com/tranche-cloud/tranche/nodeagent/process"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// The descriptors that a shim is born with.
const (
	reportFD = 3 // one report, when the container is made or could not be
	lockFD   = 4 // locked already: it is held from before the shim's first instruction
)

// report is what a shim tells the agent that started it.
type report struct {
	Init   process.Identity `json:"init"`
	Kind   runtime.Kind     `json:"kind,omitempty"`
	Detail string           `json:"detail,omitempty"`
}

type shim struct {
	dir, binary, root, name, log string
	limit                        int64
}

// Shim is the process beside a container. The agent's binary runs it under the hidden
// command of Config.Shim, with the arguments that follow. It returns when the
// container has ended and its end is written down. A context that ends before the
// container is made makes the shim give up.
func Shim(ctx context.Context, args []string) error {
	var s shim
	flags := flag.NewFlagSet("shim", flag.ContinueOnError)
	flags.StringVar(&s.dir, "dir", "", "folder of the container")
	flags.StringVar(&s.binary, "runc", "", "runc")
	flags.StringVar(&s.root, "root", "", "state of runc")
	flags.StringVar(&s.name, "name", "", "container")
	flags.StringVar(&s.log, "log", "", "log file")
	flags.Int64Var(&s.limit, "log-limit", 0, "bytes")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read shim arguments: %w", err)
	}
	unix.CloseOnExec(reportFD)
	unix.CloseOnExec(lockFD)
	to := os.NewFile(reportFD, "report")
	if to == nil || os.WriteFile(filepath.Join(s.dir, lockFile), []byte(strconv.Itoa(os.Getpid())), 0o600) != nil {
		return errors.New("run shim: it is started by the agent alone")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	return s.run(ctx, to)
}

func (s shim) run(ctx context.Context, to *os.File) error {
	out, err := logfile.Open(s.log, s.limit)
	if err != nil {
		return s.fail(to, refuse(runtime.Broken, "start", s.name, "open the log").Because(err))
	}
	defer out.Close()
	made, err := s.create(ctx)
	if err != nil {
		return s.fail(to, err)
	}
	copied := make(chan struct{}, len(made.streams))
	for _, stream := range made.streams {
		go func() {
			_, _ = io.Copy(out, stream) // the log never fails, it drops
			copied <- struct{}{}
		}()
	}
	// An agent that died meanwhile is no reason to stop: the next one finds the file.
	_ = errors.Join(json.NewEncoder(to).Encode(report{Init: made.init}), to.Close())
	e := ending{Code: await(made.init.PID), Ended: uptime()}
	if tree, err := cgroup.Open(""); err == nil {
		if stats, err := tree.Stats(cgroup.Path(s.name)); err == nil {
			e.OOM = stats.OOMKills > 0
		}
	}
	err = writeJSON(filepath.Join(s.dir, exitFile), e)
	// With the main process its whole namespace has ended, and with it every writer.
	limit := time.After(2 * time.Second)
	for range made.streams {
		select {
		case <-copied:
		case <-limit:
			return err
		}
	}
	return err
}

func (s shim) fail(to *os.File, err error) error {
	r := report{Kind: runtime.KindOf(err), Detail: err.Error()}
	if e, ok := errors.AsType[*runtime.Error](err); ok {
		r.Detail = e.Detail
	}
	return errors.Join(err, json.NewEncoder(to).Encode(r), to.Close())
}

type made struct {
	init    process.Identity
	streams []*os.File
}

// create runs runc create, whose child becomes the shim's.
func (s shim) create(ctx context.Context) (m made, err error) {
	var ends []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return made{}, refuse(runtime.Broken, "start", s.name, "make pipes").Because(err)
		}
		m.streams, ends = append(m.streams, r), append(ends, w)
	}
	defer func() {
		for _, w := range ends {
			err = errors.Join(err, w.Close())
		}
	}()
	log, pidFile := filepath.Join(s.dir, "runc-create.log"), filepath.Join(s.dir, "init.pid")
	cmd := command(ctx, s.binary, s.root, log, "create", "--bundle", filepath.Join(s.dir, bundleDir), "--pid-file", pidFile, s.name)
	cmd.Stdout, cmd.Stderr = ends[0], ends[1]
	if err := runAsChild(cmd); err != nil {
		if ctx.Err() != nil {
			return made{}, refuse(runtime.Broken, "start", s.name, "the start was given up").Because(err)
		}
		text := complaint(log)
		return made{}, refuse(kindOf(text), "start", s.name, "%s", text).Because(err)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return made{}, refuse(runtime.Broken, "start", s.name, "read the process id").Because(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		m.init, err = process.Of(pid)
	}
	if err == nil {
		err = writeJSON(filepath.Join(s.dir, initFile), m.init)
	}
	if err != nil {
		return made{}, refuse(runtime.Broken, "start", s.name, "note the process id").Because(err)
	}
	return m, nil
}

// runAsChild runs a program that dies with this process. The kernel ties that to the
// thread that started it, so the thread is kept.
func runAsChild(cmd *exec.Cmd) error {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// await waits for the end of a child and returns its exit code, 128 + n for a signal.
func await(pid int) int {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return unseen
		case status.Signaled():
			return 128 + int(status.Signal())
		}
		return status.ExitStatus()
	}
}
