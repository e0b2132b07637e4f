//go:build nvml

package nvml

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/blocking"
)

const opRead = "read"

// driver is the adapter. Handles are looked up by UUID on each call: indices and
// handles change under resets.
type driver struct {
	api    lib.Interface
	config Config
	bootID string
	calls  blocking.Calls
	gpm    sampler

	mu    sync.Mutex
	known []gpudrv.Ref // every GPU seen since Open, so that lost ones stay listed
}

var _ gpudrv.Driver = (*driver)(nil)

// Open loads the library and checks that the driver answers.
func Open(c Config) (gpudrv.Driver, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	var opts []lib.LibraryOption
	if c.Library != "" {
		opts = append(opts, lib.WithLibraryPath(c.Library))
	}
	api := lib.New(opts...)
	if ret := api.Init(); ret != lib.SUCCESS {
		return nil, gpudrv.Refuse(kindOf(ret), "open", "", "load NVML: %s", errorText(ret))
	}
	return &driver{api: api, config: c, bootID: strings.TrimSpace(string(boot))}, nil
}

// closeFor is how long Close waits for calls that are in the library.
const closeFor = 2 * time.Second

// Close implements gpudrv.Driver. Hung if calls do not come back: the library
// then stays open until the process ends.
func (d *driver) Close() error {
	return d.calls.Finish(closeFor, "close", func() error {
		d.gpm.free()
		if ret := d.api.Shutdown(); ret != lib.SUCCESS {
			return gpudrv.Refuse(kindOf(ret), "close", "", "%s", errorText(ret))
		}
		return nil
	})
}

// has says whether the installed library knows a function: calling a missing one
// would end the process.
func (d *driver) has(symbol string) bool {
	return d.api.Extensions().LookupSymbol(symbol) == nil
}

func (d *driver) wasSeen(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.known {
		if r.UUID == uuid {
			return true
		}
	}
	return false
}

// list reads the GPUs in the driver's order. Positions of GPUs that no longer
// answer are filled from what was seen before.
func (d *driver) list() ([]gpudrv.Ref, error) {
	n, ret := d.api.DeviceGetCount()
	if ret != lib.SUCCESS {
		return nil, fail("", ret, "count gpus")
	}
	var out []gpudrv.Ref
	var lost error
	for i := range n {
		ref, err := d.ref(i)
		if gpudrv.KindOf(err) == gpudrv.GPULost {
			lost = errors.Join(lost, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(out)
	for _, k := range d.known {
		seen := false
		for _, r := range out {
			seen = seen || r.UUID == k.UUID
		}
		if !seen {
			out = append(out, k)
		}
	}
	if lost != nil && len(out) == before {
		return nil, fmt.Errorf("a gpu is lost and its uuid was never seen: %w", lost)
	}
	for i := range out {
		out[i].Index = i
	}
	d.known = append([]gpudrv.Ref(nil), out...)
	return out, nil
}

func (d *driver) ref(i int) (gpudrv.Ref, error) {
	dev, ret := d.api.DeviceGetHandleByIndex(i)
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail("", ret, fmt.Sprintf("open gpu at index %d", i))
	}
	uuid, ret := dev.GetUUID()
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail("", ret, fmt.Sprintf("read uuid of gpu at index %d", i))
	}
	pci, ret := dev.GetPciInfo()
	if ret != lib.SUCCESS {
		return gpudrv.Ref{}, fail(uuid, ret, "read bus id")
	}
	return gpudrv.Ref{UUID: uuid, PCI: text(pci.BusId[:]), Index: i}, nil
}

// text is a C string in a fixed array.
func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
