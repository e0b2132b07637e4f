package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Bounds of a fleet file.
const (
	maxFleetHosts  = 10_000
	maxHostGPUs    = 16
	maxHostVCPU    = 4096
	maxHostRAM     = 64 * 1024 * units.GiB
	maxFleetLength = 4 << 20
)

// Fleet is a simulated region, as a fleet file describes it.
type Fleet struct {
	Hosts []FleetHost `yaml:"hosts"`
}

// FleetHost is one simulated machine.
type FleetHost struct {
	Name string     `yaml:"name"` // lower-case letters, digits, dashes; unique
	VCPU int        `yaml:"vcpu"`
	RAM  units.MiB  `yaml:"ram_mib"`
	GPUs []FleetGPU `yaml:"gpus"`
	// Driver is what the host's driver offers; zero is a driver of branch 580.
	Driver FleetDriver `yaml:"driver"`
}

// FleetDriver is what a simulated driver offers beyond the common.
type FleetDriver struct {
	Version      string `yaml:"version"`       // "" is 580.159.04
	MPS          int    `yaml:"mps"`           // 2 or 3; 0 is 2
	MemoryLimits bool   `yaml:"memory_limits"` // caps the memory of cgroups (dmem)
	SRIOV        bool   `yaml:"sriov"`
	VFIO         bool   `yaml:"vfio"`
}

// FleetGPU is a group of alike GPUs. Mode is what the operator set them to.
type FleetGPU struct {
	Model string `yaml:"model"` // a catalogue slug, for example H200-141
	// Variant is the driver's way to report the model: one of Variants, "" the usual.
	Variant string   `yaml:"variant"`
	Mode    gpu.Mode `yaml:"mode"`
	Count   int      `yaml:"count"`
}

// FleetDevice is one GPU of a host with the identity it has on every start.
type FleetDevice struct {
	UUID    string
	Model   string
	Variant string
	Mode    gpu.Mode
}

// LoadFleet reads a fleet file. Unknown fields, doubled hosts, unknown models and
// sizes out of range are errors that name the place.
func LoadFleet(path string) (Fleet, error) {
	f, err := os.Open(path)
	if err != nil {
		return Fleet{}, fmt.Errorf("open fleet file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFleetLength+1))
	if err != nil {
		return Fleet{}, fmt.Errorf("read fleet file: %w", err)
	}
	fleet, err := ParseFleet(text)
	if err != nil {
		return Fleet{}, fmt.Errorf("fleet file %s: %w", path, err)
	}
	return fleet, nil
}

// ParseFleet reads the YAML text of a fleet, as strictly as LoadFleet.
func ParseFleet(text []byte) (Fleet, error) {
	if len(text) > maxFleetLength {
		return Fleet{}, fmt.Errorf("longer than %d bytes", maxFleetLength)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	var f Fleet
	if err := dec.Decode(&f); err != nil {
		return Fleet{}, err
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Fleet{}, errors.New("more than one YAML document")
	}
	return f, f.check()
}

// Host returns the host of a name.
func (f Fleet) Host(name string) (FleetHost, bool) {
	for _, h := range f.Hosts {
		if h.Name == name {
			return h, true
		}
	}
	return FleetHost{}, false
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (f Fleet) check() error {
	if len(f.Hosts) == 0 || len(f.Hosts) > maxFleetHosts {
		return fmt.Errorf("hosts: %d, must be 1 to %d", len(f.Hosts), maxFleetHosts)
	}
	seen := make(map[string]bool, len(f.Hosts))
	for i, h := range f.Hosts {
		if seen[h.Name] {
			return fmt.Errorf("hosts[%d]: name %q twice", i, h.Name)
		}
		seen[h.Name] = true
		if err := h.check(); err != nil {
			return fmt.Errorf("hosts[%d] %q: %w", i, h.Name, err)
		}
	}
	return nil
}

func (h FleetHost) check() error {
	switch {
	case !hostName.MatchString(h.Name):
		return errors.New("name must be 1 to 63 lower-case letters, digits or dashes")
	case h.VCPU < 1 || h.VCPU > maxHostVCPU:
		return fmt.Errorf("vcpu %d, must be 1 to %d", h.VCPU, maxHostVCPU)
	case h.RAM < 1 || h.RAM > maxHostRAM:
		return fmt.Errorf("ram_mib %d, must be 1 to %d", int64(h.RAM), int64(maxHostRAM))
	case len(h.GPUs) == 0:
		return errors.New("no gpus")
	}
	total := 0
	for i, g := range h.GPUs {
		if err := g.check(); err != nil {
			return fmt.Errorf("gpus[%d]: %w", i, err)
		}
		total += g.Count
	}
	if total > maxHostGPUs {
		return fmt.Errorf("%d gpus, at most %d", total, maxHostGPUs)
	}
	return h.Driver.check()
}

func (g FleetGPU) check() error {
	m, ok := catalogue[g.Model]
	_, known := m.variants[g.Variant]
	switch {
	case !ok:
		return fmt.Errorf("unknown model %q, known are %v", g.Model, Models())
	case g.Variant != "" && !known:
		return fmt.Errorf("%s has no driver variant %q, known are %v", g.Model, g.Variant, Variants(g.Model))
	case !g.Mode.Valid():
		return errors.New("no mode: whole, mig, mps:NxSIZE or timeslice:N")
	case g.Mode.Kind == gpu.MIG && len(m.profiles) == 0:
		return fmt.Errorf("%s has no MIG", g.Model)
	case g.Count < 1 || g.Count > maxHostGPUs:
		return fmt.Errorf("count %d, must be 1 to %d", g.Count, maxHostGPUs)
	default:
		return nil
	}
}

var driverNumber = regexp.MustCompile(`^[0-9]{3}(\.[0-9]{1,4}){1,2}$`)

// limitsBranch is the first driver branch with MPS 3 and memory limits.
const limitsBranch = "615"

func (d FleetDriver) check() error {
	switch {
	case d.Version != "" && !driverNumber.MatchString(d.Version):
		return fmt.Errorf("driver: version %q, must look like 580.159.04", d.Version)
	case d.MPS != 0 && d.MPS != 2 && d.MPS != 3:
		return fmt.Errorf("driver: mps %d, must be 2 or 3", d.MPS)
	case (d.MPS == 3 || d.MemoryLimits) && d.Version < limitsBranch:
		return fmt.Errorf("driver: mps 3 and memory_limits need version %s or later, not %q", limitsBranch, d.Version)
	default:
		return nil
	}
}

// uuidSpace makes simulated UUIDs that no real driver could have made.
var uuidSpace = uuid.MustParse("6f1d5c9e-52b0-5c0e-9d8b-1f3f6c0a7e21")

// Devices lists the host's GPUs. UUIDs depend on host name, position and model
// only.
func (h FleetHost) Devices() []FleetDevice {
	var out []FleetDevice
	for _, g := range h.GPUs {
		for range g.Count {
			key := h.Name + "/" + strconv.Itoa(len(out)) + "/" + g.Model
			out = append(out, FleetDevice{
				UUID:  "GPU-" + uuid.NewSHA1(uuidSpace, []byte(key)).String(),
				Model: g.Model, Variant: g.Variant, Mode: g.Mode,
			})
		}
	}
	return out
}
