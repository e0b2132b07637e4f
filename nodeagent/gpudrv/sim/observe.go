package sim

import (
	"context"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Capabilities implements gpudrv.Observer.
func (d *Driver) Capabilities(ctx context.Context, uuid string) (out gpudrv.Capabilities, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		const v2, v3 = 2, 3
		version := max(d.can.MPS, v2)
		out = gpudrv.Capabilities{
			MPSVersion:   gpudrv.Reported(version),
			SMPartitions: gpudrv.Reported(version >= v3),
			MemoryLimits: gpudrv.Reported(d.can.MemoryLimits),
			Timeslice:    gpudrv.Reported(true),
			ComputeMode:  gpudrv.Reported(true),
			Reset:        gpudrv.Reported(true),
			GPM:          gpudrv.Reported(c.model().hasGPM()),
			SRIOV:        gpudrv.Reported(d.can.SRIOV),
			VFIO:         gpudrv.Reported(d.can.VFIO),
		}
	})
	return out, err
}

// Usage implements gpudrv.Observer. What is busy follows the attached clients:
// per GPU instance where the architecture counts that, nothing on the others
// with MIG on.
func (d *Driver) Usage(ctx context.Context, uuid string) ([]gpudrv.SliceUsage, error) {
	var out []gpudrv.SliceUsage
	err := d.read(ctx, OpRead, uuid, func(c card) {
		if c.Mode.Kind != gpu.MIG {
			out = append(out, c.usage(-1, c.usedBytes()))
			return
		}
		for _, in := range c.Instances {
			out = append(out, c.usage(in.ID, c.usedOn(in.ID)))
		}
	})
	return out, err
}

// usedOn is the memory of the clients of one GPU instance.
func (c card) usedOn(gi int) int64 {
	n := int64(0)
	for _, cl := range c.Clients {
		if cl.GPUInstance == gi {
			n += cl.UsedBytes
		}
	}
	return n
}

func (c card) usage(gi int, used int64) gpudrv.SliceUsage {
	busy := c.load(func(cl client) bool { return gi < 0 || cl.GPUInstance == gi })
	gpm := c.model().hasGPM()
	switch {
	case !gpm && gi >= 0:
		out := gpudrv.NoUsage(gi, "no counters per GPU instance before Hopper")
		out.UsedBytes = gpudrv.Reported(used)
		return out
	case !gpm:
		out := gpudrv.NoUsage(gi, "no profiling counters before Hopper")
		out.Source, out.Window = gpudrv.UsageNVML, sampleWindow
		out.Busy, out.UsedBytes = gpudrv.Reported(busy), gpudrv.Reported(used)
		return out
	}
	// A busy client has nearly all SMs at work, with three warps in five there.
	const smOf, warpsOf, dramOf, whole = 99, 60, 40, 100
	return gpudrv.SliceUsage{
		GPUInstance: gi, Source: gpudrv.UsageGPM, Window: sampleWindow,
		Busy: gpudrv.Reported(busy), SM: gpudrv.Reported(busy * smOf / whole),
		Occupancy: gpudrv.Reported(busy * warpsOf / whole), DRAM: gpudrv.Reported(busy * dramOf / whole),
		UsedBytes: gpudrv.Reported(used),
	}
}

// processLoad is the driver's figure per process: none with MIG on.
func (c card) processLoad(cl client) gpudrv.Value[int64] {
	switch {
	case c.Mode.Kind == gpu.MIG:
		return gpudrv.NotReported[int64]("MIG is on")
	case cl.Limit > 0:
		return gpudrv.NotReported[int64]("counted with its MPS server")
	default:
		return gpudrv.Reported(cl.duty())
	}
}

// servers lists the MPS servers as the driver sees them.
func (c card) servers() []gpudrv.Process {
	var out []gpudrv.Process
	for _, dm := range c.Daemons {
		if dm.Server == 0 {
			continue
		}
		p := gpudrv.Process{PID: dm.Server, Name: serverName, GPUInstance: -1, UsedBytes: gpudrv.Reported[int64](serverBytes)}
		for _, in := range c.Instances {
			if in.HasCompute && migUUID(c.UUID, in.ID, 0) == dm.Device {
				p.GPUInstance = in.ID
			}
		}
		p.SMPercent = gpudrv.NotReported[int64]("MIG is on")
		if c.Mode.Kind != gpu.MIG {
			p.SMPercent = gpudrv.Reported(c.load(func(cl client) bool { return c.connected(cl, dm.Device) }) / 10)
		}
		out = append(out, p)
	}
	return out
}

// links is how many NVLinks each simulated GPU has.
const links = 18

func (c card) linksUp() int { return links - len(c.Hurt.LinksDown) }

func (c card) fabricState() gpudrv.Value[string] {
	if c.Hurt.FabricDown {
		return gpudrv.Reported("in_progress")
	}
	return gpudrv.Reported("completed")
}

