package runc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/nodeagent/process"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Stop implements runtime.Driver. It may be repeated after any interruption. The log
// of the container and its predecessor stay: they are the caller's.
func (d *Driver) Stop(ctx context.Context, name string) error {
	if !names.MatchString(name) {
		return nil
	}
	defer d.lock(name)()
	if err := d.remove(ctx, name); err != nil {
		return err
	}
	d.collect(ctx)
	return nil
}

// collect removes unused images if they are too many. What hinders it hinders no
// container.
func (d *Driver) collect(ctx context.Context) {
	if freed, err := d.cfg.Images.GC(ctx); err != nil {
		d.cfg.Log.Warn("unused images not removed", "freed_bytes", freed, "error", err)
	}
}

// remove ends a container and removes every trace, from the outside in: processes,
// mounts, groups, files, the record.
func (d *Driver) remove(ctx context.Context, name string) error {
	r, found, err := d.record(name)
	if err != nil {
		return refuse(runtime.Broken, "stop", name, "read the record of a container").Because(err)
	}
	if found && r.BootID == d.cfg.BootID {
		if err := d.end(ctx, r); err != nil {
			return err
		}
	}
	if err := d.cfg.Images.Release(name); err != nil {
		return err
	}
	if err := d.tree.Remove(cgroup.Path(name)); err != nil {
		return refuse(runtime.Broken, "stop", name, "remove its cgroups").Because(err)
	}
	return d.forget(name)
}

// forget removes the files, the record last.
func (d *Driver) forget(name string) error {
	dir := d.dir(name)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.Name() != recordFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = syncDir(d.containers())
	}
	if err != nil {
		return refuse(runtime.Broken, "stop", name, "remove its files").Because(err)
	}
	return nil
}

// How long what was killed may take to be gone, and a shim to report it.
const (
	dying   = 10 * time.Second
	closing = 5 * time.Second
)

// end ends every process of a container of this boot.
func (d *Driver) end(ctx context.Context, r record) error {
	dir := d.dir(r.Name)
	var id process.Identity
	if err := readJSON(filepath.Join(dir, initFile), &id); err == nil && id.Alive() {
		if d.container(r).State == runtime.Running {
			d.ask(ctx, id)
		}
		if err := d.kill(ctx, r.Name, id); err != nil {
			return err
		}
	}
	if err := d.endShim(ctx, r.Name); err != nil {
		return err
	}
	if exists(filepath.Join(d.runcRoot(), r.Name)) {
		if err := d.runc(ctx, "stop", r.Name, "delete", "--force", r.Name); err != nil {
			return err
		}
	}
	pids, err := d.tree.PIDs(cgroup.Path(r.Name))
	if err != nil {
		return refuse(runtime.Broken, "stop", r.Name, "list its processes").Because(err)
	}
	for _, pid := range pids {
		if id, err := process.Of(pid); err == nil {
			if err := d.kill(ctx, r.Name, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask gives the main process its grace.
func (d *Driver) ask(ctx context.Context, id process.Identity) {
	if id.Signal(syscall.SIGTERM) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Grace)
	defer cancel()
	_ = id.Await(ctx, d.cfg.Clock) // what does not end is killed
}

func (d *Driver) kill(ctx context.Context, name string, id process.Identity) error {
	ctx, cancel := context.WithTimeout(ctx, dying)
	defer cancel()
	if err := id.Kill(ctx, d.cfg.Clock); err != nil {
		return refuse(runtime.Broken, "stop", name, "process %d does not end", id.PID).Because(err)
	}
	return nil
}

// endShim waits for the shim, which ends by itself after the main process. One that
// is still making the container is told to give up.
func (d *Driver) endShim(ctx context.Context, name string) error {
	lock := filepath.Join(d.dir(name), lockFile)
	for _, signal := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		if !held(lock) {
			return nil
		}
		if signal == 0 && !exists(filepath.Join(d.dir(name), initFile)) {
			continue
		}
		if signal != 0 {
			d.signalShim(lock, signal)
		}
		if d.released(ctx, lock) {
			return nil
		}
	}
	return refuse(runtime.Broken, "stop", name, "its shim does not end")
}

func (d *Driver) signalShim(lock string, signal syscall.Signal) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return
	}
	if id, err := process.Of(pid); err == nil {
		_ = id.Signal(signal) // it may be gone by now
	}
}

// released waits until nobody holds the lock.
func (d *Driver) released(ctx context.Context, lock string) bool {
	deadline := d.cfg.Clock.Now().Add(closing)
	for held(lock) {
		if ctx.Err() != nil || d.cfg.Clock.Now().After(deadline) {
			return false
		}
		timer := d.cfg.Clock.NewTimer(5 * time.Millisecond)
		<-timer.C()
	}
	return true
}
