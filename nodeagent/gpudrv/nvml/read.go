//go:build nvml

package nvml

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Host implements gpudrv.Reader.
func (d *driver) Host(ctx context.Context) (gpudrv.Host, error) {
	return within(ctx, d, "", func() (gpudrv.Host, error) {
		h := gpudrv.Host{Driver: "nvml", BootID: d.bootID}
		h.DriverVersion = value(d.api.SystemGetDriverVersion())
		h.LibraryVersion = value(d.api.SystemGetNVMLVersion())
		cuda, ret := d.api.SystemGetCudaDriverVersion()
		h.CUDAVersion = convert(cuda, ret, func(v int) string {
			const major, minor = 1000, 10
			return fmt.Sprintf("%d.%d", v/major, v%major/minor)
		})
		h.FirmwareVersion = gpudrv.NotReported[string]("no gpu")
		if dev, ret := d.api.DeviceGetHandleByIndex(0); ret == lib.SUCCESS {
			h.FirmwareVersion = value(dev.GetGspFirmwareVersion())
		}
		return h, nil
	})
}

// GPUs implements gpudrv.Reader.
func (d *driver) GPUs(ctx context.Context) ([]gpudrv.Ref, error) { return within(ctx, d, "", d.list) }

var architectures = map[lib.DeviceArchitecture]string{
	lib.DEVICE_ARCH_VOLTA: "volta", lib.DEVICE_ARCH_TURING: "turing", lib.DEVICE_ARCH_AMPERE: "ampere",
	lib.DEVICE_ARCH_ADA: "ada", lib.DEVICE_ARCH_HOPPER: "hopper", lib.DEVICE_ARCH_BLACKWELL: "blackwell",
	lib.DEVICE_ARCH_RUBIN: "rubin",
}

var virtualizations = map[lib.GpuVirtualizationMode]string{
	lib.GPU_VIRTUALIZATION_MODE_NONE: "none", lib.GPU_VIRTUALIZATION_MODE_PASSTHROUGH: "passthrough",
	lib.GPU_VIRTUALIZATION_MODE_VGPU: "vgpu", lib.GPU_VIRTUALIZATION_MODE_HOST_VGPU: "host_vgpu",
	lib.GPU_VIRTUALIZATION_MODE_HOST_VSGA: "host_vsga",
}

// named looks a code up and shows the number of one that is too new.
func named[K ~uint32 | ~int32](m map[K]string) func(K) string {
	return func(k K) string {
		if s, ok := m[k]; ok {
			return s
		}
		return "code " + strconv.FormatInt(int64(k), 10)
	}
}

// Identity implements gpudrv.Reader.
func (d *driver) Identity(ctx context.Context, uuid string) (gpudrv.Identity, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Identity, error) {
		name, ret := dev.GetName()
		if ret != lib.SUCCESS {
			return gpudrv.Identity{}, fail(uuid, ret, "read name")
		}
		id := gpudrv.Identity{Name: name, Minor: value(dev.GetMinorNumber()), SMs: d.sms(dev)}
		arch, ret := dev.GetArchitecture()
		id.Architecture = convert(arch, ret, named(architectures))
		major, minor, ret := dev.GetCudaComputeCapability()
		id.ComputeCapability = value(fmt.Sprintf("%d.%d", major, minor), ret)
		pci, ret := dev.GetPciInfo()
		id.PCIDevice = convert(pci, ret, func(p lib.PciInfo) string {
			const half, low = 16, 0xffff
			return fmt.Sprintf("%04x:%04x", p.PciDeviceId&low, p.PciDeviceId>>half)
		})
		virt, ret := dev.GetVirtualizationMode()
		id.Virtualization = convert(virt, ret, named(virtualizations))
		return id, nil
	})
}

// sms counts the GPU's SMs: NVML counts CUDA cores, and an SM has 64 on Volta,
// Turing and A100-class chips and 128 on the others.
func (d *driver) sms(dev lib.Device) gpudrv.Value[int] {
	if !d.has("nvmlDeviceGetNumGpuCores") {
		return gpudrv.NotReported[int]("library too old")
	}
	major, minor, ret := dev.GetCudaComputeCapability()
	if ret != lib.SUCCESS {
		return value(0, ret)
	}
	cores, ret := dev.GetNumGpuCores()
	const small, large = 64, 128
	perSM := large
	if major == 7 || (major == 8 && minor == 0) {
		perSM = small
	}
	if ret == lib.SUCCESS && (major < 7 || cores%perSM != 0) {
		return gpudrv.NotReported[int](fmt.Sprintf("%d cores of capability %d.%d", cores, major, minor))
	}
	return value(cores/perSM, ret)
}

