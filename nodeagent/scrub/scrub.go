// Package scrub owns the proof that a slice's GPU memory holds nothing of its last
// tenant before the slice is taken away and may be sold again.
//
// It does not judge a GPU's health: a sick GPU stays unsold for that alone, and must
// still become empty so that it can be reset. It carves nothing.
package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/carve"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Policy says how much is done.
type Policy string

// The policies. Each does what the ones before it do, too.
const (
	// TrustDriver takes the driver's word that fresh allocations are cleared, and
	// proves that no process and no unexplained memory is left.
	TrustDriver Policy = "trust-driver"
	// Verify looks through the slice's memory with a program, where the slice has memory
	// of its own: on a GPU that is shared without a wall the program would take the
	// neighbours' room, and the driver's word has to do.
	Verify Policy = "verify"
	// Fill overwrites the slice's memory first.
	Fill Policy = "fill"
)

// ParsePolicy reads a policy's name; "" is TrustDriver.
func ParsePolicy(text string) (Policy, error) {
	switch p := Policy(text); p {
	case "":
		return TrustDriver, nil
	case TrustDriver, Verify, Fill:
		return p, nil
	}
	return "", fmt.Errorf("scrub policy %q is not %s, %s or %s", text, TrustDriver, Verify, Fill)
}

// Config is what a Scrubber works with.
type Config struct {
	Driver gpudrv.Reader
	Policy Policy
	// Programs is the absolute folder of the CUDA programs scan and pattern; only for
	// Verify and Fill.
	Programs string
	// Device returns what CUDA_VISIBLE_DEVICES names for a slot: the GPU's UUID or the
	// MIG device's; nil is the GPU.
	Device func(ctx context.Context, s gpu.Slot) (string, error)
}

// Scrubber implements nodeagent.Scrubber.
type Scrubber struct {
	cfg Config

	mu   sync.Mutex
	idle map[string]int64 // least memory in use that was seen with no process, by GPU
}

const (
	// slack is how much more memory than the least seen an idle GPU may use.
	slack = 512 << 20
	// spare is what a scanning program leaves for its own context.
	spare = 1 << 30
	// runWithin bounds one program: a whole H200 takes seconds.
	runWithin = 3 * time.Minute
)

// New makes a scrubber.
func New(cfg Config) (*Scrubber, error) {
	if cfg.Policy != TrustDriver && !filepath.IsAbs(cfg.Programs) {
		return nil, fmt.Errorf("scrub policy %s needs the absolute folder of the programs scan and pattern, not %q", cfg.Policy, cfg.Programs)
	}
	return &Scrubber{cfg: cfg, idle: map[string]int64{}}, nil
}

// Scrub returns what was done and seen. It fails with a *gpudrv.Error: InUse while a
// process or unexplained memory is on a slice that is its GPU alone, Broken for memory
// that is not clean.
func (s *Scrubber) Scrub(ctx context.Context, sl carve.Slice) (string, error) {
	said := []string{string(s.cfg.Policy)}
	quiet, err := s.quiet(ctx, sl.Slot)
	if err != nil {
		return "", err
	}
	said = append(said, quiet)
	if s.cfg.Policy == TrustDriver {
		return strings.Join(said, ": "), nil
	}
	seen, err := s.look(ctx, sl.Slot)
	if err != nil {
		return "", err
	}
	return strings.Join(append(said, seen), ": "), nil
}

// quiet proves that nobody is on the slice. On GPUs that are shared without a wall the
// neighbours' processes are there, and the container of this slice is gone already.
func (s *Scrubber) quiet(ctx context.Context, slot gpu.Slot) (string, error) {
	if slot.Mode.Kind != gpu.Whole && slot.Mode.Kind != gpu.MIG {
		return "its container is gone", nil
	}
	list, err := s.cfg.Driver.Processes(ctx, slot.GPU)
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	gi := -1
	if slot.Mode.Kind == gpu.MIG {
		at, err := s.instance(ctx, slot)
		if err != nil {
			return "", err
		}
		gi = at.ID
	}
	var holders []gpudrv.Holder
	for _, p := range list {
		if p.GPUInstance == gi {
			holders = append(holders, gpudrv.Holder{PID: p.PID, Name: p.Name})
		}
	}
	if len(holders) > 0 {
		return "", gpudrv.Refuse(gpudrv.InUse, "scrub", slot.GPU, "%d processes are on the slice", len(holders)).HeldBy(holders...)
	}
	if slot.Mode.Kind == gpu.Whole {
		return s.settled(ctx, slot.GPU)
	}
	return "no process", nil
}

