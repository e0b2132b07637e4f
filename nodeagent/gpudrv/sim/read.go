package sim

import (
	"cmp"
	"context"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Versions that the simulated host reports.
const (
	driverVersion = "580.159.04"
	cudaVersion   = "13.0"
)

func (d *Driver) version() string { return cmp.Or(d.can.Version, driverVersion) }

// Host implements gpudrv.Reader.
func (d *Driver) Host(ctx context.Context) (gpudrv.Host, error) {
	if err := d.wait(ctx, OpRead, "", d.latency.Read); err != nil {
		return gpudrv.Host{}, err
	}
	if hit := d.strike(ctx, OpRead, ""); hit != nil {
		return gpudrv.Host{}, hit.end()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	version := d.version()
	return gpudrv.Host{
		Driver:          "sim",
		DriverVersion:   gpudrv.Reported(version),
		LibraryVersion:  gpudrv.Reported("13." + version),
		CUDAVersion:     gpudrv.Reported(cudaVersion),
		FirmwareVersion: gpudrv.Reported(version),
		BootID:          d.st.BootID,
		Simulated:       true,
	}, nil
}

// GPUs implements gpudrv.Reader.
func (d *Driver) GPUs(ctx context.Context) ([]gpudrv.Ref, error) {
	if err := d.wait(ctx, OpRead, "", d.latency.Read); err != nil {
		return nil, err
	}
	if hit := d.strike(ctx, OpRead, ""); hit != nil {
		return nil, hit.end()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.st.Mismatch {
		return nil, gpudrv.Refuse(gpudrv.Mismatch, OpRead, "", "library and kernel module are of different versions")
	}
	out := make([]gpudrv.Ref, 0, len(d.st.GPUs))
	for i, c := range d.st.GPUs {
		out = append(out, gpudrv.Ref{UUID: c.UUID, PCI: c.PCI, Index: i})
	}
	return out, nil
}

// Identity implements gpudrv.Reader.
func (d *Driver) Identity(ctx context.Context, uuid string) (out gpudrv.Identity, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		m := c.model()
		out = gpudrv.Identity{
			Name: m.name, SMs: gpudrv.Reported(m.sms),
			Architecture:      gpudrv.Reported(m.architecture),
			ComputeCapability: gpudrv.Reported(m.capability),
			PCIDevice:         gpudrv.Reported(m.pciDevice),
			Minor:             gpudrv.NotReported[int]("simulated: no device node"),
			Virtualization:    gpudrv.Reported("none"),
		}
	})
	return out, err
}

// Memory implements gpudrv.Reader.
func (d *Driver) Memory(ctx context.Context, uuid string) (out gpudrv.Memory, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		total, used := c.model().totalBytes, c.usedBytes()
		out = gpudrv.Memory{TotalBytes: total, UsedBytes: used, FreeBytes: total - used}
	})
	return out, err
}

// Mode implements gpudrv.Reader.
func (d *Driver) Mode(ctx context.Context, uuid string) (out gpu.Mode, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) { out = c.Mode })
	return out, err
}

// MIGMode implements gpudrv.Reader.
func (d *Driver) MIGMode(ctx context.Context, uuid string) (out gpudrv.Value[gpudrv.MIGMode], err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		if len(c.model().profiles) == 0 {
			out = gpudrv.NotReported[gpudrv.MIGMode]("no MIG")
			return
		}
		out = gpudrv.Reported(gpudrv.MIGMode{Current: c.Mode.Kind == gpu.MIG, Pending: c.MIGPending})
	})
	return out, err
}

// Profiles implements gpudrv.Reader.
func (d *Driver) Profiles(ctx context.Context, uuid string) (out []gpudrv.Profile, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		for _, e := range c.model().profiles {
			out = append(out, e.Profile)
		}
	})
	return out, err
}

// Placements implements gpudrv.Reader.
func (d *Driver) Placements(ctx context.Context, uuid string, profile int) (gpudrv.Placements, error) {
	out := gpudrv.Placements{Source: gpudrv.SourceSim}
	known := false
	err := d.read(ctx, OpRead, uuid, func(c card) {
		var e entry
		e, known = c.model().entry(profile)
		for _, s := range e.starts {
			out.List = append(out.List, gpudrv.Placement{Start: s, Size: e.size})
		}
	})
	if err == nil && !known {
		err = gpudrv.Refuse(gpudrv.Invalid, OpRead, uuid, "no profile with id %d", profile)
	}
	return out, err
}

// GPUInstances implements gpudrv.Reader.
func (d *Driver) GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error) {
	out := []gpudrv.GPUInstance{}
	done, err := d.lookup(ctx, uuid)
	if err != nil {
		return nil, err
	}
	defer done()
	err = d.read(ctx, OpRead, uuid, func(c card) {
		for _, in := range c.Instances {
			out = append(out, c.describe(in))
		}
	})
	return out, err
}

