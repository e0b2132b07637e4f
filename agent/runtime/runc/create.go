package runc

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/nodeagent/process"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// create starts the shim and waits until it has made the container.
func (d *Driver) create(ctx context.Context, s runtime.Spec) (process.Identity, error) {
	dir := d.dir(s.Name)
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return process.Identity{}, err
	}
	defer lock.Close()
	// Somebody may be looking whether a shim lives, for a moment.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return process.Identity{}, refuse(runtime.Broken, "start", s.Name, "lock the container's shim").Because(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return process.Identity{}, err
	}
	defer r.Close()
	own, err := os.OpenFile(filepath.Join(dir, "shim.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		_ = w.Close()
		return process.Identity{}, err
	}
	args := append(d.cfg.Shim[1:len(d.cfg.Shim):len(d.cfg.Shim)],
		"--dir", dir, "--runc", d.cfg.Runc, "--root", d.runcRoot(), "--name", s.Name,
		"--log", s.Extra.Log, "--log-limit", strconv.FormatInt(d.cfg.LogLimit, 10))
	cmd := exec.Command(d.cfg.Shim[0], args...) //nolint:gosec // the agent's own binary
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	cmd.Stdout, cmd.Stderr = own, own
	cmd.ExtraFiles = []*os.File{w, lock} // reportFD, lockFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_, _ = w.Close(), own.Close()
	if err != nil {
		return process.Identity{}, refuse(runtime.Broken, "start", s.Name, "start the container's shim").Because(err)
	}
	go func() { _ = cmd.Wait() }() // it is nobody's child once the agent ends
	return d.hear(ctx, s.Name, r)
}

// hear waits for the shim's report.
func (d *Driver) hear(ctx context.Context, name string, from *os.File) (process.Identity, error) {
	stop := context.AfterFunc(ctx, func() { _ = from.Close() })
	defer stop()
	var said report
	if err := json.NewDecoder(from).Decode(&said); err != nil {
		if ctx.Err() != nil {
			return process.Identity{}, refuse(runtime.Broken, "start", name, "the start was given up").Because(context.Cause(ctx))
		}
		return process.Identity{}, refuse(runtime.Broken, "start", name, "the container's shim ended without a word").Because(err)
	}
	if said.Kind != "" {
		return process.Identity{}, refuse(said.Kind, "start", name, "%s", said.Detail)
	}
	return said.Init, nil
}
