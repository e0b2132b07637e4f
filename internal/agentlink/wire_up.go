package agentlink

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/units"
)

// absent is how an age that does not exist travels: ages are sent plus one
// microsecond, so that 0 on the wire means "it did not happen".
const absent = -1 * time.Microsecond

func ageOut(d time.Duration) int64 {
	if d < 0 {
		return 0
	}
	return d.Microseconds() + 1
}

func ageIn(us int64) time.Duration {
	if us <= 0 {
		return absent
	}
	return time.Duration(min(us-1, maxAge)) * time.Microsecond
}

// Bounds of what a host may say. They are far above any real one.
const (
	maxGPUs   = 64
	maxUnits  = 64
	maxVCPU   = 1 << 16
	maxRAM    = 1 << 30 // MiB
	maxSlices = 4096
	maxText   = 2048    // bytes
	maxAge    = 1 << 52 // microseconds, more than a century
	maxPort   = 65535
	maxFloors = 64
	maxNamed  = 64 // attributes of an event, readings of a sample
)

// plain refuses text that is too long or that a database or a terminal would
// stumble over.
func plain(texts ...string) error {
	for _, t := range texts {
		if len(t) > maxText {
			return fmt.Errorf("a text of %d bytes is too long", len(t))
		}
		if strings.ContainsFunc(t, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' || r == 0x7f }) {
			return fmt.Errorf("the text %.40q has control characters", t)
		}
	}
	return nil
}

// told is a text that plain accepts, whatever it was made from: names of tenants'
// programs and words of drivers and runtimes are in what a host tells, and one that is
// refused would end every stream that carries it.
func told(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") // nothing of a letter that was cut
	}
	return text
}

// HelloOut maps to the wire.
func HelloOut(h Hello) *agentv1.Hello {
	return &agentv1.Hello{
		BootId: h.BootID, ProcessNonce: h.Nonce, StreamCounter: h.Counter,
		AgentVersion: h.AgentVersion, MachineId: h.MachineID, Timeline: h.Timeline,
	}
}

// HelloIn maps from the wire. Boot id and nonce must be there.
func HelloIn(m *agentv1.Hello) (Hello, error) {
	h := Hello{
		BootID: m.GetBootId(), Nonce: m.GetProcessNonce(), Counter: m.GetStreamCounter(),
		AgentVersion: m.GetAgentVersion(), MachineID: m.GetMachineId(), Timeline: m.GetTimeline(),
	}
	if err := plain(h.BootID, h.Nonce, h.AgentVersion, h.MachineID); err != nil {
		return Hello{}, fmt.Errorf("hello: %w", err)
	}
	if h.BootID == "" || h.Nonce == "" {
		return Hello{}, fmt.Errorf("hello: boot id or process nonce is missing")
	}
	return h, nil
}

// InventoryOut maps to the wire.
func InventoryOut(v Inventory) *agentv1.Inventory {
	m := &agentv1.Inventory{
		Failed: v.Failed, Failure: told(v.Failure), Vcpu: uint32(v.VCPU), RamMib: int64(v.RAM),
		DriverName: v.Driver, DriverVersion: v.DriverVersion, Simulated: v.Simulated,
		Runtime: v.Runtime, Condition: string(v.Condition), ConditionCause: told(v.ConditionCause),
		Reach: &agentv1.Inventory_Reach{
			Address: v.Reach.Address, SshPort: uint32(v.Reach.SSHPort), SshHostKey: v.Reach.SSHHostKey,
			FirstPort: uint32(v.Reach.FirstPort), LastPort: uint32(v.Reach.LastPort),
		},
	}
	for _, f := range v.BelowFloor[:min(len(v.BelowFloor), maxFloors)] {
		m.BelowFloor = append(m.BelowFloor, told(f))
	}
	for _, g := range v.GPUs {
		m.Gpus = append(m.Gpus, gpuOut(g))
	}
	return m
}

