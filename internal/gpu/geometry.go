package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Bounds of a geometry: reports come from hosts, so absurd ones are refused
// before they cost memory.
const (
	maxMemoryUnits = 64
	maxProfiles    = 64
	maxStates      = 50_000
	maxTracked     = 16
	costScale      = 1_000_000
)

// ErrGeometry marks a profile report that no table can be built from.
var ErrGeometry = errors.New("unusable profile report")

// State is a state of use of one geometry: which memory units are taken, how
// many compute slices, and the resources whose limits can bind. 0 is empty.
type State int

// Choice is one legal place for a profile in a state. Cost is what the choice
// takes away from later requests: over all profiles, the part of the empty GPU's
// capacity that is lost, in millionths.
type Choice struct {
	Placement Placement
	Cost      int
	Next      State
}

// Geometry is the table of all states of use of a GPU with a given profile
// report, with every legal move. It is immutable and shared by equal GPUs.
type Geometry struct {
	profiles []Profile
	tracked  []resource
	keys     []key
	ids      map[key]State
	moves    [][][]Choice // state, profile index: cheapest first
	left     [][]int      // state, profile index: how many more fit
}

// key identifies a state: the memory mask and the use of tracked resources, of
// which the first is compute.
type key struct {
	mask uint64
	used [maxTracked]uint8
}

// resource is one counted limit: use per instance of each profile, and stock.
type resource struct {
	need  []int
	stock int
}

// NewGeometry builds the table for a device's profile report. It fails with
// ErrGeometry if the report is empty, inconsistent or absurdly large.
func NewGeometry(d Device) (*Geometry, error) {
	if err := checkReport(d); err != nil {
		return nil, err
	}
	g := &Geometry{profiles: slices.Clone(d.Profiles)}
	compute := resource{stock: d.ComputeUnits}
	for _, p := range d.Profiles {
		compute.need = append(compute.need, p.Compute)
	}
	g.tracked = []resource{compute}
	if err := g.explore(); err != nil {
		return nil, err
	}
	binding := g.binding(limits(d))
	if len(binding) > 0 {
		g.tracked = append(g.tracked, binding...)
		if err := g.explore(); err != nil {
			return nil, err
		}
	}
	g.weigh()
	return g, nil
}

func checkReport(d Device) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w of %s: %s", ErrGeometry, d.Model, fmt.Sprintf(format, args...))
	}
	switch {
	case len(d.Profiles) == 0 || len(d.Profiles) > maxProfiles:
		return bad("%d profiles", len(d.Profiles))
	case d.MemorySlices < 1 || d.MemorySlices > maxMemoryUnits:
		return bad("%d memory units", d.MemorySlices)
	case d.ComputeUnits < 1 || d.ComputeUnits > maxMemoryUnits:
		return bad("%d compute slices", d.ComputeUnits)
	}
	seen := map[int]bool{}
	for _, p := range d.Profiles {
		if seen[p.ID] {
			return bad("profile id %d twice", p.ID)
		}
		seen[p.ID] = true
		if p.Compute < 0 || p.Compute > maxMemoryUnits || p.MaxInstances < 0 {
			return bad("profile %s has %d compute slices, at most %d", p.Name, p.Compute, p.MaxInstances)
		}
		for _, n := range p.Engines.list() {
			if n < 0 || n > maxMemoryUnits {
				return bad("profile %s has %d engines of a kind", p.Name, n)
			}
		}
		for _, at := range p.Placements {
			if at.Start < 0 || at.Size < 1 || at.Start+at.Size > d.MemorySlices {
				return bad("profile %s placed at %d:%d", p.Name, at.Start, at.Size)
			}
		}
	}
	return nil
}

