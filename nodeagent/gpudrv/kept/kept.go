// Package kept gives a driver the sharing modes and shares that its hardware does
// not know. A GPU knows MIG or not; that it is used through MPS, in turns or as a
// whole is the agent's own decision, kept here in one small file that is synced
// before a call returns.
//
// It owns that file alone. It starts no MPS daemon and limits nothing (carve,
// mpsd). What the file says holds for one boot: after another one every GPU is
// whole or in MIG again and no share is handed out, as with settings of a driver.
package kept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/durable"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

const (
	format = 1

	opSetMode, opShares, opCreateShare, opDestroyShare = "set_mode", "shares", "create_share", "destroy_share"
)

// card is what is kept about one GPU.
type card struct {
	Mode   gpu.Mode `json:"mode"`   // mps or timeslice
	Shares []int    `json:"shares"` // units handed out, ascending
}

type state struct {
	Format int             `json:"format"`
	BootID string          `json:"boot_id"`
	GPUs   map[string]card `json:"gpus"` // by UUID
}

// Driver is a driver with modes and shares.
type Driver struct {
	gpudrv.Driver
	path string

	mu sync.Mutex
	st state
}

var _ gpudrv.Driver = (*Driver)(nil)

// Open reads the file at path, or starts with nothing if there is none. It fails
// on a file that it did not write: guessing could sell a share twice.
func Open(ctx context.Context, inner gpudrv.Driver, path string) (*Driver, error) {
	host, err := inner.Host(ctx)
	if err != nil {
		return nil, fmt.Errorf("open kept modes: %w", err)
	}
	st, err := load(path)
	if err != nil {
		return nil, err
	}
	if st.BootID != host.BootID {
		st = state{Format: format, BootID: host.BootID, GPUs: map[string]card{}}
	}
	return &Driver{Driver: inner, path: path, st: st}, nil
}

func load(path string) (state, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("read kept modes: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var st state
	if err := dec.Decode(&st); err != nil {
		return state{}, fmt.Errorf("read kept modes in %s: %w", path, err)
	}
	if st.Format != format {
		return state{}, fmt.Errorf("kept modes in %s have format %d, this version reads %d", path, st.Format, format)
	}
	for uuid, c := range st.GPUs {
		if err := c.check(); err != nil {
			return state{}, fmt.Errorf("kept modes in %s: gpu %s: %w", path, uuid, err)
		}
	}
	if st.GPUs == nil {
		st.GPUs = map[string]card{}
	}
	return st, nil
}

func (c card) check() error {
	if !c.Mode.Valid() || c.Mode.Shares == 0 {
		return fmt.Errorf("mode %q has no shares", c.Mode)
	}
	last := -1
	for _, u := range c.Shares {
		if u <= last || u >= c.Mode.Shares {
			return fmt.Errorf("shares %v do not fit mode %s", c.Shares, c.Mode)
		}
		last = u
	}
	return nil
}

// store replaces the card of a GPU, or forgets it if c has no mode. The file is
// written and synced first; the caller holds the lock.
func (d *Driver) store(op, uuid string, c card) error {
	next := state{Format: format, BootID: d.st.BootID, GPUs: maps.Clone(d.st.GPUs)}
	if c.Mode.Shares == 0 {
		delete(next.GPUs, uuid)
	} else {
		next.GPUs[uuid] = c
	}
	raw, err := json.Marshal(next)
	if err == nil {
		err = replace(d.path, raw)
	}
	if err != nil {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "keep mode and shares").Because(err)
	}
	d.st = next
	return nil
}

// replace writes the file, in a folder that is made if it is missing.
func replace(path string, raw []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, raw)
}

// Mode implements gpudrv.Reader.
func (d *Driver) Mode(ctx context.Context, uuid string) (gpu.Mode, error) {
	m, err := d.Driver.Mode(ctx, uuid)
	if err != nil || m.Kind == gpu.MIG {
		return m, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.st.GPUs[uuid]; ok {
		return c.Mode, nil
	}
	return gpu.WholeMode(), nil
}

// SetMode implements gpudrv.Writer. The hardware is asked only where MIG comes or
// goes.
func (d *Driver) SetMode(ctx context.Context, uuid string, m gpu.Mode) error {
	if !m.Valid() {
		return gpudrv.Refuse(gpudrv.Invalid, opSetMode, uuid, "no such mode")
	}
	below, err := d.Driver.Mode(ctx, uuid)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.st.GPUs[uuid].Shares); n > 0 {
		return gpudrv.Refuse(gpudrv.InUse, opSetMode, uuid, "gpu holds %d shares", n)
	}
	if below.Kind == gpu.MIG || m.Kind == gpu.MIG {
		want := gpu.WholeMode()
		if m.Kind == gpu.MIG {
			want = m
		}
		if err := d.Driver.SetMode(ctx, uuid, want); err != nil {
			return err
		}
	} else if err := d.idle(ctx, uuid); err != nil {
		return err
	}
	return d.store(opSetMode, uuid, card{Mode: m})
}

