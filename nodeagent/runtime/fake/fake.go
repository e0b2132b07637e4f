// Package fake is a runtime that pulls and executes nothing: a container is one
// fsynced file that survives kill -9 of the agent. Running means that the file is
// written, the slices were read back from the driver, and 50 ms have passed.
//
// It is used only where it is asked for by name; hosts that run it say that they
// are simulated. A container of an older boot has exited: its file survives a
// reboot, a process would not.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// startTakes is how long a start takes at least.
const startTakes = 50 * time.Millisecond

const suffix = ".json"

// Config opens a fake runtime.
type Config struct {
	Dir    string // made if missing
	BootID string
	// Uptime is the host's monotonic uptime in this boot.
	Uptime func() time.Duration
	Clock  clock.Clock
	// ReadBack checks with the driver that a slot exists; nil checks nothing.
	ReadBack func(ctx context.Context, name string, s gpu.Slot) error
}

// Runtime implements runtime.Driver.
type Runtime struct{ cfg Config }

var _ runtime.Driver = (*Runtime)(nil)

// Open makes the folder.
func Open(cfg Config) (*Runtime, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make container folder: %w", err)
	}
	return &Runtime{cfg}, nil
}

// file is the stored form of a container.
type file struct {
	Run       int           `json:"run"`
	Instance  string        `json:"instance"`
	State     runtime.State `json:"state"`
	Image     string        `json:"image"`
	Slots     []gpu.Slot    `json:"slots"`
	Devices   []string      `json:"devices"`
	BootID    string        `json:"boot_id"`
	StartedUS int64         `json:"started_us"`
	EndedUS   int64         `json:"ended_us"`
	ExitCode  int           `json:"exit_code"`
}

// Start implements runtime.Driver.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	old, found, err := r.read(s.Name)
	if err != nil {
		return runtime.Container{}, err
	}
	if c := r.container(s.Name, old); found && c.State == runtime.Running && c.Run == s.Run {
		return c, nil
	}
	f := file{
		Run: s.Run, Instance: s.Instance, State: runtime.Created, Image: s.Image, Slots: s.Slots, Devices: s.Devices, BootID: r.cfg.BootID,
	}
	if err := r.write(s.Name, f); err != nil {
		return runtime.Container{}, err
	}
	timer := r.cfg.Clock.NewTimer(startTakes)
	defer timer.Stop()
	for _, slot := range s.Slots {
		if r.cfg.ReadBack == nil {
			break
		}
		if err := r.cfg.ReadBack(ctx, s.Name, slot); err != nil {
			return runtime.Container{}, fmt.Errorf("read slice of %s back: %w", s.Name, err)
		}
	}
	select {
	case <-ctx.Done():
		return runtime.Container{}, fmt.Errorf("start %s: %w", s.Name, ctx.Err())
	case <-timer.C():
	}
	f.State, f.StartedUS = runtime.Running, r.cfg.Uptime().Microseconds()
	if err := r.write(s.Name, f); err != nil {
		return runtime.Container{}, err
	}
	return r.container(s.Name, f), nil
}

// Stop implements runtime.Driver.
func (r *Runtime) Stop(_ context.Context, name string) error {
	err := os.Remove(r.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.syncDir()
	}
	if err != nil {
		return fmt.Errorf("remove container %s: %w", name, err)
	}
	return nil
}

// Stats implements runtime.Driver: nothing runs, so no counter is reported.
func (r *Runtime) Stats(_ context.Context, name string) (runtime.Stats, error) {
	if err := r.running("stats", name); err != nil {
		return runtime.Stats{}, err
	}
	const none = -1
	return runtime.Stats{
		CPU: none, Throttled: none, MemoryBytes: none, MemoryLimit: none, PIDs: none, OOMKills: none,
		ReadBytes: none, WrittenBytes: none,
	}, nil
}

// Exec implements runtime.Driver: the fake runs nothing and says so.
func (r *Runtime) Exec(_ context.Context, name string, _ runtime.Exec) (int, error) {
	if err := r.running("exec", name); err != nil {
		return 0, err
	}
	return 0, runtime.Refuse(runtime.Unavailable, "exec", name, "the fake runtime executes nothing")
}

func (r *Runtime) running(op, name string) error {
	f, found, err := r.read(name)
	if err != nil {
		return err
	}
	if !found || r.container(name, f).State != runtime.Running {
		return runtime.Refuse(runtime.NotFound, op, name, "no such container runs")
	}
	return nil
}

// End makes a container exit by itself, as a tenant's process may.
func (r *Runtime) End(name string, exitCode int) error {
	f, found, err := r.read(name)
	if err != nil || !found {
		return errors.Join(err, fmt.Errorf("end container %s: found %t", name, found))
	}
	f.State, f.ExitCode, f.EndedUS = runtime.Exited, exitCode, r.cfg.Uptime().Microseconds()
	return r.write(name, f)
}

// List implements runtime.Driver.
func (r *Runtime) List(context.Context) ([]runtime.Container, error) {
	names, err := os.ReadDir(r.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var out []runtime.Container
	for _, n := range names {
		name, ok := strings.CutSuffix(n.Name(), suffix)
		if !ok {
			continue
		}
		f, found, err := r.read(name)
		if err != nil {
			return nil, err
		}
		if found {
			out = append(out, r.container(name, f))
		}
	}
	return out, nil
}

// container turns the file into what is true of it in this boot.
func (r *Runtime) container(name string, f file) runtime.Container {
	c := runtime.Container{
		Name: name, Run: f.Run, Instance: f.Instance, State: f.State, Slots: f.Slots, BootID: f.BootID, ExitCode: f.ExitCode,
		Started: time.Duration(f.StartedUS) * time.Microsecond, Ended: time.Duration(f.EndedUS) * time.Microsecond,
	}
	if f.BootID != r.cfg.BootID && c.State == runtime.Running {
		c.State = runtime.Exited
	}
	return c
}

func (r *Runtime) path(name string) string { return filepath.Join(r.cfg.Dir, name+suffix) }

func (r *Runtime) read(name string) (file, bool, error) {
	text, err := os.ReadFile(r.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return file{}, false, nil
	}
	var f file
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return file{}, false, fmt.Errorf("read container %s: %w", name, err)
	}
	return f, true, nil
}

// write replaces the file as a whole, so that a crash leaves the old or the new.
func (r *Runtime) write(name string, f file) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write container %s: %w", name, err)
	}
	temp := r.path(name) + ".new"
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write container %s: %w", name, err)
	}
	_, err = out.Write(text)
	if err == nil {
		err = out.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("write container %s: %w", name, err)
	}
	if err := os.Rename(temp, r.path(name)); err != nil {
		return fmt.Errorf("write container %s: %w", name, err)
	}
	return r.syncDir()
}

func (r *Runtime) syncDir() error {
	d, err := os.Open(r.cfg.Dir)
	if err != nil {
		return fmt.Errorf("sync container folder: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}