// Fabric implements gpudrv.Observer: all GPUs of a host are one clique.
func (d *Driver) Fabric(ctx context.Context, id string) (out gpudrv.Fabric, err error) {
	err = d.read(ctx, OpRead, id, func(c card) {
		out = gpudrv.Fabric{
			State: c.fabricState(), Healthy: gpudrv.Reported(!c.Hurt.FabricDown),
			Cluster: gpudrv.Reported(uuid.NewSHA1(uuidSpace, []byte("fabric/"+d.st.Host)).String()),
			Clique:  gpudrv.Reported(1),
		}
		for n := range links {
			out.Links = append(out.Links, gpudrv.Link{
				Number: n, Up: gpudrv.Reported(!slices.Contains(c.Hurt.LinksDown, n)),
			})
		}
	})
	return out, err
}

// MemoryLimit implements gpudrv.Observer.
func (d *Driver) MemoryLimit(ctx context.Context, uuid, cgroup string) (out gpudrv.Value[gpudrv.MemoryLimit], err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		if why := d.noLimits(c); why != "" {
			out = gpudrv.NotReported[gpudrv.MemoryLimit](why)
			return
		}
		used := int64(0)
		for _, cl := range c.Clients {
			if cl.Cgroup == cgroup {
				used += cl.UsedBytes
			}
		}
		out = gpudrv.Reported(gpudrv.MemoryLimit{HardBytes: c.MemoryLimits[cgroup], UsedBytes: gpudrv.Reported(used)})
	})
	return out, err
}

// noLimits says why the driver cannot cap memory on a card; "" if it can.
func (d *Driver) noLimits(c card) string {
	switch {
	case !d.can.MemoryLimits:
		return "driver " + d.version() + " has no memory limits"
	case c.Mode.Kind == gpu.MIG:
		return "not with MIG on"
	default:
		return ""
	}
}

// Reset implements gpudrv.Tuner.
func (d *Driver) Reset(ctx context.Context, uuid string) error {
	const op = OpReset
	refused := false
	err := d.change(ctx, op, uuid, d.latency.SetMode, func(c *card) error {
		if busy, who := c.occupied(); busy {
			return gpudrv.Refuse(gpudrv.InUse, op, uuid, "clients are on the gpu").HeldBy(who...)
		}
		if c.Hurt.ResetRefusals > 0 {
			c.Hurt.ResetRefusals--
			refused = true
			return nil
		}
		c.reset()
		return nil
	})
	if err == nil && refused {
		return gpudrv.Refuse(gpudrv.Broken, op, uuid, "the gpu did not come back from its reset")
	}
	return err
}

// reset is what a reset does to a card without clients.
func (c *card) reset() {
	c.Instances, c.Shares, c.Daemons, c.Recovery, c.MemoryLimits = nil, nil, nil, "", nil
	c.Hurt = c.Hurt.reset()
	if isMIG := c.Mode.Kind == gpu.MIG; isMIG != c.MIGPending {
		c.Mode = gpu.WholeMode()
		if c.MIGPending {
			c.Mode = gpu.MIGMode()
		}
	}
}

// SetTimeslice implements gpudrv.Tuner.
func (d *Driver) SetTimeslice(ctx context.Context, uuid, level string) error {
	const op = OpSetTimeslice
	return d.change(ctx, op, uuid, 0, func(c *card) error {
		switch level {
		case gpudrv.TimesliceDefault, gpudrv.TimesliceShort, gpudrv.TimesliceMedium, gpudrv.TimesliceLong:
			c.Timeslice = level
			return nil
		default:
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "no time-slice length %q", level)
		}
	})
}

// SetComputeMode implements gpudrv.Tuner.
func (d *Driver) SetComputeMode(ctx context.Context, uuid, mode string) error {
	const op = OpSetComputeMode
	return d.change(ctx, op, uuid, 0, func(c *card) error {
		switch mode {
		case gpudrv.ComputeDefault, gpudrv.ComputeExclusiveProcess, gpudrv.ComputeProhibited:
			c.ComputeMode = mode
			return nil
		default:
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "no compute mode %q", mode)
		}
	})
}

// SetMemoryLimit implements gpudrv.Tuner.
func (d *Driver) SetMemoryLimit(ctx context.Context, uuid, cgroup string, bytes int64) error {
	const op = OpSetMemoryLimit
	return d.change(ctx, op, uuid, 0, func(c *card) error {
		if why := d.noLimits(*c); why != "" {
			return gpudrv.Refuse(gpudrv.Unsupported, op, uuid, "%s", why)
		}
		if bytes < 0 || cgroup == "" {
			return gpudrv.Refuse(gpudrv.Invalid, op, uuid, "limit of %s bytes for cgroup %q", strconv.FormatInt(bytes, 10), cgroup)
		}
		if bytes == 0 {
			delete(c.MemoryLimits, cgroup)
			return nil
		}
		if c.MemoryLimits == nil {
			c.MemoryLimits = map[string]int64{}
		}
		c.MemoryLimits[cgroup] = bytes
		return nil
	})
}
