package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/durable"
	"github.com/tranche-cloud/tranche/nodeagent/process"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

const (
	recordFile = "record.json"
	initFile   = "init.json"
	exitFile   = "exit.json"
	lockFile   = "shim.lock"
	bundleDir  = "bundle"
)

// record is the stored form of a container. It holds no secret and no login.
type record struct {
	Name     string     `json:"name"`
	Run      int        `json:"run"`
	Instance string     `json:"instance"`
	Slots    []gpu.Slot `json:"slots"`
	BootID   string     `json:"boot_id"`
	IDBase   uint32     `json:"id_base"`
	Digest   string     `json:"digest,omitempty"`
	// Started is the uptime just before runc was told to start; 0 if it was not.
	Started time.Duration `json:"started_ns"`
}

// ending is what the shim writes when the main process has ended.
type ending struct {
	Code  int           `json:"code"`
	Ended time.Duration `json:"ended_ns"`
	OOM   bool          `json:"oom"`
}

// unseen is the exit code of a process whose end nobody saw.
const unseen = 255

func (d *Driver) record(name string) (record, bool, error) {
	var r record
	err := readJSON(filepath.Join(d.dir(name), recordFile), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	return r, err == nil, err
}

func (d *Driver) save(r record) error {
	return writeJSON(filepath.Join(d.dir(r.Name), recordFile), r)
}

// settle is how long the shim may take from the end of the process to its report.
const settle = time.Second

// container turns a record into what is true of it now.
func (d *Driver) container(r record) runtime.Container {
	c := runtime.Container{
		Name: r.Name, Run: r.Run, Instance: r.Instance, State: runtime.Created, Slots: r.Slots, BootID: r.BootID, Digest: r.Digest,
	}
	dir := d.dir(r.Name)
	if r.Started == 0 {
		return c
	}
	if r.BootID != d.cfg.BootID {
		c.Started = r.Started
		return ended(c, dir)
	}
	if _, err := os.Stat(filepath.Join(d.runcRoot(), r.Name, "exec.fifo")); err == nil {
		return c // runc removes it when it lets the program run
	}
	c.Started = r.Started
	deadline := d.cfg.Clock.Now().Add(settle)
	for {
		var id process.Identity
		if err := readJSON(filepath.Join(dir, initFile), &id); err == nil && id.Alive() {
			c.State, c.PID, c.Cgroup = runtime.Running, id.PID, cgroup.Path(r.Name)
			if stats, err := d.tree.Stats(c.Cgroup); err == nil {
				c.OOM = stats.OOMKills > 0
			}
			return c
		}
		if exists(filepath.Join(dir, exitFile)) || !held(filepath.Join(dir, lockFile)) || d.cfg.Clock.Now().After(deadline) {
			return ended(c, dir)
		}
		timer := d.cfg.Clock.NewTimer(5 * time.Millisecond)
		<-timer.C()
	}
}

// ended fills in how a container ended, if anybody saw it.
func ended(c runtime.Container, dir string) runtime.Container {
	c.State, c.ExitCode = runtime.Exited, unseen
	var e ending
	if err := readJSON(filepath.Join(dir, exitFile), &e); err == nil {
		c.ExitCode, c.Ended, c.OOM = e.Code, e.Ended, e.OOM
	}
	return c
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// held reports whether a shim lives.
func held(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

func readJSON(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// writeJSON replaces a file as a whole and durably.
func writeJSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := durable.Replace(name, text); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
