// Package mps hands out the fixed-size shares of a GPU in mps mode: one daemon per
// GPU, its limits set in the daemon and read back, one size per GPU.
//
// Limits hold per client process, and a client that hides the pipe folder escapes
// them; so the GPU is in compute mode exclusive_process while it is in mps mode,
// unless the host's policy leaves that alone. All shares are one fault domain: a
// fault of one client ends the others. So one organization holds all shares of a
// GPU (package carve checks it), a process is cut off from the daemon before it is
// signalled (Quiet), and a fresh client must have worked before a share is given
// out again.
//
// The daemon starts with the first share and ends with the last. The package keeps
// no state: shares are the driver's, limits the daemon's.
package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/carve/internal/grid"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/mpsd"
)

// Prober proves that a fresh client works through a device's daemon.
type Prober interface {
	// Probe runs a small program as a client and waits for its end. Its errors are
	// *gpudrv.Error.
	Probe(ctx context.Context, device string) error
}

// Config is what the technique needs beside the driver.
type Config struct {
	Daemons mpsd.Control
	Probe   Prober // nil trusts the daemon
	// LeaveComputeMode keeps the GPU's compute mode as its operator set it. Then a
	// client may hide from the daemon, and somebody has to watch for that.
	LeaveComputeMode bool
}

// Carver is the technique over one driver.
type Carver struct {
	grid grid.Carver
	drv  gpudrv.Driver
	cfg  Config
}

var (
	_ carve.Carver  = Carver{}
	_ carve.Moder   = Carver{}
	_ carve.Quieter = Carver{}
	_ carve.Prover  = Carver{}
)

// New makes the technique over one driver.
func New(drv gpudrv.Driver, cfg Config) Carver {
	return Carver{grid: grid.Carver{Driver: drv}, drv: drv, cfg: cfg}
}

// Plan implements carve.Carver.
func (c Carver) Plan(ctx context.Context, s carve.Slice) (carve.Plan, error) {
	sc, err := c.grid.Look(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Plan{}, fmt.Errorf("plan %s: %w", s.ID, err)
	}
	p, err := sc.Plan(s.Slot)
	if err != nil {
		return carve.Plan{}, err
	}
	_, served, err := c.served(ctx, sc)
	if err != nil {
		return carve.Plan{}, fmt.Errorf("plan %s: %w", s.ID, err)
	}
	if !served {
		p.Present = false
		p.Steps = append([]string{"start the MPS daemon and set its limits"}, p.Steps...)
	}
	return p, nil
}

// served says what each client of a GPU shall get in its mode, and whether its
// daemon runs with these limits.
func (c Carver) served(ctx context.Context, sc grid.Scene) (want mpsd.Limits, ok bool, err error) {
	device := sc.Device.UUID
	r, err := gpu.ResourcesOf(sc.Device, gpu.Slot{GPU: device, Mode: sc.Mode, Size: 1})
	if err != nil {
		return want, false, gpudrv.Refuse(gpudrv.Invalid, "limits", device, "%s", err.Error())
	}
	want = mpsd.Limits{Percent: r.SMPercent, Memory: r.Memory}
	now, err := c.cfg.Daemons.Limits(ctx, device)
	if gpudrv.KindOf(err) == gpudrv.NotFound {
		return want, false, nil
	}
	if err != nil {
		return want, false, fmt.Errorf("read limits of the MPS daemon: %w", err)
	}
	return want, now == want, nil
}

