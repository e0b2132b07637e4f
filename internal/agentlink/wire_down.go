package agentlink

import (
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
)

// WelcomeOut maps to the wire.
func WelcomeOut(w Welcome) *agentv1.HelloAck {
	return &agentv1.HelloAck{
		Session: w.Session, Timeline: w.Timeline,
		ProofIntervalMs: uint32(w.ProofEvery.Milliseconds()), FullIntervalMs: uint32(w.FullEvery.Milliseconds()),
	}
}

// WelcomeIn maps from the wire; the intervals must be positive.
func WelcomeIn(m *agentv1.HelloAck) (Welcome, error) {
	w := Welcome{
		Session: m.GetSession(), Timeline: m.GetTimeline(),
		ProofEvery: time.Duration(m.GetProofIntervalMs()) * time.Millisecond,
		FullEvery:  time.Duration(m.GetFullIntervalMs()) * time.Millisecond,
	}
	if w.Session <= 0 || w.ProofEvery <= 0 || w.FullEvery <= 0 {
		return Welcome{}, fmt.Errorf("hello ack: session %d, proof every %s, full every %s", w.Session, w.ProofEvery, w.FullEvery)
	}
	return w, nil
}

// RefusalOut maps to the wire.
func RefusalOut(r Refusal) *agentv1.Refused {
	return &agentv1.Refused{Code: r.Code, Detail: r.Detail, Retry: r.Retry}
}

// RefusalIn maps from the wire.
func RefusalIn(m *agentv1.Refused) Refusal {
	return Refusal{Code: m.GetCode(), Detail: m.GetDetail(), Retry: m.GetRetry()}
}

// DesiredOut maps to the wire.
func DesiredOut(d Desired) *agentv1.Desired {
	m := &agentv1.Desired{Version: d.Version, Timeline: d.Timeline, Tombstones: tombstonesOut(d.Tombstones), SshAuthorities: d.SSHAuthorities}
	for _, o := range d.Modes {
		m.Modes = append(m.Modes, &agentv1.ModeOrder{GpuUuid: o.GPU, Mode: o.Mode.String(), Epoch: o.Epoch})
	}
	for _, o := range d.Orders {
		w := &agentv1.DesiredSlice{
			AssignmentId: o.Assignment.String(), Fence: o.Fence, InstanceId: o.Instance.String(), Run: int32(o.Run),
			Image: o.Image, Command: o.Command, Env: o.Env, Vcpu: uint32(o.VCPU), RamMib: int64(o.RAM),
			Name: o.Name, SshKeys: o.SSHKeys, ShmMib: int64(o.Shm), HasSecrets: o.HasSecrets,
		}
		if !o.Org.IsZero() {
			w.OrgId = o.Org.String()
		}
		for _, p := range o.Ports {
			w.Ports = append(w.Ports, &agentv1.Port{Container: uint32(p.Container), Host: uint32(p.Host), Protocol: p.Protocol})
		}
		for _, s := range o.Slots {
			w.Slots = append(w.Slots, &agentv1.DesiredSlot{
				GpuUuid: s.GPU, GpuMode: s.Mode.String(), ProfileId: int32(s.Profile), Profile: s.Name,
				Start: uint32(s.Start), Size: uint32(s.Size),
			})
		}
		m.Slices = append(m.Slices, w)
	}
	return m
}

// DesiredIn maps from the wire. An order without slots or with an unknown mode
// refuses the whole set: a part of a desired set is no desired set.
func DesiredIn(m *agentv1.Desired) (Desired, error) {
	d := Desired{Version: m.GetVersion(), Timeline: m.GetTimeline(), SSHAuthorities: m.GetSshAuthorities()}
	var err error
	if d.Tombstones, err = tombstonesIn(m.GetTombstones()); err != nil {
		return Desired{}, fmt.Errorf("desired: %w", err)
	}
	for _, w := range m.GetSlices() {
		o, err := orderIn(w)
		if err != nil {
			return Desired{}, fmt.Errorf("desired: slice %q: %w", w.GetAssignmentId(), err)
		}
		d.Orders = append(d.Orders, o)
	}
	for _, w := range m.GetModes() {
		mode, err := gpu.ParseMode(w.GetMode())
		if err != nil {
			return Desired{}, fmt.Errorf("desired: mode of gpu %q: %w", w.GetGpuUuid(), err)
		}
		d.Modes = append(d.Modes, ModeOrder{GPU: w.GetGpuUuid(), Mode: mode, Epoch: w.GetEpoch()})
	}
	return d, nil
}

func orderIn(m *agentv1.DesiredSlice) (Order, error) {
	o := Order{
		Fence: m.GetFence(), Run: int(m.GetRun()), Image: m.GetImage(), Command: m.GetCommand(), Env: m.GetEnv(),
		VCPU: int(m.GetVcpu()), RAM: units.MiB(m.GetRamMib()),
		Name: m.GetName(), SSHKeys: m.GetSshKeys(), Shm: units.MiB(m.GetShmMib()), HasSecrets: m.GetHasSecrets(),
	}
	for _, p := range m.GetPorts() {
		o.Ports = append(o.Ports, Port{Container: int(p.GetContainer()), Host: int(p.GetHost()), Protocol: p.GetProtocol()})
	}
	if err := o.Org.UnmarshalText([]byte(m.GetOrgId())); err != nil {
		return Order{}, err
	}
	var err error
	if o.Assignment, err = id.Parse[id.Assignment](m.GetAssignmentId()); err != nil {
		return Order{}, err
	}
	if o.Instance, err = id.Parse[id.Instance](m.GetInstanceId()); err != nil {
		return Order{}, err
	}
	if len(m.GetSlots()) == 0 {
		return Order{}, fmt.Errorf("no slots")
	}
	for _, s := range m.GetSlots() {
		mode, err := gpu.ParseMode(s.GetGpuMode())
		if err != nil {
			return Order{}, err
		}
		o.Slots = append(o.Slots, gpu.Slot{
			GPU: s.GetGpuUuid(), Mode: mode, Profile: int(s.GetProfileId()), Name: s.GetProfile(),
			Start: int(s.GetStart()), Size: int(s.GetSize()),
		})
	}
	return o, nil
}