// Memory implements gpudrv.Reader.
func (d *driver) Memory(ctx context.Context, uuid string) (gpudrv.Memory, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Memory, error) {
		m, ret := dev.GetMemoryInfo()
		if ret != lib.SUCCESS {
			return gpudrv.Memory{}, fail(uuid, ret, "read memory")
		}
		return gpudrv.Memory{TotalBytes: int64(m.Total), FreeBytes: int64(m.Free), UsedBytes: int64(m.Used)}, nil
	})
}

// Mode implements gpudrv.Reader: mig or whole. The driver does not know whether
// somebody runs an MPS daemon or takes turns.
func (d *driver) Mode(ctx context.Context, uuid string) (gpu.Mode, error) {
	v, err := d.MIGMode(ctx, uuid)
	if err != nil {
		return gpu.Mode{}, err
	}
	if v.HasFailed() {
		return gpu.Mode{}, gpudrv.Refuse(gpudrv.Broken, opRead, uuid, "MIG mode: %s", v.Reason())
	}
	if v.Or(gpudrv.MIGMode{}).Current {
		return gpu.MIGMode(), nil
	}
	return gpu.WholeMode(), nil
}

// MIGMode implements gpudrv.Reader.
func (d *driver) MIGMode(ctx context.Context, uuid string) (gpudrv.Value[gpudrv.MIGMode], error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Value[gpudrv.MIGMode], error) {
		return migMode(dev), nil
	})
}

func migMode(dev lib.Device) gpudrv.Value[gpudrv.MIGMode] {
	current, pending, ret := dev.GetMigMode()
	return value(gpudrv.MIGMode{
		Current: current == lib.DEVICE_MIG_ENABLE, Pending: pending == lib.DEVICE_MIG_ENABLE,
	}, ret)
}

// Shares implements gpudrv.Reader: none, because the hardware knows none.
func (d *driver) Shares(ctx context.Context, uuid string) ([]gpudrv.Share, error) {
	return on(ctx, d, uuid, func(lib.Device) ([]gpudrv.Share, error) { return []gpudrv.Share{}, nil })
}

// Processes implements gpudrv.Reader: the clients of an MPS server are listed
// apart from the others, under their own numbers.
func (d *driver) Processes(ctx context.Context, uuid string) ([]gpudrv.Process, error) {
	return on(ctx, d, uuid, func(dev lib.Device) ([]gpudrv.Process, error) { return processes(dev, uuid) })
}

func processes(dev lib.Device, uuid string) ([]gpudrv.Process, error) {
	list, ret := dev.GetComputeRunningProcesses()
	if ret != lib.SUCCESS {
		return nil, fail(uuid, ret, "list processes")
	}
	clients, ret := dev.GetMPSComputeRunningProcesses()
	if ret != lib.SUCCESS && ret != lib.ERROR_NOT_SUPPORTED && ret != lib.ERROR_FUNCTION_NOT_FOUND {
		return nil, fail(uuid, ret, "list MPS processes")
	}
	busy := utilisation(dev)
	out := make([]gpudrv.Process, 0, len(list)+len(clients))
	for _, p := range append(list, clients...) {
		entry := process(p)
		twice := func(o gpudrv.Process) bool { return o.PID == entry.PID && o.GPUInstance == entry.GPUInstance }
		if slices.ContainsFunc(out, twice) {
			continue
		}
		entry.SMPercent = busy(p.Pid)
		out = append(out, entry)
	}
	return out, nil
}

// utilisation reads how busy each process kept the SMs during the last seconds.
// Without samples, or where the GPU does not count that, nothing is reported.
func utilisation(dev lib.Device) func(pid uint32) gpudrv.Value[int64] {
	const lookBack = 3 * time.Second
	since := time.Now().Add(-lookBack).UnixMicro()
	samples, ret := dev.GetProcessUtilization(uint64(since))
	if ret != lib.SUCCESS {
		return func(uint32) gpudrv.Value[int64] { return value(int64(0), ret) }
	}
	return func(pid uint32) gpudrv.Value[int64] {
		newest := -1
		for i, s := range samples {
			if s.Pid == pid && (newest < 0 || s.TimeStamp > samples[newest].TimeStamp) {
				newest = i
			}
		}
		if newest < 0 {
			return gpudrv.NotReported[int64]("no sample of this process")
		}
		return gpudrv.Reported(int64(samples[newest].SmUtil))
	}
}