// Ensure implements carve.Carver.
func (c Carver) Ensure(ctx context.Context, s carve.Slice) (carve.Evidence, error) {
	sc, err := c.grid.Look(ctx, s.Slot.GPU)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	plan, err := sc.Plan(s.Slot)
	if err != nil {
		return carve.Evidence{}, err
	}
	if err := c.exclusive(ctx, s.Slot.GPU); err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, err)
	}
	d, err := c.serve(ctx, sc, !plan.Present)
	if err != nil {
		return carve.Evidence{}, fmt.Errorf("carve %s: %w", s.ID, errors.Join(err, c.undo(ctx, s.Slot)))
	}
	e, err := c.grid.EnsureIn(ctx, sc, s)
	if err != nil {
		return carve.Evidence{}, errors.Join(err, c.undo(ctx, s.Slot))
	}
	e.PipeDir = d.PipeDir
	return e, nil
}

// serve makes the daemon run with the limits of the GPU's mode. A fresh client is
// proven where something is new.
func (c Carver) serve(ctx context.Context, sc grid.Scene, fresh bool) (mpsd.Daemon, error) {
	want, ok, err := c.served(ctx, sc)
	if err != nil {
		return mpsd.Daemon{}, err
	}
	d, err := serve(ctx, c.cfg.Daemons, sc.Device.UUID, want, ok)
	if err != nil {
		return mpsd.Daemon{}, err
	}
	if ok && !fresh {
		return d, nil
	}
	return c.prove(ctx, sc.Device.UUID, d, want)
}

// serve starts a device's daemon and sets its limits, unless it has them.
func serve(ctx context.Context, m mpsd.Control, device string, want mpsd.Limits, has bool) (mpsd.Daemon, error) {
	d, err := m.Ensure(ctx, device)
	if err != nil {
		return mpsd.Daemon{}, fmt.Errorf("start the MPS daemon: %w", err)
	}
	if has {
		return d, nil
	}
	got, err := m.SetLimits(ctx, device, want)
	if err != nil {
		return mpsd.Daemon{}, fmt.Errorf("set limits of the MPS daemon: %w", err)
	}
	if got != want {
		return mpsd.Daemon{}, gpudrv.Refuse(gpudrv.Broken, "set_limits", device,
			"asked for %d percent and %s, daemon says %d and %s", want.Percent, want.Memory, got.Percent, got.Memory)
	}
	return d, nil
}

// prove runs a fresh client. If it fails and nobody is connected, the daemon is
// started anew once.
func (c Carver) prove(ctx context.Context, device string, d mpsd.Daemon, want mpsd.Limits) (mpsd.Daemon, error) {
	if c.cfg.Probe == nil {
		return d, nil
	}
	first := c.cfg.Probe.Probe(ctx, device)
	if first == nil {
		return d, nil
	}
	if err := c.cfg.Daemons.Stop(ctx, device); err != nil {
		return mpsd.Daemon{}, fmt.Errorf("prove a fresh MPS client: %w", errors.Join(first, err))
	}
	d, err := serve(ctx, c.cfg.Daemons, device, want, false)
	if err == nil {
		err = c.cfg.Probe.Probe(ctx, device)
	}
	if err != nil {
		return mpsd.Daemon{}, fmt.Errorf("prove a fresh MPS client of a new daemon: %w", err)
	}
	return d, nil
}

// Prove implements carve.Prover: with the limits of the GPU's mode, starting the
// daemon anew if need be.
func (c Carver) Prove(ctx context.Context, uuid string) error {
	sc, err := c.grid.Look(ctx, uuid)
	if err != nil || len(sc.Found()) == 0 {
		return err
	}
	_, err = c.serve(ctx, sc, true)
	return err
}

// undoTimeout is how long stopping a daemon that nobody needs may take.
const undoTimeout = 30 * time.Second

// undo stops the daemon if no share needs it, even if the caller's time is up.
func (c Carver) undo(ctx context.Context, s gpu.Slot) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return c.stopIfIdle(ctx, s.GPU)
}

func (c Carver) stopIfIdle(ctx context.Context, uuid string) error {
	held, err := c.drv.Shares(ctx, uuid)
	if err != nil {
		return fmt.Errorf("list shares: %w", err)
	}
	if len(held) > 0 {
		return nil
	}
	if err := c.cfg.Daemons.Stop(ctx, uuid); err != nil {
		return fmt.Errorf("stop the MPS daemon: %w", err)
	}
	return nil
}

