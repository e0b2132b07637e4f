//go:build nvml

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/internal/smi"
)

// maxEnum ends the enumeration if a driver never says that it is over.
const maxEnum = 64

// profileInfo is one row with the library's own struct, which later calls want.
type profileInfo struct {
	enum int
	v2   lib.GpuInstanceProfileInfo_v2
}

// enumerate lists the profiles until the driver refuses the number; what a GPU
// does not have is skipped.
func enumerate(dev lib.Device, uuid string) ([]profileInfo, error) {
	mode := migMode(dev)
	if _, ok := mode.Get(); !ok {
		if mode.HasFailed() {
			return nil, gpudrv.Refuse(gpudrv.Broken, opRead, uuid, "MIG mode: %s", mode.Reason())
		}
		return nil, nil
	}
	var out []profileInfo
	for enum := range maxEnum {
		info, ret := dev.GetGpuInstanceProfileInfoV(enum).V2()
		switch ret {
		case lib.SUCCESS:
			out = append(out, profileInfo{enum: enum, v2: info})
		case lib.ERROR_INVALID_ARGUMENT:
			return out, nil
		case lib.ERROR_NOT_SUPPORTED:
		default:
			return nil, fail(uuid, ret, fmt.Sprintf("read profile %#x", enum))
		}
	}
	return out, nil
}

// Profiles implements gpudrv.Reader.
func (d *driver) Profiles(ctx context.Context, uuid string) ([]gpudrv.Profile, error) {
	return on(ctx, d, uuid, func(dev lib.Device) ([]gpudrv.Profile, error) {
		infos, err := enumerate(dev, uuid)
		if err != nil {
			return nil, err
		}
		out := make([]gpudrv.Profile, 0, len(infos))
		for _, p := range infos {
			out = append(out, gpudrv.Profile{
				Enum: p.enum, ID: int(p.v2.Id), Name: strings.TrimPrefix(text(p.v2.Name[:]), "MIG "),
				Compute: int(p.v2.SliceCount), MaxInstances: int(p.v2.InstanceCount),
				Memory: units.MiB(p.v2.MemorySizeMB), SMs: int(p.v2.MultiprocessorCount),
				Copy: int(p.v2.CopyEngineCount), Decode: int(p.v2.DecoderCount), Encode: int(p.v2.EncoderCount),
				JPEG: int(p.v2.JpegCount), OFA: int(p.v2.OfaCount), P2P: p.v2.IsP2pSupported != 0,
			})
		}
		return out, nil
	})
}

// Placements implements gpudrv.Reader. NVML is asked first; where it refuses,
// nvidia-smi is read instead.
func (d *driver) Placements(ctx context.Context, uuid string, profile int) (gpudrv.Placements, error) {
	type asked struct {
		list []gpudrv.Placement
		pci  string
		ret  lib.Return
	}
	a, err := on(ctx, d, uuid, func(dev lib.Device) (asked, error) {
		infos, err := enumerate(dev, uuid)
		if err != nil {
			return asked{}, err
		}
		i := slices.IndexFunc(infos, func(p profileInfo) bool { return int(p.v2.Id) == profile })
		if i < 0 {
			return asked{}, gpudrv.Refuse(gpudrv.Invalid, opRead, uuid, "no profile with id %d", profile)
		}
		pci, ret := dev.GetPciInfo()
		if ret != lib.SUCCESS {
			return asked{}, fail(uuid, ret, "read bus id")
		}
		at, ret := dev.GetGpuInstancePossiblePlacements(&lib.GpuInstanceProfileInfo{Id: infos[i].v2.Id})
		out := asked{pci: text(pci.BusId[:]), ret: ret}
		for _, p := range at {
			out.list = append(out.list, gpudrv.Placement{Start: int(p.Start), Size: int(p.Size)})
		}
		return out, nil
	})
	if err != nil {
		return gpudrv.Placements{}, err
	}
	if a.ret == lib.SUCCESS && len(a.list) > 0 {
		slices.SortFunc(a.list, func(x, y gpudrv.Placement) int { return cmp.Compare(x.Start, y.Start) })
		return gpudrv.Placements{Source: gpudrv.SourceNVML, List: a.list}, nil
	}
	list, err := d.askSMI(ctx, uuid, a.pci, profile)
	if err != nil {
		return gpudrv.Placements{}, gpudrv.Refuse(gpudrv.Broken, opRead, uuid,
			"NVML answers placements with %s", errorText(a.ret)).Because(err)
	}
	return gpudrv.Placements{Source: gpudrv.SourceSMI, List: list}, nil
}