// InventoryIn maps from the wire; modes must parse and UUIDs be unique.
func InventoryIn(m *agentv1.Inventory) (Inventory, error) {
	v := Inventory{
		Failed: m.GetFailed(), Failure: m.GetFailure(), VCPU: int(m.GetVcpu()), RAM: units.MiB(m.GetRamMib()),
		Driver: m.GetDriverName(), DriverVersion: m.GetDriverVersion(), Simulated: m.GetSimulated(),
		Runtime: m.GetRuntime(), BelowFloor: m.GetBelowFloor(),
		Condition: Condition(m.GetCondition()), ConditionCause: m.GetConditionCause(),
	}
	var err error
	if v.Reach, err = reachIn(m.GetReach()); err != nil {
		return Inventory{}, fmt.Errorf("inventory: %w", err)
	}
	if !conditions[v.Condition] || len(v.BelowFloor) > maxFloors {
		return Inventory{}, fmt.Errorf("inventory: condition %q, %d floors are out of range", v.Condition, len(v.BelowFloor))
	}
	if len(m.GetGpus()) > maxGPUs || v.VCPU > maxVCPU || v.RAM < 0 || v.RAM > maxRAM {
		return Inventory{}, fmt.Errorf("inventory: %d gpus, %d vcpu, %d MiB are out of range", len(m.GetGpus()), v.VCPU, v.RAM)
	}
	if err := plain(append(v.BelowFloor, v.Failure, v.Driver, v.DriverVersion, v.Runtime, v.ConditionCause)...); err != nil {
		return Inventory{}, fmt.Errorf("inventory: %w", err)
	}
	seen := map[string]bool{}
	for _, w := range m.GetGpus() {
		g, err := gpuIn(w, v.Simulated)
		if err != nil {
			return Inventory{}, fmt.Errorf("inventory: gpu %q: %w", w.GetUuid(), err)
		}
		if g.Device.UUID == "" || seen[g.Device.UUID] {
			return Inventory{}, fmt.Errorf("inventory: gpu %q is unnamed or there twice", g.Device.UUID)
		}
		seen[g.Device.UUID] = true
		v.GPUs = append(v.GPUs, g)
	}
	return v, nil
}

var conditions = map[Condition]bool{ConditionGood: true, ConditionCordon: true, ConditionFailed: true}

func reachIn(m *agentv1.Inventory_Reach) (Reach, error) {
	r := Reach{
		Address: m.GetAddress(), SSHPort: int(m.GetSshPort()), SSHHostKey: m.GetSshHostKey(),
		FirstPort: int(m.GetFirstPort()), LastPort: int(m.GetLastPort()),
	}
	for _, p := range []int{r.SSHPort, r.FirstPort, r.LastPort} {
		if p < 0 || p > maxPort {
			return Reach{}, fmt.Errorf("port %d is out of range", p)
		}
	}
	if r.LastPort < r.FirstPort {
		return Reach{}, fmt.Errorf("the port range %d to %d is empty", r.FirstPort, r.LastPort)
	}
	return r, plain(r.Address, r.SSHHostKey)
}

func gpuOut(g InventoryGPU) *agentv1.GPU {
	d := g.Device
	m := &agentv1.GPU{
		Uuid: d.UUID, Pci: d.PCI, Ordinal: uint32(g.Ordinal), Model: d.Model, Name: d.Name,
		MemoryMib: int64(d.Memory), SmCount: uint32(d.SMs), Mode: g.Mode.String(), ModeDesired: g.Desired.String(),
		Health: g.Health, HealthCause: told(g.HealthCause), HealthDetail: told(g.HealthDetail),
		ModeState: g.ModeState, ModeProblem: told(g.ModeProblem),
		MemorySlices: uint32(d.MemorySlices), ComputeSlices: uint32(d.ComputeUnits),
		Media: enginesOut(d.Engines), PlacementsSource: g.PlacementsSource,
		Capabilities: &agentv1.Capabilities{
			Mig: d.Capabilities.MIG, ModeNeedsReset: d.Capabilities.ModeNeedsReset, Mps: d.Capabilities.MPS,
			ComputeCapability: d.Capabilities.ComputeCapability, EnforcedMemoryLimit: d.Capabilities.EnforcedMemoryLimit,
		},
	}
	for _, p := range d.Profiles {
		w := &agentv1.Profile{
			Id: int32(p.ID), Name: p.Name, Compute: uint32(p.Compute), Size: uint32(p.MemoryUnits),
			MemoryMib: int64(p.Memory), SmCount: uint32(p.SMs), MaxInstances: uint32(p.MaxInstances),
			Media: enginesOut(p.Engines),
		}
		for _, at := range p.Placements {
			w.Starts = append(w.Starts, uint32(at.Start))
		}
		m.Profiles = append(m.Profiles, w)
	}
	return m
}

