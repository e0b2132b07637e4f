package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Names in the data folder.
const (
	stateFile   = "gpu-state.json"
	lockFile    = "gpu-state.lock"
	stateFormat = 2
	oldFormat   = 1 // without what is marked format 2: the zero values are right
)

// state is what the simulated driver and hardware know. It is replaced as a
// whole on every change.
type state struct {
	Format int       `json:"format"`
	Host   string    `json:"host"`
	BootID string    `json:"boot_id"`
	BootAt time.Time `json:"boot_at"`
	GPUs   []card    `json:"gpus"` // in the driver's order of this boot
	// Mismatch: library and kernel module differ until the next boot. Format 2.
	Mismatch bool `json:"mismatch,omitempty"`
}

// card is one simulated GPU.
type card struct {
	UUID       string     `json:"uuid"`
	Model      string     `json:"model"`
	PCI        string     `json:"pci"`
	Lost       bool       `json:"lost,omitempty"`
	Mode       gpu.Mode   `json:"mode"`
	MIGPending bool       `json:"mig_pending"`
	Instances  []instance `json:"instances,omitempty"` // ascending by ID
	Shares     []int      `json:"shares,omitempty"`    // units handed out, ascending
	Clients    []client   `json:"clients,omitempty"`
	Recovery   string     `json:"recovery,omitempty"` // "" is none
	EnergyMJ   int64      `json:"energy_mj"`          // up to EnergyAt
	EnergyAt   time.Time  `json:"energy_at"`

	// Format 2.
	Timeslice    string           `json:"timeslice,omitempty"`     // "" is default
	ComputeMode  string           `json:"compute_mode,omitempty"`  // "" is default
	MemoryLimits map[string]int64 `json:"memory_limits,omitempty"` // bytes by cgroup
	Variant      string           `json:"variant,omitempty"`       // of the driver
	Daemons      []daemon         `json:"daemons,omitempty"`
	PIDs         int              `json:"pids,omitempty"`      // process numbers given out
	Functions    []int            `json:"functions,omitempty"` // virtual ones, ascending
	VFIO         bool             `json:"vfio,omitempty"`
	Hurt         damage           `json:"damage,omitzero"`
}

// damage is what faults did to a card. A reset heals what a reset heals.
type damage struct {
	FabricDown    bool  `json:"fabric_down,omitempty"`
	LinksDown     []int `json:"links_down,omitempty"`
	Celsius       int64 `json:"celsius,omitempty"` // 0: as the load has it
	Uncorrected   int64 `json:"uncorrected,omitempty"`
	RemapCorrect  int64 `json:"remap_correctable,omitempty"`
	RemapFatal    int64 `json:"remap_uncorrectable,omitempty"`
	RemapPending  bool  `json:"remap_pending,omitempty"`
	RemapFailed   bool  `json:"remap_failed,omitempty"`
	ResetRefusals int   `json:"reset_refusals,omitempty"` // resets that will fail
}

// reset is the damage after a reset: failed remaps and links stay.
func (h damage) reset() damage {
	return damage{
		FabricDown: h.FabricDown, LinksDown: h.LinksDown, ResetRefusals: h.ResetRefusals,
		RemapCorrect: h.RemapCorrect, RemapFatal: h.RemapFatal, RemapFailed: h.RemapFailed,
	}
}

// instance is a GPU instance; HasCompute says whether its one full-width compute
// instance, id 0, exists.
type instance struct {
	ID         int  `json:"id"`
	Profile    int  `json:"profile"`
	Start      int  `json:"start"`
	HasCompute bool `json:"has_compute"`
}

// client is a process or a monitor that holds a device open. GPUInstance and
// Unit are -1 when it is not on one. A monitor shows in no process list.
type client struct {
	PID         int    `json:"pid"`
	Name        string `json:"name"`
	GPUInstance int    `json:"gpu_instance"`
	Unit        int    `json:"unit"`
	Monitor     bool   `json:"monitor,omitempty"`
	UsedBytes   int64  `json:"used_bytes"`
	Duty        int    `json:"duty,omitempty"` // percent of the time; 0 is defaultDuty, -1 idle
	Cgroup      string `json:"cgroup,omitempty"`
	// Limit is the percent that an MPS client got when it connected, 0 for one that
	// is not connected; Memory its memory limit; Cut says that the daemon ended it.
	Limit  int       `json:"mps_percent,omitempty"`
	Memory units.MiB `json:"mps_memory_mib,omitempty"`
	Cut    bool      `json:"mps_cut,omitempty"`
}