// Remove implements carve.Carver. The daemon goes with the last share.
func (c Carver) Remove(ctx context.Context, s carve.Slice) error {
	if err := c.grid.Remove(ctx, s); err != nil {
		return err
	}
	if err := c.stopIfIdle(ctx, s.Slot.GPU); err != nil {
		return fmt.Errorf("remove %s: %w", s.ID, err)
	}
	return nil
}

// Observe implements carve.Carver. A share whose daemon is gone or has other limits
// is incomplete.
func (c Carver) Observe(ctx context.Context, uuid string) ([]carve.Found, error) {
	sc, err := c.grid.Look(ctx, uuid)
	if err != nil {
		return nil, fmt.Errorf("observe mps shares: %w", err)
	}
	found := sc.Found()
	if len(found) == 0 {
		return found, nil
	}
	_, ok, err := c.served(ctx, sc)
	if err != nil {
		return nil, fmt.Errorf("observe mps shares: %w", err)
	}
	pipe, err := c.pipe(ctx, uuid)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Incomplete = !ok
		found[i].Evidence.PipeDir = pipe
	}
	return found, nil
}

func (c Carver) pipe(ctx context.Context, uuid string) (string, error) {
	list, err := c.cfg.Daemons.List(ctx)
	if err != nil {
		return "", fmt.Errorf("list MPS daemons: %w", err)
	}
	for _, d := range list {
		if d.Device == uuid {
			return d.PipeDir, nil
		}
	}
	return "", nil
}

// Quiet implements carve.Quieter.
func (c Carver) Quiet(ctx context.Context, uuid string, pids []int) error {
	clients, err := c.cfg.Daemons.Clients(ctx, uuid)
	if gpudrv.KindOf(err) == gpudrv.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list MPS clients: %w", err)
	}
	for _, cl := range clients {
		if !slices.Contains(pids, cl.Process.PID) {
			continue
		}
		if err := c.cfg.Daemons.Terminate(ctx, uuid, cl); err != nil {
			return fmt.Errorf("cut MPS client %s off: %w", cl.Process, err)
		}
	}
	return nil
}

// Enter implements carve.Moder.
func (c Carver) Enter(ctx context.Context, uuid string, _ gpu.Mode) error {
	return c.exclusive(ctx, uuid)
}

// Leave implements carve.Moder.
func (c Carver) Leave(ctx context.Context, uuid string) error {
	if err := c.cfg.Daemons.Stop(ctx, uuid); err != nil {
		return fmt.Errorf("stop the MPS daemon: %w", err)
	}
	return c.computeMode(ctx, uuid, gpudrv.ComputeDefault)
}

func (c Carver) exclusive(ctx context.Context, uuid string) error {
	return c.computeMode(ctx, uuid, gpudrv.ComputeExclusiveProcess)
}

// computeMode sets the compute mode unless it is set or left alone by policy, and
// reads it back.
func (c Carver) computeMode(ctx context.Context, uuid, want string) error {
	if c.cfg.LeaveComputeMode {
		return nil
	}
	now, err := c.drv.Settings(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read compute mode: %w", err)
	}
	if now.ComputeMode.Or("") == want {
		return nil
	}
	if err := c.drv.SetComputeMode(ctx, uuid, want); err != nil {
		return fmt.Errorf("set compute mode %s (the policy leave_compute_mode does without): %w", want, err)
	}
	now, err = c.drv.Settings(ctx, uuid)
	if err != nil {
		return fmt.Errorf("read compute mode back: %w", err)
	}
	if got := now.ComputeMode.String(); got != want {
		return gpudrv.Refuse(gpudrv.Broken, "set_compute_mode", uuid, "asked for %s, driver shows %s", want, got)
	}
	return nil
}
