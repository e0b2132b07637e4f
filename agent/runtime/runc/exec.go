package runc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/process"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// drain is how long output may go on after a cancelled exec.
const drain = 2 * time.Second

// Exec implements runtime.Driver. The program has the container's environment, with
// that of the exec over it, and its confinement. It returns when the program has ended
// and nothing that it left in the background holds its output. A context that ends
// ends the program.
func (d *Driver) Exec(ctx context.Context, name string, e runtime.Exec) (int, error) {
	if len(e.Args) == 0 || e.Args[0] == "" {
		return 0, refuse(runtime.CommandMissing, "exec", name, "no program was named")
	}
	if _, err := d.running("exec", name); err != nil {
		return 0, err
	}
	spec, err := d.process(name, e)
	if err != nil {
		return 0, refuse(runtime.Broken, "exec", name, "read the spec of the container").Because(err)
	}
	temp, err := os.MkdirTemp(d.dir(name), "exec-")
	if err != nil {
		return 0, refuse(runtime.Broken, "exec", name, "make a folder for the exec").Because(err)
	}
	defer os.RemoveAll(temp)
	given, give, err := os.Pipe()
	if err != nil {
		return 0, refuse(runtime.Broken, "exec", name, "make pipes").Because(err)
	}
	defer given.Close()
	// The environment may be the caller's secret: runc reads it from a pipe.
	log, pidFile := filepath.Join(temp, "log"), filepath.Join(temp, "pid")
	cmd := command(ctx, d.cfg.Runc, d.runcRoot(), log, "exec", "--process", "/proc/self/fd/3", "--pid-file", pidFile, name)
	cmd.ExtraFiles = []*os.File{given}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = e.Stdout, e.Stderr, drain
	cmd.Cancel = func() error { return d.cancel(name, pidFile, cmd) }
	if err := feed(cmd, e.Stdin); err != nil {
		return 0, errors.Join(refuse(runtime.Broken, "exec", name, "make pipes").Because(err), give.Close())
	}
	if err := cmd.Start(); err != nil {
		return 0, errors.Join(refuse(runtime.Broken, "exec", name, "run runc").Because(err), give.Close())
	}
	go func() { _, _ = give.Write(spec); _ = give.Close() }()
	return d.result(ctx, name, log, cmd)
}

func (d *Driver) result(ctx context.Context, name, log string, cmd *exec.Cmd) (int, error) {
	err := cmd.Wait()
	if ctx.Err() != nil {
		return 0, refuse(runtime.Broken, "exec", name, "the program was ended because its caller left").Because(context.Cause(ctx))
	}
	if text := complaint(log); text != "" {
		if _, gone := d.running("exec", name); gone != nil {
			return 0, gone
		}
		return 0, refuse(kindOf(text), "exec", name, "%s", text)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return 0, refuse(runtime.Broken, "exec", name, "run runc").Because(err)
	}
	return cmd.ProcessState.ExitCode(), nil
}

// feed connects the input. It is not left to os/exec, which would wait for the end of
// an input that nobody reads any more.
func feed(cmd *exec.Cmd, from io.Reader) error {
	if from == nil {
		return nil
	}
	to, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
	return nil
}

// cancel ends the program itself: runc would leave it behind.
func (d *Driver) cancel(name, pidFile string, cmd *exec.Cmd) error {
	text, err := os.ReadFile(pidFile)
	if err == nil {
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		id, gone := process.Of(pid)
		if of, err := cgroup.OfPID(pid); gone == nil && err == nil && of == cgroup.Path(name) {
			return id.Signal(syscall.SIGKILL)
		}
	}
	return cmd.Process.Kill()
}

// process is the container's own process with other arguments.
func (d *Driver) process(name string, e runtime.Exec) ([]byte, error) {
	var spec specs.Spec
	if err := readJSON(filepath.Join(d.dir(name), bundleDir, "config.json"), &spec); err != nil {
		return nil, err
	}
	p := spec.Process
	p.Args = e.Args
	for _, key := range slices.Sorted(maps.Keys(e.Env)) {
		p.Env = slices.DeleteFunc(p.Env, func(pair string) bool { return strings.HasPrefix(pair, key+"=") })
		p.Env = append(p.Env, key+"="+e.Env[key])
	}
	return json.Marshal(p)
}
