package placement

import (
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
)

// Room is how many more such requests of the organization would fit now. It is a
// forecast of one request repeated, not a promise.
func Room(s Snapshot, r Request) int {
	total := 0
	for _, h := range s.Hosts {
		if hostFilter(s.Tenancy, h, r) == "" {
			total += hostRoom(h, r)
		}
	}
	return total
}

func hostRoom(h Host, r Request) int {
	var perGPU []int
	for _, g := range h.GPUs {
		if n := gpuRoom(g, r); n > 0 {
			perGPU = append(perGPU, n)
		}
	}
	n := groups(perGPU, max(r.Count, 1))
	if r.VCPU > 0 {
		n = min(n, (h.VCPU-h.VCPUUsed)/r.VCPU)
	}
	if r.RAM > 0 {
		n = min(n, int((h.RAM-h.RAMUsed)/r.RAM))
	}
	return n
}

// gpuRoom is how many slots of the want one GPU still takes.
func gpuRoom(g GPU, r Request) int {
	n := 0
	held := append([]gpu.Slot(nil), g.Held...)
	for {
		slot, _, f := planGPU(GPU{
			ID: g.ID, Device: g.Device, Mode: g.Mode, Settled: g.Settled, Healthy: g.Healthy,
			Organization: g.Organization, Held: held,
		}, r)
		if f != "" {
			return n
		}
		if slot.Mode.Kind != gpu.MIG {
			// Units of a grid are alike.
			return g.Device.Units(g.Mode) - len(g.Held)
		}
		held = append(held, slot)
		n++
	}
}

// groups is how many times one slot can be taken from each of size different GPUs:
// the largest n such that n groups find their slots, no GPU serving one twice.
func groups(perGPU []int, size int) int {
	low, high := 0, 0
	for _, n := range perGPU {
		high += n
	}
	for low < high {
		try := (low + high + 1) / 2
		sum := 0
		for _, n := range perGPU {
			sum += min(n, try)
		}
		if sum >= try*size {
			low = try
		} else {
			high = try - 1
		}
	}
	return low
}

// CouldEver reports whether some host of the snapshot could carry the request if
// nothing else was held, bound or silent: what it lacks is time, not hardware.
func CouldEver(s Snapshot, r Request) bool {
	for _, h := range s.Hosts {
		if h.State == host.Lost || h.State == host.Retired || h.VCPU < r.VCPU || h.RAM < r.RAM {
			continue
		}
		fit := 0
		for _, g := range h.GPUs {
			if g.Device.Model != r.Model {
				continue
			}
			if _, err := gpu.Feasible(g.Device, g.Mode, nil, r.Want); err == nil {
				fit++
			}
		}
		if fit >= max(r.Count, 1) {
			return true
		}
	}
	return false
}

// Simulated reports whether a GPU that the request could use is no real one. Where none
// is in its mode now, all of its model are asked: a mode can change.
func Simulated(s Snapshot, r Request) bool {
	inMode, simulated := false, false
	for _, h := range s.Hosts {
		for _, g := range h.GPUs {
			if g.Device.Model != r.Model {
				continue
			}
			if g.Mode == r.Want.Mode && !inMode {
				inMode, simulated = true, false
			}
			if g.Mode == r.Want.Mode || !inMode {
				simulated = simulated || g.Device.Simulated
			}
		}
	}
	return simulated
}