func gpuIn(m *agentv1.GPU, simulated bool) (InventoryGPU, error) {
	mode, err := gpu.ParseMode(m.GetMode())
	if err != nil {
		return InventoryGPU{}, err
	}
	desired, err := modeIn(m.GetModeDesired())
	if err != nil {
		return InventoryGPU{}, err
	}
	if err := plain(m.GetUuid(), m.GetPci(), m.GetModel(), m.GetName(), m.GetHealth(),
		m.GetHealthCause(), m.GetHealthDetail(), m.GetModeState(), m.GetModeProblem()); err != nil {
		return InventoryGPU{}, err
	}
	c := m.GetCapabilities()
	d := gpu.Device{
		UUID: m.GetUuid(), PCI: m.GetPci(), Model: m.GetModel(), Name: m.GetName(),
		Memory: units.MiB(m.GetMemoryMib()), SMs: int(m.GetSmCount()),
		MemorySlices: int(m.GetMemorySlices()), ComputeUnits: int(m.GetComputeSlices()),
		Engines: enginesIn(m.GetMedia()), Simulated: simulated,
		Capabilities: gpu.Capabilities{
			MIG: c.GetMig(), ModeNeedsReset: c.GetModeNeedsReset(), MPS: c.GetMps(),
			ComputeCapability: c.GetComputeCapability(), EnforcedMemoryLimit: c.GetEnforcedMemoryLimit(),
		},
	}
	for _, p := range m.GetProfiles() {
		q := gpu.Profile{
			ID: int(p.GetId()), Name: p.GetName(), Compute: int(p.GetCompute()), MemoryUnits: int(p.GetSize()),
			Memory: units.MiB(p.GetMemoryMib()), SMs: int(p.GetSmCount()), MaxInstances: int(p.GetMaxInstances()),
			Engines: enginesIn(p.GetMedia()),
		}
		for _, s := range p.GetStarts() {
			q.Placements = append(q.Placements, gpu.Placement{Start: int(s), Size: q.MemoryUnits})
		}
		d.Profiles = append(d.Profiles, q)
	}
	if units := d.Units(mode); units < 1 || units > maxUnits || m.GetOrdinal() >= maxGPUs || d.Memory <= 0 || d.Memory > maxRAM {
		return InventoryGPU{}, fmt.Errorf("%d units in mode %s, ordinal %d, %d MiB are out of range", units, mode, m.GetOrdinal(), d.Memory)
	}
	return InventoryGPU{
		Device: d, Ordinal: int(m.GetOrdinal()), Mode: mode, Desired: desired,
		Health: m.GetHealth(), HealthCause: m.GetHealthCause(), HealthDetail: m.GetHealthDetail(),
		ModeState: m.GetModeState(), ModeProblem: m.GetModeProblem(), PlacementsSource: m.GetPlacementsSource(),
	}, nil
}

// modeIn reads a mode; "" is the zero mode.
func modeIn(text string) (gpu.Mode, error) {
	if text == "" {
		return gpu.Mode{}, nil
	}
	return gpu.ParseMode(text)
}

func enginesOut(e gpu.Engines) *agentv1.MediaStock {
	return &agentv1.MediaStock{
		CopyEngines: uint32(e.Copy), Decoders: uint32(e.Decode), Encoders: uint32(e.Encode),
		Jpeg: uint32(e.JPEG), Ofa: uint32(e.OFA),
	}
}

func enginesIn(m *agentv1.MediaStock) gpu.Engines {
	return gpu.Engines{
		Copy: int(m.GetCopyEngines()), Decode: int(m.GetDecoders()), Encode: int(m.GetEncoders()),
		JPEG: int(m.GetJpeg()), OFA: int(m.GetOfa()),
	}
}

// ObservedOut maps to the wire.
func ObservedOut(v Observed) *agentv1.Observed {
	m := &agentv1.Observed{
		Full: v.Full, Failed: v.Failed, Failure: told(v.Failure), AppliedVersion: v.Applied,
		Hash: v.Hash, Unchanged: v.Unchanged, Gone: tombstonesOut(v.Gone),
	}
	for _, s := range v.Slices {
		m.Slices = append(m.Slices, sliceOut(s))
	}
	return m
}

// ObservedIn maps from the wire; a slice without key or with an unknown state is
// refused.
func ObservedIn(m *agentv1.Observed) (Observed, error) {
	v := Observed{
		Full: m.GetFull(), Failed: m.GetFailed(), Failure: m.GetFailure(), Applied: m.GetAppliedVersion(),
		Hash: m.GetHash(), Unchanged: m.GetUnchanged(),
	}
	if len(m.GetSlices()) > maxSlices || len(m.GetGone()) > maxSlices {
		return Observed{}, fmt.Errorf("observed: %d slices and %d tombstones are too many", len(m.GetSlices()), len(m.GetGone()))
	}
	err := plain(v.Failure, v.Hash)
	if err != nil {
		return Observed{}, fmt.Errorf("observed: %w", err)
	}
	if v.Gone, err = tombstonesIn(m.GetGone()); err != nil {
		return Observed{}, fmt.Errorf("observed: %w", err)
	}
	for _, w := range m.GetSlices() {
		s, err := sliceIn(w)
		if err != nil {
			return Observed{}, fmt.Errorf("observed: slice %q: %w", w.GetKey(), err)
		}
		v.Slices = append(v.Slices, s)
	}
	return v, nil
}

