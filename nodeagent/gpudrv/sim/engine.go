package sim

import (
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// canCreate applies the driver's constraints to one more GPU instance: it needs
// a legal start, free memory units, compute slices, the profile's maximum and
// engines. The kind is "" when it fits.
func (c card) canCreate(e entry, at gpudrv.Placement) (gpudrv.Kind, string) {
	m := c.model()
	if at.Size != e.size || !slices.Contains(e.starts, at.Start) {
		return gpudrv.Invalid, e.Name + " has no placement " + strconv.Itoa(at.Start) + ":" + strconv.Itoa(at.Size)
	}
	taken := make([]bool, m.memoryUnits)
	sum := e.Profile
	count := 1
	for _, in := range c.Instances {
		o, _ := m.entry(in.Profile)
		for u := in.Start; u < in.Start+o.size; u++ {
			taken[u] = true
		}
		if in.Profile == e.ID {
			count++
		}
		sum.Compute += o.Compute
		sum.Copy += o.Copy
		sum.Decode += o.Decode
		sum.Encode += o.Encode
		sum.JPEG += o.JPEG
		sum.OFA += o.OFA
	}
	for u := at.Start; u < at.Start+at.Size; u++ {
		if taken[u] {
			return gpudrv.NoRoom, "memory unit " + strconv.Itoa(u) + " is taken"
		}
	}
	stock := m.stock()
	switch {
	case sum.Compute > m.computeUnits:
		return gpudrv.NoRoom, "compute slices are used up"
	case count > e.MaxInstances:
		return gpudrv.NoRoom, "no more instances of " + e.Name
	case sum.Copy > stock.Copy || sum.Decode > stock.Decode || sum.Encode > stock.Encode ||
		sum.JPEG > stock.JPEG || sum.OFA > stock.OFA:
		return gpudrv.NoRoom, "engines are used up"
	}
	return "", ""
}

// stock is the whole chip: the profile that takes every compute slice.
func (m model) stock() gpudrv.Profile {
	for _, e := range m.profiles {
		if e.Compute == m.computeUnits {
			return e.Profile
		}
	}
	return gpudrv.Profile{}
}

// instanceID numbers GPU instances by position, as drivers do: on eight units
// the full one is 0, halves are 1 and 2, quarters 3 to 6, eighths from 7 on. Ids
// are reused when the position is.
func (m model) instanceID(at gpudrv.Placement) int {
	return m.memoryUnits/at.Size - 1 + at.Start/at.Size
}

// migUUID depends on GPU, GPU instance and compute instance only, so it may name
// one tenant's device after another's.
func migUUID(gpuUUID string, gi, ci int) string {
	key := gpuUUID + "/" + strconv.Itoa(gi) + "/" + strconv.Itoa(ci)
	return "MIG-" + uuid.NewSHA1(uuidSpace, []byte(key)).String()
}

// describe is the driver's view of an instance.
func (c card) describe(in instance) gpudrv.GPUInstance {
	e, _ := c.model().entry(in.Profile)
	out := gpudrv.GPUInstance{
		ID: in.ID, Profile: in.Profile,
		Placement: gpudrv.Placement{Start: in.Start, Size: e.size},
		Compute:   []gpudrv.ComputeInstance{},
	}
	if in.HasCompute {
		out.Compute = append(out.Compute, gpudrv.ComputeInstance{
			ID: 0, UUID: migUUID(c.UUID, in.ID, 0), Memory: e.Memory, SMs: e.SMs,
		})
	}
	return out
}

// smPair is the step in which MPS grants SMs.
const smPair = 2

// share is the driver's view of a handed-out unit.
func (c card) share(unit int) gpudrv.Share {
	m := c.model()
	total := units.FromBytes(uint64(m.totalBytes))
	if c.Mode.Kind == gpu.MPS {
		sms := m.sms * c.Mode.Percent / 100
		return gpudrv.Share{
			Unit: unit, Memory: total * units.MiB(c.Mode.Percent) / 100,
			SMs: sms / smPair * smPair, SMPercent: c.Mode.Percent,
		}
	}
	n := c.Mode.Shares
	return gpudrv.Share{Unit: unit, Memory: total / units.MiB(n), SMs: m.sms, SMPercent: 100 / n}
}

// holders lists who keeps a part of the card busy. Monitors are not named: the
// driver does not see them as processes.
func (c card) holders(on func(client) bool) (busy bool, named []gpudrv.Holder) {
	for _, cl := range c.Clients {
		if cl.Cut || !on(cl) {
			continue
		}
		busy = true
		if !cl.Monitor {
			named = append(named, gpudrv.Holder{PID: cl.PID, Name: cl.Name})
		}
	}
	return busy, named
}

// occupied lists who keeps the card from a reset or another mode: clients and MPS
// servers.
func (c card) occupied() (busy bool, named []gpudrv.Holder) {
	busy, named = c.holders(anyClient)
	for _, dm := range c.Daemons {
		if dm.Server != 0 {
			busy, named = true, append(named, gpudrv.Holder{PID: dm.Server, Name: serverName})
		}
	}
	return busy, named
}

func (c card) usedBytes() int64 {
	used := c.model().idleBytes
	for _, cl := range c.Clients {
		used += cl.UsedBytes
	}
	for _, dm := range c.Daemons {
		if dm.Server != 0 {
			used += serverBytes
		}
	}
	return min(used, c.model().totalBytes)
}

// defaultDuty is how busy a client is that does not say it, in percent.
const defaultDuty = 25

// duty is the percentage of the time in which the client has work running.
func (cl client) duty() int64 {
	switch {
	case cl.Monitor || cl.Duty < 0:
		return 0
	case cl.Duty == 0:
		return defaultDuty
	default:
		return int64(cl.Duty)
	}
}

// part is the percentage of its device's SMs that a client may use.
func (cl client) part() int64 {
	if cl.Limit > 0 {
		return int64(cl.Limit)
	}
	return 100
}

// load is how busy a part of the card is in thousandths of the time: the sum of
// its clients' duties, at most all of it.
func (c card) load(on func(client) bool) int64 {
	n := int64(0)
	for _, cl := range c.Clients {
		if on(cl) {
			n += cl.duty() * cl.part() / 100
		}
	}
	const perMille = 10
	return min(n, 100) * perMille
}

func anyClient(client) bool { return true }

// loadPercent is how busy the SMs of the card are: each GPU instance counts by
// its part of the SMs.
func (c card) loadPercent() int64 {
	if c.Mode.Kind != gpu.MIG {
		return c.load(anyClient) / 10
	}
	m, sum := c.model(), int64(0)
	for _, in := range c.Instances {
		e, _ := m.entry(in.Profile)
		sum += c.load(func(cl client) bool { return cl.GPUInstance == in.ID }) * int64(e.SMs)
	}
	return sum / int64(m.sms) / 10
}

func (c card) milliwatts() int64 {
	m := c.model()
	return m.idleMilliwatt + (m.limitMilliwatt-m.idleMilliwatt)*c.loadPercent()/100
}