// Shares implements gpudrv.Reader.
func (d *Driver) Shares(ctx context.Context, uuid string) ([]gpudrv.Share, error) {
	out := []gpudrv.Share{}
	err := d.read(ctx, OpRead, uuid, func(c card) {
		for _, u := range c.Shares {
			out = append(out, c.share(u))
		}
	})
	return out, err
}

// Processes implements gpudrv.Reader. Monitors are not listed, MPS servers are.
func (d *Driver) Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error) {
	out := []gpudrv.Process{}
	err := d.read(ctx, OpRead, uuid, func(c card) {
		for _, cl := range c.Clients {
			if cl.Monitor || cl.Cut {
				continue
			}
			out = append(out, gpudrv.Process{
				PID: cl.PID, Name: cl.Name, GPUInstance: cl.GPUInstance, UsedBytes: gpudrv.Reported(cl.UsedBytes),
				SMPercent: c.processLoad(cl),
			})
		}
		out = append(out, c.servers()...)
	})
	return out, err
}

// Settings implements gpudrv.Reader.
func (d *Driver) Settings(ctx context.Context, uuid string) (out gpudrv.Settings, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		out = gpudrv.Settings{
			ComputeMode:     gpudrv.Reported(cmp.Or(c.ComputeMode, gpudrv.ComputeDefault)),
			Timeslice:       gpudrv.Reported(cmp.Or(c.Timeslice, gpudrv.TimesliceDefault)),
			Persistence:     gpudrv.Reported(true),
			ECC:             gpudrv.Reported(true),
			ECCPending:      gpudrv.Reported(true),
			PowerLimitMilli: gpudrv.Reported(c.model().limitMilliwatt),
			Accounting:      gpudrv.Reported(false),
		}
	})
	return out, err
}

// Health implements gpudrv.Reader.
func (d *Driver) Health(ctx context.Context, uuid string) (out gpudrv.Health, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		action := c.Recovery
		if action == "" {
			action = "none"
		}
		out = gpudrv.Health{
			RecoveryAction:     gpudrv.Reported(action),
			ECCUncorrected:     gpudrv.Reported(c.Hurt.Uncorrected),
			RemappedCorrect:    gpudrv.Reported(c.Hurt.RemapCorrect),
			RemappedUncorrect:  gpudrv.Reported(c.Hurt.RemapFatal),
			RemapPending:       gpudrv.Reported(c.Hurt.RemapPending),
			RemapFailed:        gpudrv.Reported(c.Hurt.RemapFailed),
			RetiredPagePending: gpudrv.NotReported[bool]("not on this architecture"),
		}
	})
	return out, err
}

// Telemetry implements gpudrv.Reader. Utilisation is not reported with MIG on.
func (d *Driver) Telemetry(ctx context.Context, uuid string) (out gpudrv.Telemetry, err error) {
	const idleCelsius, idleMHz, busyMHz = 36, 345, 1980
	at := d.now()
	err = d.read(ctx, OpRead, uuid, func(c card) {
		c.settleEnergy(at)
		load := c.loadPercent()
		clock := int64(idleMHz)
		if load > 0 {
			clock = busyMHz
		}
		out = gpudrv.Telemetry{
			PowerMilliwatt:   gpudrv.Reported(c.milliwatts()),
			EnergyMillijoule: gpudrv.Reported(c.EnergyMJ),
			TemperatureC:     gpudrv.Reported(cmp.Or(c.Hurt.Celsius, idleCelsius+load/3)),
			SMClockMHz:       gpudrv.Reported(clock),
			GPUPercent:       gpudrv.Reported(load),
			MemoryPercent:    gpudrv.Reported(load / 2),
		}
		if c.Mode.Kind == gpu.MIG {
			out.GPUPercent = gpudrv.NotReported[int64]("MIG is on")
			out.MemoryPercent = gpudrv.NotReported[int64]("MIG is on")
		}
	})
	return out, err
}

// Topology implements gpudrv.Reader.
func (d *Driver) Topology(ctx context.Context, uuid string) (out gpudrv.Topology, err error) {
	err = d.read(ctx, OpRead, uuid, func(c card) {
		out = gpudrv.Topology{
			NUMANode:     gpudrv.NotReported[int]("simulated"),
			CPUs:         gpudrv.NotReported[string]("simulated"),
			LinkGen:      gpudrv.Reported(5),
			LinkWidth:    gpudrv.Reported(16),
			NVLinksUp:    gpudrv.Reported(c.linksUp()),
			FabricStatus: c.fabricState(),
		}
	})
	return out, err
}
