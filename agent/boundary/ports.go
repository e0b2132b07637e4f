package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/remote"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Offers is what the helper has beside a host's ports.
type Offers struct {
	Guard, Traffic, Reset bool
	// ComputeMode is the one that GPUs in mps mode are kept in; "" is left alone.
	ComputeMode string
}

// Offers asks the helper what it has beside a host's ports.
func (c *Client) Offers(ctx context.Context) (Offers, error) {
	var f facts
	err := c.call(ctx, hostFacts, nothing{}, &f, nil)
	return Offers{Guard: f.Guard, Traffic: f.Traffic, Reset: f.Reset, ComputeMode: f.ComputeMode}, err
}

// Host asks the helper what the host is and gives it with the helper's ports. dir is the
// link's own data folder.
func (c *Client) Host(ctx context.Context, dir string, log *slog.Logger) (nodeagent.Host, error) {
	var f facts
	if err := c.call(ctx, hostFacts, nothing{}, &f, nil); err != nil {
		return nodeagent.Host{}, err
	}
	h := nodeagent.Host{
		Dir: dir, Driver: c.Driver(), Carve: carver{c}, Runtime: runs{c}, RuntimeName: f.RuntimeName, Modes: f.Modes,
		VCPU: f.VCPU, RAM: f.RAM, Reach: f.Reach, BootID: f.BootID, Uptime: nodeagent.Uptime, Clock: c.clock, Log: log,
		Floors: func() []string { return c.floors(f.Floors) },
	}
	if f.Door {
		h.Door = door{c}
	}
	if f.PIDs {
		h.PIDs = func(name string) (pids []int, err error) {
			err = c.call(c.ctx, runPIDs, nameArgs{name}, &pids, nil)
			return pids, err
		}
	}
	if f.Scrub {
		h.Scrub = scrubber{c}
	}
	if f.SelfTest {
		h.SelfTest = func(ctx context.Context, uuid string) error {
			return ofDriver(gpuTest, uuid, c.call(ctx, gpuTest, gpuArgs{GPU: uuid}, nil, nil))
		}
	}
	return h, nil
}

// floors are what the host does not meet now, or did not when it was asked last.
func (c *Client) floors(last []string) []string {
	ctx, cancel := context.WithTimeout(c.ctx, floorFor)
	defer cancel()
	var f facts
	if c.call(ctx, hostFacts, nothing{}, &f, nil) != nil {
		return last
	}
	return f.Floors
}

// ofDriver makes an error a driver's, as its port promises.
func ofDriver(op, uuid string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*gpudrv.Error](err); ok {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return gpudrv.Refuse(gpudrv.Hung, op, uuid, "no answer in time").Because(err)
	}
	return gpudrv.Refuse(gpudrv.Broken, op, uuid, "ask the helper").Because(err)
}

// ofRuntime makes an error a runtime's.
func ofRuntime(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*runtime.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*gpudrv.Error](err); ok {
		return err // a start may fail by what it is given
	}
	if errors.Is(err, ErrAway) {
		return runtime.Refuse(runtime.Unavailable, op, name, "ask the helper").Because(err)
	}
	return runtime.Refuse(runtime.Broken, op, name, "ask the helper").Because(err)
}

// Driver is what the link may ask of GPUs: all that changes nothing, and Reset. Other
// changes are refused as Unsupported: the helper makes them, by Carve.
type Driver struct {
	remote.Reads
	gpudrv.Frozen
	c *Client
}

var _ gpudrv.Driver = Driver{}

// Close implements gpudrv.Driver; the client is closed by its owner.
func (Driver) Close() error { return nil }

// Driver returns the GPUs as the helper shows them.
func (c *Client) Driver() Driver {
	ask := func(ctx context.Context, op string, a remote.Args, out any) error {
		return ofDriver(op, a.GPU, c.call(ctx, gpuRead, readArgs{Op: op, Args: a}, out, nil))
	}
	return Driver{Reads: remote.Reads{Ask: ask}, Frozen: gpudrv.Frozen{Why: "the link changes nothing on a GPU"}, c: c}
}