func process(p lib.ProcessInfo) gpudrv.Process {
	const noInstance, noValue = 1<<32 - 1, 1<<64 - 1
	out := gpudrv.Process{
		PID: int(p.Pid), Name: "pid " + strconv.Itoa(int(p.Pid)), GPUInstance: int(p.GpuInstanceId),
		UsedBytes: gpudrv.Reported(int64(p.UsedGpuMemory)),
	}
	if p.GpuInstanceId == noInstance {
		out.GPUInstance = -1
	}
	if p.UsedGpuMemory == noValue {
		out.UsedBytes = gpudrv.NotReported[int64]("not counted by the driver")
	}
	// A process of another pid namespace has no entry here; its number must do.
	if comm, err := os.ReadFile("/proc/" + strconv.Itoa(int(p.Pid)) + "/comm"); err == nil {
		out.Name = strings.TrimSpace(string(comm))
	}
	return out
}

var computeModes = map[lib.ComputeMode]string{
	lib.COMPUTEMODE_DEFAULT: "default", lib.COMPUTEMODE_PROHIBITED: "prohibited",
	lib.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process", lib.COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
}

func enabled(s lib.EnableState) bool { return s == lib.FEATURE_ENABLED }

func wide(v uint32) int64 { return int64(v) }

// Settings implements gpudrv.Reader.
func (d *driver) Settings(ctx context.Context, uuid string) (gpudrv.Settings, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Settings, error) {
		var s gpudrv.Settings
		mode, ret := dev.GetComputeMode()
		s.ComputeMode = convert(mode, ret, named(computeModes))
		persistence, ret := dev.GetPersistenceMode()
		s.Persistence = convert(persistence, ret, enabled)
		ecc, pending, ret := dev.GetEccMode()
		s.ECC = convert(ecc, ret, enabled)
		s.ECCPending = convert(pending, ret, enabled)
		limit, ret := dev.GetPowerManagementLimit()
		s.PowerLimitMilli = convert(limit, ret, wide)
		accounting, ret := dev.GetAccountingMode()
		s.Accounting = convert(accounting, ret, enabled)
		s.Timeslice = gpudrv.NotReported[string]("NVML does not say; it is default after a boot")
		return s, nil
	})
}

var recoveryActions = map[uint32]string{
	0: "none", 1: "reset", 2: "reboot", 3: "drain_p2p", 4: "drain_reset",
	5: "recover_imex", 6: "bus_reset", 7: "system_reboot",
}

// Health implements gpudrv.Reader.
func (d *driver) Health(ctx context.Context, uuid string) (gpudrv.Health, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Health, error) {
		var h gpudrv.Health
		h.RecoveryAction = recoveryAction(dev)
		errs, ret := dev.GetTotalEccErrors(lib.MEMORY_ERROR_TYPE_UNCORRECTED, lib.VOLATILE_ECC)
		h.ECCUncorrected = convert(errs, ret, func(n uint64) int64 { return int64(n) })
		correct, uncorrect, pending, failure, ret := dev.GetRemappedRows()
		h.RemappedCorrect = value(int64(correct), ret)
		h.RemappedUncorrect = value(int64(uncorrect), ret)
		h.RemapPending = value(pending, ret)
		h.RemapFailed = value(failure, ret)
		pages, ret := dev.GetRetiredPagesPendingStatus()
		h.RetiredPagePending = convert(pages, ret, enabled)
		return h, nil
	})
}

// fieldRecoveryAction is the field that says what the driver wants done.
const fieldRecoveryAction = 230

func recoveryAction(dev lib.Device) gpudrv.Value[string] {
	fields := []lib.FieldValue{{FieldId: fieldRecoveryAction}}
	if ret := dev.GetFieldValues(fields); ret != lib.SUCCESS {
		return value("", ret)
	}
	ret := lib.Return(fields[0].NvmlReturn)
	if ret == lib.ERROR_INVALID_ARGUMENT {
		return gpudrv.NotReported[string]("driver too old")
	}
	code := binary.NativeEndian.Uint32(fields[0].Value[:4])
	return value(named(recoveryActions)(code), ret)
}