// limits lists the limits beside memory and compute: one per profile maximum,
// one per engine kind.
func limits(d Device) []resource {
	var out []resource
	for i, p := range d.Profiles {
		need := make([]int, len(d.Profiles))
		need[i] = 1
		out = append(out, resource{need: need, stock: p.MaxInstances})
	}
	for kind, stock := range d.Engines.list() {
		need := make([]int, len(d.Profiles))
		for i, p := range d.Profiles {
			need[i] = p.Engines.list()[kind]
		}
		out = append(out, resource{need: need, stock: stock})
	}
	return out
}

func mask(p Placement) uint64 { return (uint64(1)<<p.Size - 1) << p.Start }

// step returns the state after one more instance, or false if it does not fit.
func (g *Geometry) step(k key, profile int, at Placement) (key, bool) {
	m := mask(at)
	if k.mask&m != 0 {
		return key{}, false
	}
	k.mask |= m
	for i, r := range g.tracked {
		n := int(k.used[i]) + r.need[profile]
		if n > r.stock || n > 255 {
			return key{}, false
		}
		k.used[i] = uint8(n)
	}
	return k, true
}

// explore finds every reachable state. State 0 is empty; the others are in
// ascending order of their mask, so that each move leads to a higher number.
func (g *Geometry) explore() error {
	if len(g.tracked) > maxTracked {
		return fmt.Errorf("%w: %d binding limits", ErrGeometry, len(g.tracked))
	}
	seen := map[key]bool{{}: true}
	queue := []key{{}}
	for at := 0; at < len(queue); at++ {
		for i, p := range g.profiles {
			for _, pl := range p.Placements {
				next, ok := g.step(queue[at], i, pl)
				if !ok || seen[next] {
					continue
				}
				if len(queue) == maxStates {
					return fmt.Errorf("%w: more than %d states", ErrGeometry, maxStates)
				}
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	slices.SortFunc(queue, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.mask, b.mask), slices.Compare(a.used[:], b.used[:]))
	})
	g.keys = queue
	g.ids = make(map[key]State, len(queue))
	for i, k := range queue {
		g.ids[k] = State(i)
	}
	return nil
}

// binding keeps the limits that memory and compute alone would let requests
// break: only these need to be part of a state. It finds the highest use of each
// by the longest path through the states, which are in topological order.
func (g *Geometry) binding(all []resource) []resource {
	var out []resource
	for _, r := range all {
		most := make([]int, len(g.keys))
		highest := 0
		for s, k := range g.keys {
			highest = max(highest, most[s])
			for i, p := range g.profiles {
				for _, pl := range p.Placements {
					if next, ok := g.step(k, i, pl); ok {
						n := g.ids[next]
						most[n] = max(most[n], most[s]+r.need[i])
					}
				}
			}
		}
		if highest > r.stock {
			out = append(out, r)
		}
	}
	return out
}

// weigh fills the moves with their costs, from the fullest states down.
func (g *Geometry) weigh() {
	g.moves = make([][][]Choice, len(g.keys))
	g.left = make([][]int, len(g.keys))
	for s := len(g.keys) - 1; s >= 0; s-- {
		g.moves[s] = make([][]Choice, len(g.profiles))
		g.left[s] = make([]int, len(g.profiles))
		for i, p := range g.profiles {
			for _, pl := range p.Placements {
				next, ok := g.step(g.keys[s], i, pl)
				if !ok {
					continue
				}
				id := g.ids[next]
				g.moves[s][i] = append(g.moves[s][i], Choice{Placement: pl, Next: id})
				g.left[s][i] = max(g.left[s][i], 1+g.left[id][i])
			}
		}
	}
	for s := range g.moves {
		for i := range g.moves[s] {
			g.price(State(s), g.moves[s][i])
		}
	}
}

func (g *Geometry) price(s State, choices []Choice) {
	for c := range choices {
		for p, whole := range g.left[0] {
			if whole > 0 {
				lost := g.left[s][p] - g.left[choices[c].Next][p]
				choices[c].Cost += lost * costScale / whole
			}
		}
	}
	slices.SortFunc(choices, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(b.Placement.Start, a.Placement.Start))
	})
}