// instance is the GPU instance at a MIG slot; its id is -2, which no process has, if it
// is gone.
func (s *Scrubber) instance(ctx context.Context, slot gpu.Slot) (gpudrv.GPUInstance, error) {
	none := gpudrv.GPUInstance{ID: -2}
	list, err := s.cfg.Driver.GPUInstances(ctx, slot.GPU)
	if err != nil {
		return none, fmt.Errorf("list gpu instances: %w", err)
	}
	for _, gi := range list {
		if gi.Placement.Start == slot.Start && gi.Placement.Size == slot.Size {
			return gi, nil
		}
	}
	return none, nil
}

// settled proves that an idle GPU uses no more memory than it has idled with.
func (s *Scrubber) settled(ctx context.Context, uuid string) (string, error) {
	m, err := s.cfg.Driver.Memory(ctx, uuid)
	if err != nil {
		return "", fmt.Errorf("read memory: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	least, known := s.idle[uuid]
	if known && m.UsedBytes > least+slack {
		return "", gpudrv.Refuse(gpudrv.InUse, "scrub", uuid, "%d MiB are in use and no process holds them", m.UsedBytes>>20)
	}
	if !known || m.UsedBytes < least {
		s.idle[uuid] = m.UsedBytes
	}
	return fmt.Sprintf("no process, %d MiB in use", m.UsedBytes>>20), nil
}

// finding is a line of the program scan.
type finding struct {
	Event   string `json:"event"`
	Words   int64  `json:"words"`
	Pattern int64  `json:"pattern"`
	NotZero int64  `json:"not_zero"`
}

func (s *Scrubber) look(ctx context.Context, slot gpu.Slot) (string, error) {
	if slot.Mode.Kind != gpu.Whole && slot.Mode.Kind != gpu.MIG {
		return "its memory is shared, the driver clears what it gives out", nil
	}
	device := slot.GPU
	if s.cfg.Device != nil {
		var err error
		if device, err = s.cfg.Device(ctx, slot); err != nil {
			return "", err
		}
	}
	free, err := s.free(ctx, slot)
	if err != nil {
		return "", err
	}
	mib, said := strconv.FormatInt(max(free-spare, spare)>>20, 10), ""
	if s.cfg.Policy == Fill {
		if _, err := s.run(ctx, device, "pattern", mib); err != nil {
			return "", err
		}
		said = "overwritten " + mib + " MiB: "
	}
	out, err := s.run(ctx, device, "scan", mib)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		var f finding
		if json.Unmarshal([]byte(line), &f) != nil || f.Event != "scan" {
			continue
		}
		if f.NotZero > 0 {
			return "", gpudrv.Refuse(gpudrv.Broken, "scrub", slot.GPU, "%d of %d words are not zero", f.NotZero, f.Words)
		}
		return fmt.Sprintf("%s%d words, none left", said, f.Words), nil
	}
	return "", gpudrv.Refuse(gpudrv.Broken, "scrub", slot.GPU, "the scan said nothing of its finding")
}

// free is the memory of an empty slice, in bytes: the GPU's, or the MIG device's own.
func (s *Scrubber) free(ctx context.Context, slot gpu.Slot) (int64, error) {
	if slot.Mode.Kind == gpu.MIG {
		gi, err := s.instance(ctx, slot)
		if err != nil {
			return 0, err
		}
		if len(gi.Compute) == 0 {
			return 0, gpudrv.Refuse(gpudrv.NotFound, "scrub", slot.GPU, "no MIG device at %s", slot)
		}
		return gi.Compute[0].Memory.Bytes(), nil
	}
	m, err := s.cfg.Driver.Memory(ctx, slot.GPU)
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	return m.FreeBytes, nil
}

// run starts one of the operator's programs, without a shell and without our
// environment.
func (s *Scrubber) run(ctx context.Context, device, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.cfg.Programs, name), args...) //nolint:gosec // a fixed name in the operator's folder
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"CUDA_VISIBLE_DEVICES=" + device}, "/", time.Second
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", gpudrv.Refuse(gpudrv.Hung, "scrub", device, "%s did not end within %s", name, runWithin)
	}
	return "", gpudrv.Refuse(gpudrv.Broken, "scrub", device, "%s failed", name).Because(err)
}