func (s state) clone() state {
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		c := &s.GPUs[i]
		c.Instances = slices.Clone(c.Instances)
		c.Shares = slices.Clone(c.Shares)
		c.Clients = slices.Clone(c.Clients)
		c.Daemons = slices.Clone(c.Daemons)
		c.Functions = slices.Clone(c.Functions)
		c.MemoryLimits = maps.Clone(c.MemoryLimits)
		c.Hurt.LinksDown = slices.Clone(c.Hurt.LinksDown)
	}
	return s
}

// fresh is the state of a host that boots for the first time, already in the
// modes that its operator set.
func fresh(h FleetHost, at time.Time) state {
	s := state{Format: stateFormat, Host: h.Name, BootID: uuid.NewString(), BootAt: at}
	for i, d := range h.Devices() {
		s.GPUs = append(s.GPUs, card{
			UUID: d.UUID, Model: d.Model, Variant: d.Variant, PCI: fmt.Sprintf("00000000:%02x:00.0", 0x10+i),
			Mode: d.Mode, MIGPending: d.Mode.Kind == gpu.MIG, EnergyAt: at,
		})
	}
	return s
}

// reboot loses what real GPUs lose: instances, shares, clients, modes other than
// MIG on models that keep it, and the order of the GPUs.
func (s state) reboot(at time.Time) state {
	s = s.clone()
	s.BootID, s.BootAt, s.Mismatch = uuid.NewString(), at, false
	for i := range s.GPUs {
		c := &s.GPUs[i]
		c.Instances, c.Shares, c.Clients, c.Daemons = nil, nil, nil, nil
		c.Lost, c.Recovery, c.Functions, c.VFIO = false, "", nil, false
		c.Timeslice, c.ComputeMode, c.MemoryLimits = "", "", nil
		c.Hurt = c.Hurt.reset()
		c.EnergyMJ, c.EnergyAt = 0, at
		keepsMIG := c.model().modeNeedsReset && c.MIGPending
		c.Mode, c.MIGPending = gpu.WholeMode(), keepsMIG
		if keepsMIG {
			c.Mode = gpu.MIGMode()
		}
	}
	if len(s.GPUs) > 1 {
		s.GPUs = append(s.GPUs[1:], s.GPUs[0])
	}
	return s
}

// matches says whether the state belongs to the host of the fleet file.
func (s state) matches(h FleetHost) error {
	want := h.Devices()
	if s.Host != h.Name || len(s.GPUs) != len(want) {
		return fmt.Errorf("simulated state is of host %s with %d gpus, fleet says %s with %d",
			s.Host, len(s.GPUs), h.Name, len(want))
	}
	for _, d := range want {
		if !slices.ContainsFunc(s.GPUs, func(c card) bool { return c.UUID == d.UUID && c.Model == d.Model }) {
			return fmt.Errorf("simulated state has no gpu %s (%s) that the fleet names", d.UUID, d.Model)
		}
	}
	return nil
}

// disk is the data folder, held by one process at a time. The zero disk forgets.
type disk struct {
	dir  string
	lock *os.File
}

func openDisk(dir string) (disk, error) {
	if dir == "" {
		return disk{}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return disk{}, fmt.Errorf("make folder of simulated gpus: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return disk{}, fmt.Errorf("open lock of simulated gpus: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return disk{}, errors.Join(fmt.Errorf("simulated gpus in %s are used by another process: %w", dir, err), f.Close())
	}
	return disk{dir: dir, lock: f}, nil
}

func (d disk) close() error {
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

// load returns the stored state, or false when there is none.
func (d disk) load() (state, bool, error) {
	if d.dir == "" {
		return state{}, false, nil
	}
	text, err := os.ReadFile(filepath.Join(d.dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, false, nil
	}
	if err != nil {
		return state{}, false, fmt.Errorf("read simulated gpus: %w", err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, false, fmt.Errorf("read simulated gpus in %s: %w", d.dir, err)
	}
	if s.Format != stateFormat && s.Format != oldFormat {
		return state{}, false, fmt.Errorf("simulated gpus in %s have format %d, this version reads %d and %d: remove the folder to start anew",
			d.dir, s.Format, oldFormat, stateFormat)
	}
	s.Format = stateFormat
	return s, true, nil
}

// save replaces the file so that a crash leaves the old or the new state.
func (d disk) save(s state) error {
	if d.dir == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(d.dir, stateFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