// idle refuses a switch while somebody computes, an MPS server included: its
// limits would outlive the mode.
func (d *Driver) idle(ctx context.Context, uuid string) error {
	list, err := d.Processes(ctx, uuid)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	holders := make([]gpudrv.Holder, 0, len(list))
	for _, p := range list {
		holders = append(holders, gpudrv.Holder{PID: p.PID, Name: p.Name})
	}
	return gpudrv.Refuse(gpudrv.InUse, opSetMode, uuid, "gpu holds %d processes", len(list)).HeldBy(holders...)
}

// Shares implements gpudrv.Reader.
func (d *Driver) Shares(ctx context.Context, uuid string) ([]gpudrv.Share, error) {
	m, err := d.Mode(ctx, uuid)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	units := slices.Clone(d.st.GPUs[uuid].Shares)
	d.mu.Unlock()
	out := make([]gpudrv.Share, 0, len(units))
	if len(units) == 0 || m.Shares == 0 {
		return out, nil
	}
	for _, unit := range units {
		s, err := d.share(ctx, uuid, m, unit)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// share says what a unit is worth on this GPU.
func (d *Driver) share(ctx context.Context, uuid string, m gpu.Mode, unit int) (gpudrv.Share, error) {
	mem, err := d.Memory(ctx, uuid)
	if err != nil {
		return gpudrv.Share{}, err
	}
	id, err := d.Identity(ctx, uuid)
	if err != nil {
		return gpudrv.Share{}, err
	}
	dev := gpu.Device{UUID: uuid, Memory: mem.Total(), SMs: id.SMs.Or(0)}
	res, err := gpu.ResourcesOf(dev, gpu.Slot{GPU: uuid, Mode: m, Start: unit, Size: 1})
	if err != nil {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.Invalid, opShares, uuid, "unit %d of mode %s", unit, m).Because(err)
	}
	return gpudrv.Share{Unit: unit, Memory: res.Memory, SMs: res.SMs, SMPercent: res.SMPercent}, nil
}

// CreateShare implements gpudrv.Writer.
func (d *Driver) CreateShare(ctx context.Context, uuid string, unit int) (gpudrv.Share, error) {
	m, err := d.Mode(ctx, uuid)
	if err != nil {
		return gpudrv.Share{}, err
	}
	if m.Shares == 0 {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.Unsupported, opCreateShare, uuid, "mode %s has no shares", m)
	}
	if unit < 0 || unit >= m.Shares {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.Invalid, opCreateShare, uuid, "mode %s has no unit %d", m, unit)
	}
	out, err := d.share(ctx, uuid, m, unit)
	if err != nil {
		return gpudrv.Share{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.st.GPUs[uuid]
	if c.Mode != m {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.Unsupported, opCreateShare, uuid, "the mode changed meanwhile")
	}
	at, taken := slices.BinarySearch(c.Shares, unit)
	if taken {
		return gpudrv.Share{}, gpudrv.Refuse(gpudrv.NoRoom, opCreateShare, uuid, "unit %d is handed out", unit)
	}
	c.Shares = slices.Insert(slices.Clone(c.Shares), at, unit)
	return out, d.store(opCreateShare, uuid, c)
}

// DestroyShare implements gpudrv.Writer. Who is on a share is not known here: the
// caller ends its processes first.
func (d *Driver) DestroyShare(ctx context.Context, uuid string, unit int) error {
	if _, err := d.Driver.Mode(ctx, uuid); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.st.GPUs[uuid]
	at, there := slices.BinarySearch(c.Shares, unit)
	if !there {
		return gpudrv.Refuse(gpudrv.NotFound, opDestroyShare, uuid, "unit %d is not handed out", unit)
	}
	c.Shares = slices.Delete(slices.Clone(c.Shares), at, at+1)
	return d.store(opDestroyShare, uuid, c)
}

// Reset implements gpudrv.Tuner: no share survives it, the mode does.
func (d *Driver) Reset(ctx context.Context, uuid string) error {
	if err := d.Driver.Reset(ctx, uuid); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.st.GPUs[uuid]
	if !ok {
		return nil
	}
	c.Shares = nil
	return d.store("reset", uuid, c)
}