// Telemetry implements gpudrv.Reader.
func (d *driver) Telemetry(ctx context.Context, uuid string) (gpudrv.Telemetry, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Telemetry, error) {
		var t gpudrv.Telemetry
		power, ret := dev.GetPowerUsage()
		t.PowerMilliwatt = convert(power, ret, wide)
		energy, ret := dev.GetTotalEnergyConsumption()
		t.EnergyMillijoule = convert(energy, ret, func(n uint64) int64 { return int64(n) })
		heat, ret := dev.GetTemperature(lib.TEMPERATURE_GPU)
		t.TemperatureC = convert(heat, ret, wide)
		use, ret := dev.GetUtilizationRates()
		t.GPUPercent = convert(use, ret, func(u lib.Utilization) int64 { return int64(u.Gpu) })
		t.MemoryPercent = convert(use, ret, func(u lib.Utilization) int64 { return int64(u.Memory) })
		clock, ret := dev.GetClockInfo(lib.CLOCK_SM)
		t.SMClockMHz = convert(clock, ret, wide)
		return t, nil
	})
}

var fabricStates = map[uint32]string{0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}

// Topology implements gpudrv.Reader.
func (d *driver) Topology(ctx context.Context, uuid string) (gpudrv.Topology, error) {
	return on(ctx, d, uuid, func(dev lib.Device) (gpudrv.Topology, error) {
		var t gpudrv.Topology
		t.NUMANode = gpudrv.NotReported[int]("library too old")
		if d.has("nvmlDeviceGetNumaNodeId") {
			t.NUMANode = value(dev.GetNumaNodeId())
		}
		if _, ok := t.NUMANode.Get(); !ok {
			t.NUMANode = numaNode(dev, t.NUMANode)
		}
		const cpuSetSize = 1024
		cpus, ret := dev.GetCpuAffinity(cpuSetSize)
		t.CPUs = convert(cpus, ret, cpuList)
		t.LinkGen = value(dev.GetCurrPcieLinkGeneration())
		t.LinkWidth = value(dev.GetCurrPcieLinkWidth())
		t.NVLinksUp = nvlinks(dev)
		t.FabricStatus = gpudrv.NotReported[string]("library too old")
		if d.has("nvmlDeviceGetGpuFabricInfo") {
			info, ret := dev.GetGpuFabricInfo()
			t.FabricStatus = convert(info, ret, func(f lib.GpuFabricInfo) string {
				return named(fabricStates)(uint32(f.State))
			})
		}
		return t, nil
	})
}

// numaNode asks the kernel about the GPU's bus address, since NVML's own answer
// is about coherent memory only. The kernel says -1 where there is one node.
func numaNode(dev lib.Device, otherwise gpudrv.Value[int]) gpudrv.Value[int] {
	pci, ret := dev.GetPciInfo()
	if ret != lib.SUCCESS {
		return otherwise
	}
	path := fmt.Sprintf("/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node", pci.Domain, pci.Bus, pci.Device)
	raw, err := os.ReadFile(path)
	if err != nil {
		return otherwise
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || n < 0 {
		return otherwise
	}
	return gpudrv.Reported(n)
}

// nvlinks counts the links that are up.
func nvlinks(dev lib.Device) gpudrv.Value[int] {
	list, ret := links(dev)
	if ret != lib.SUCCESS {
		return value(0, ret)
	}
	up := 0
	for _, l := range list {
		if l.Up.Or(false) {
			up++
		}
	}
	return gpudrv.Reported(up)
}

// cpuList writes a CPU set in the kernel's list format, for example 0-15,32.
func cpuList(words []uint) string {
	const wordBits = 64
	isSet := func(cpu int) bool {
		return cpu/wordBits < len(words) && words[cpu/wordBits]>>(cpu%wordBits)&1 == 1
	}
	var parts []string
	for cpu := 0; cpu < len(words)*wordBits; cpu++ {
		if !isSet(cpu) {
			continue
		}
		last := cpu
		for isSet(last + 1) {
			last++
		}
		if last == cpu {
			parts = append(parts, strconv.Itoa(cpu))
		} else {
			parts = append(parts, strconv.Itoa(cpu)+"-"+strconv.Itoa(last))
		}
		cpu = last
	}
	return strings.Join(parts, ",")
}