// Watch implements gpudrv.Observer.
func (d Driver) Watch(ctx context.Context) (gpudrv.Watcher, error) {
	return remote.NewWatcher(ctx, d.c.clock, func(ctx context.Context, told func(json.RawMessage)) error {
		now, err := d.c.connection(ctx)
		if err != nil {
			return ofDriver(gpuWatch, "", err)
		}
		// Not d.c.call: the watcher has to know when a registration was lost.
		_, err = now.Call(ctx, gpuWatch, nothing{}, told)
		return ofDriver(gpuWatch, "", err)
	})
}

// Reset resets an idle GPU, as gpudrv.Tuner does.
func (d Driver) Reset(ctx context.Context, uuid string) error {
	return ofDriver(gpuReset, uuid, d.c.call(ctx, gpuReset, gpuArgs{GPU: uuid}, nil, nil))
}

// carver implements nodeagent.Carver.
type carver struct{ c *Client }

var _ nodeagent.Carver = carver{}

func (k carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	var e carve.Evidence
	err := k.c.call(ctx, carveEnsure, sliceOut(s, nil), &e, nil)
	return e, ofDriver("ensure", s.Slot.GPU, err)
}

func (k carver) Remove(ctx context.Context, s carve.Slice) error {
	return ofDriver("remove", s.Slot.GPU, k.c.call(ctx, carveRemove, sliceOut(s, nil), nil, nil))
}

func (k carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	var out []carve.Found
	err := k.c.call(ctx, carveObserve, gpuArgs{GPU: uuid}, &out, nil)
	return out, ofDriver("observe", uuid, err)
}

func (k carver) EnsureMode(ctx context.Context, uuid string, m gpu.Mode) error {
	return ofDriver("set_mode", uuid, k.c.call(ctx, modeEnsure, gpuArgs{GPU: uuid, Mode: m}, nil, nil))
}

func (k carver) Quiet(ctx context.Context, s carve.Slice, pids []int) error {
	return ofDriver("quiet", s.Slot.GPU, k.c.call(ctx, carveQuiet, sliceOut(s, pids), nil, nil))
}

// Prove shows that fresh clients of a GPU's slices work, as carve.Set does.
func (k carver) Prove(ctx context.Context, uuid string) error {
	return ofDriver("prove", uuid, k.c.call(ctx, carveProve, gpuArgs{GPU: uuid}, nil, nil))
}

// scrubber implements nodeagent.Scrubber.
type scrubber struct{ c *Client }

func (k scrubber) Scrub(ctx context.Context, s carve.Slice) (string, error) {
	evidence := ""
	err := k.c.call(ctx, carveScrub, sliceOut(s, nil), &evidence, nil)
	return evidence, ofDriver("scrub", s.Slot.GPU, err)
}

// door implements nodeagent.Door.
type door struct{ c *Client }

func (d door) Open(ctx context.Context, authorities []string, list []nodeagent.Access) error {
	return d.c.call(ctx, doorOpen, doorArgs{Authorities: authorities, List: list}, nil, nil)
}

// runs implements runtime.Driver.
type runs struct{ c *Client }

var _ runtime.Driver = runs{}

func (r runs) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	progress := func(body json.RawMessage) {
		text := ""
		if s.Extra.Progress != nil && json.Unmarshal(body, &text) == nil {
			s.Extra.Progress(text)
		}
	}
	var out runtime.Container
	err := r.c.call(ctx, runStart, runOut(s), &out, progress)
	return out, ofRuntime("start", s.Name, err)
}

func (r runs) Stop(ctx context.Context, name string) error {
	return ofRuntime("stop", name, r.c.call(ctx, runStop, nameArgs{name}, nil, nil))
}

func (r runs) List(ctx context.Context) ([]runtime.Container, error) {
	var out []runtime.Container
	err := r.c.call(ctx, runList, nothing{}, &out, nil)
	return out, ofRuntime("list", "", err)
}

func (r runs) Stats(ctx context.Context, name string) (runtime.Stats, error) {
	var out runtime.Stats
	err := r.c.call(ctx, runStats, nameArgs{name}, &out, nil)
	return out, ofRuntime("stats", name, err)
}

// Exec implements runtime.Driver: the link may run nothing in an instance.
func (r runs) Exec(_ context.Context, name string, _ runtime.Exec) (int, error) {
	return 0, runtime.Refuse(runtime.Unavailable, "exec", name, "the link runs no programs in instances")
}