// usualSMI are the places of nvidia-smi; the path is never taken from PATH.
var usualSMI = []string{"/usr/bin/nvidia-smi", "/usr/local/nvidia/bin/nvidia-smi", "/usr/local/bin/nvidia-smi"}

func (d *driver) smiPath() (string, error) {
	if d.config.SMI != "" {
		return d.config.SMI, nil
	}
	for _, p := range usualSMI {
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", errors.New("nvidia-smi is in none of " + strings.Join(usualSMI, ", "))
}

// askSMI reads the placements of one GPU, named by its bus id, from nvidia-smi.
func (d *driver) askSMI(ctx context.Context, uuid, pci string, profile int) ([]gpudrv.Placement, error) {
	path, err := d.smiPath()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, path, "mig", "-i", pci, "-lgipp").Output()
	if err != nil {
		return nil, fmt.Errorf("run %s mig -lgipp: %w", path, err)
	}
	byGPU, err := smi.ParsePlacements(string(out))
	if err != nil {
		return nil, err
	}
	if len(byGPU) != 1 {
		return nil, fmt.Errorf("nvidia-smi lists %d gpus, asked for %s", len(byGPU), uuid)
	}
	for _, profiles := range byGPU {
		if len(profiles[profile]) == 0 {
			break
		}
		list := make([]gpudrv.Placement, 0, len(profiles[profile]))
		for _, p := range profiles[profile] {
			list = append(list, gpudrv.Placement(p))
		}
		return list, nil
	}
	return nil, fmt.Errorf("nvidia-smi lists no placement of profile %d", profile)
}

// GPUInstances implements gpudrv.Reader.
func (d *driver) GPUInstances(ctx context.Context, uuid string) ([]gpudrv.GPUInstance, error) {
	return on(ctx, d, uuid, func(dev lib.Device) ([]gpudrv.GPUInstance, error) { return instances(dev, uuid) })
}

func instances(dev lib.Device, uuid string) ([]gpudrv.GPUInstance, error) {
	out := []gpudrv.GPUInstance{}
	if !migMode(dev).Or(gpudrv.MIGMode{}).Current {
		return out, nil
	}
	infos, err := enumerate(dev, uuid)
	if err != nil {
		return nil, err
	}
	for _, p := range infos {
		list, ret := dev.GetGpuInstances(&lib.GpuInstanceProfileInfo{Id: p.v2.Id, InstanceCount: p.v2.InstanceCount})
		if ret != lib.SUCCESS {
			return nil, fail(uuid, ret, "list gpu instances")
		}
		for _, gi := range list {
			in, err := describe(gi, uuid)
			if err != nil {
				return nil, err
			}
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b gpudrv.GPUInstance) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func describe(gi lib.GpuInstance, uuid string) (gpudrv.GPUInstance, error) {
	info, ret := gi.GetInfo()
	if ret != lib.SUCCESS {
		return gpudrv.GPUInstance{}, fail(uuid, ret, "read gpu instance")
	}
	out := gpudrv.GPUInstance{
		ID: int(info.Id), Profile: int(info.ProfileId),
		Placement: gpudrv.Placement{Start: int(info.Placement.Start), Size: int(info.Placement.Size)},
		Compute:   []gpudrv.ComputeInstance{},
	}
	for enum := range int(lib.COMPUTE_INSTANCE_PROFILE_COUNT) {
		p, ret := gi.GetComputeInstanceProfileInfo(enum, lib.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != lib.SUCCESS {
			continue // not every width fits into every instance
		}
		list, ret := gi.GetComputeInstances(&p)
		if ret != lib.SUCCESS {
			return gpudrv.GPUInstance{}, fail(uuid, ret, "list compute instances")
		}
		for _, ci := range list {
			c, err := describeCompute(ci, uuid)
			if err != nil {
				return gpudrv.GPUInstance{}, err
			}
			out.Compute = append(out.Compute, c)
		}
	}
	return out, nil
}

func describeCompute(ci lib.ComputeInstance, uuid string) (gpudrv.ComputeInstance, error) {
	info, ret := ci.GetInfo()
	if ret != lib.SUCCESS {
		return gpudrv.ComputeInstance{}, fail(uuid, ret, "read compute instance")
	}
	id, ret := info.Device.GetUUID()
	if ret != lib.SUCCESS {
		return gpudrv.ComputeInstance{}, fail(uuid, ret, "read MIG uuid")
	}
	a, ret := info.Device.GetAttributes()
	if ret != lib.SUCCESS {
		return gpudrv.ComputeInstance{}, fail(uuid, ret, "read MIG attributes")
	}
	return gpudrv.ComputeInstance{
		ID: int(info.Id), UUID: id, Memory: units.MiB(a.MemorySizeMB), SMs: int(a.MultiprocessorCount),
	}, nil
}