func sliceOut(s Slice) *agentv1.SliceReport {
	m := &agentv1.SliceReport{
		Key: told(s.Key), AssignmentId: s.Assignment.String(), Fence: s.Fence, Run: int32(s.Run),
		State: string(s.State), RunState: string(s.RunState), RunAgeUs: ageOut(s.Age), EndedAgeUs: ageOut(s.EndedAge),
		ExitCode: int32(s.ExitCode), ReasonCode: told(s.Reason.Code), ReasonDetail: told(s.Reason.Detail),
		Progress: told(s.Progress), Credited: s.Credited,
	}
	for _, t := range s.Slots {
		m.Slots = append(m.Slots, &agentv1.SlotReport{
			GpuUuid: t.Slot.GPU, GpuMode: t.Slot.Mode.String(), Profile: t.Slot.Name,
			Start: uint32(t.Slot.Start), Size: uint32(t.Slot.Size),
			DeviceUuid: t.Device, MemoryMib: int64(t.Memory), SmCount: uint32(t.SMs),
		})
	}
	return m
}

var sliceStates = map[SliceState]bool{
	SliceClaimed: true, SlicePresent: true, SliceReclaiming: true,
	SliceOrphan: true, SliceQuarantined: true, SliceUnknown: true,
}

var runStates = map[instance.RunState]bool{
	instance.RunNone: true, instance.RunPreparing: true, instance.RunRunning: true,
	instance.RunExited: true, instance.RunFailed: true,
}

func sliceIn(m *agentv1.SliceReport) (Slice, error) {
	s := Slice{
		Key: m.GetKey(), Fence: m.GetFence(), Run: int(m.GetRun()),
		State: SliceState(m.GetState()), RunState: instance.RunState(m.GetRunState()),
		Age: ageIn(m.GetRunAgeUs()), EndedAge: ageIn(m.GetEndedAgeUs()), ExitCode: int(m.GetExitCode()),
		Reason:   instance.Problem{Code: m.GetReasonCode(), Detail: m.GetReasonDetail()},
		Progress: m.GetProgress(), Credited: m.GetCredited(),
	}
	if err := plain(s.Key, s.Reason.Code, s.Reason.Detail, s.Progress); err != nil {
		return Slice{}, err
	}
	if s.Key == "" || !sliceStates[s.State] || !runStates[s.RunState] {
		return Slice{}, fmt.Errorf("no key, or unknown state %q, %q", s.State, s.RunState)
	}
	if err := s.Assignment.UnmarshalText([]byte(m.GetAssignmentId())); err != nil {
		return Slice{}, err
	}
	for _, t := range m.GetSlots() {
		mode, err := modeIn(t.GetGpuMode())
		if err != nil {
			return Slice{}, err
		}
		if err := plain(t.GetGpuUuid(), t.GetProfile(), t.GetDeviceUuid()); err != nil {
			return Slice{}, err
		}
		s.Slots = append(s.Slots, SliceSlot{
			Slot: gpu.Slot{
				GPU: t.GetGpuUuid(), Mode: mode, Name: t.GetProfile(), Start: int(t.GetStart()), Size: int(t.GetSize()),
			},
			Device: t.GetDeviceUuid(), Memory: units.MiB(t.GetMemoryMib()), SMs: int(t.GetSmCount()),
		})
	}
	return s, nil
}

func tombstonesOut(list []Tombstone) []*agentv1.Tombstone {
	var out []*agentv1.Tombstone
	for _, t := range list {
		out = append(out, &agentv1.Tombstone{AssignmentId: t.Assignment.String(), Fence: t.Fence})
	}
	return out
}

func tombstonesIn(list []*agentv1.Tombstone) ([]Tombstone, error) {
	var out []Tombstone
	for _, m := range list {
		a, err := id.Parse[id.Assignment](m.GetAssignmentId())
		if err != nil {
			return nil, fmt.Errorf("tombstone: %w", err)
		}
		out = append(out, Tombstone{Assignment: a, Fence: m.GetFence()})
	}
	return out, nil
}
