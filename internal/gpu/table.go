package gpu

import (
	"strconv"
	"sync"
)

// Len is the number of states, the empty one included.
func (g *Geometry) Len() int { return len(g.keys) }

// Profiles returns the profiles in the order of the report. Do not change them.
func (g *Geometry) Profiles() []Profile { return g.profiles }

func (g *Geometry) index(profileID int) (int, bool) {
	for i, p := range g.profiles {
		if p.ID == profileID {
			return i, true
		}
	}
	return 0, false
}

// Mask returns the taken memory units of a state, bit 0 for unit 0.
func (g *Geometry) Mask(s State) uint64 { return g.keys[s].mask }

// Compute returns the taken compute slices of a state.
func (g *Geometry) Compute(s State) int { return int(g.keys[s].used[0]) }

// Choices returns the legal places for a profile in a state, cheapest first and
// the higher start among equals; none when it does not fit or is unknown. The
// slice belongs to the table: do not change it.
func (g *Geometry) Choices(s State, profileID int) []Choice {
	i, ok := g.index(profileID)
	if !ok {
		return nil
	}
	return g.moves[s][i]
}

// Remaining is how many more instances of one profile alone a state could take.
func (g *Geometry) Remaining(s State, profileID int) int {
	i, ok := g.index(profileID)
	if !ok {
		return 0
	}
	return g.left[s][i]
}

// Placeable lists the ids of the profiles that a state could take one more of,
// in the order of the report.
func (g *Geometry) Placeable(s State) []int {
	var out []int
	for i, p := range g.profiles {
		if g.left[s][i] > 0 {
			out = append(out, p.ID)
		}
	}
	return out
}

// Loss is the part of the empty GPU's capacity that a state has lost, summed
// over the profiles, in millionths: 0 when empty, at most a million a profile.
// The cost of a choice is the difference of two losses but for rounding.
func (g *Geometry) Loss(s State) int {
	sum := 0
	for p, whole := range g.left[0] {
		if whole > 0 {
			sum += (whole - g.left[s][p]) * costScale / whole
		}
	}
	return sum
}

// Add returns the state after one more slot, or false when it does not fit.
func (g *Geometry) Add(s State, slot Slot) (State, bool) {
	for _, c := range g.Choices(s, slot.Profile) {
		if c.Placement == slot.Placement() {
			return c.Next, true
		}
	}
	return 0, false
}

// Remove returns the state after a held slot is gone, or false when the state
// cannot hold it.
func (g *Geometry) Remove(s State, slot Slot) (State, bool) {
	i, ok := g.index(slot.Profile)
	if !ok {
		return 0, false
	}
	k, m := g.keys[s], mask(slot.Placement())
	if k.mask&m != m {
		return 0, false
	}
	k.mask &^= m
	for r, res := range g.tracked {
		if int(k.used[r]) < res.need[i] {
			return 0, false
		}
		k.used[r] -= uint8(res.need[i])
	}
	id, ok := g.ids[k]
	return id, ok
}

// StateOf returns the state in which the slots are held. The error is a
// *Refusal: UnknownProfile, or NoRoom when they cannot all be held.
func (g *Geometry) StateOf(held []Slot) (State, error) {
	s := State(0)
	for _, h := range held {
		if _, ok := g.index(h.Profile); !ok {
			return 0, refuse(UnknownProfile, "no profile with id %d", h.Profile)
		}
		next, ok := g.Add(s, h)
		if !ok {
			return 0, refuse(NoRoom, "%s does not fit beside the slots before it", h)
		}
		s = next
	}
	return s, nil
}

// cost is the cost of a start for a profile in a state, for ordering only.
func (g *Geometry) cost(s State, profileID, start int) int {
	for _, c := range g.Choices(s, profileID) {
		if c.Placement.Start == start {
			return c.Cost
		}
	}
	return 0
}

// maxTables bounds the memo below; a fleet has a handful of profile reports.
const maxTables = 128

// tables remembers geometries by profile report: building one takes about a
// millisecond, and GPUs of one model and driver share it.
var tables = struct {
	sync.Mutex
	by map[string]*Geometry
}{by: map[string]*Geometry{}}

// GeometryOf returns the table of a device, shared by all devices with the same
// report. It fails as NewGeometry does.
func GeometryOf(d Device) (*Geometry, error) {
	sig := signature(d)
	tables.Lock()
	g := tables.by[sig]
	tables.Unlock()
	if g != nil {
		return g, nil
	}
	g, err := NewGeometry(d)
	if err != nil {
		return nil, err
	}
	tables.Lock()
	defer tables.Unlock()
	if len(tables.by) >= maxTables {
		clear(tables.by)
	}
	tables.by[sig] = g
	return g, nil
}

// signature is equal exactly for devices whose reports give equal tables.
func signature(d Device) string {
	b := make([]byte, 0, 512)
	add := func(nums ...int) {
		for _, n := range nums {
			b = strconv.AppendInt(b, int64(n), 36)
			b = append(b, ',')
		}
		b = append(b, ';')
	}
	add(d.MemorySlices, d.ComputeUnits)
	add(d.Engines.Copy, d.Engines.Decode, d.Engines.Encode, d.Engines.JPEG, d.Engines.OFA)
	for _, p := range d.Profiles {
		b = append(b, p.Name...)
		add(p.ID, p.Compute, p.MemoryUnits, int(p.Memory), p.SMs, p.MaxInstances)
		add(p.Engines.Copy, p.Engines.Decode, p.Engines.Encode, p.Engines.JPEG, p.Engines.OFA)
		for _, at := range p.Placements {
			add(at.Start, at.Size)
		}
	}
	return string(b)
}
