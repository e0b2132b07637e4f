package placement

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
)

// Plan chooses the slots that take least from later requests: no fresh binding of
// a host or GPU to an organization where a bound one has room, then the smallest
// loss of placeable shapes, then the fullest GPU or host that still fits. The
// Explanation counts every GPU under the first filter that turned it away.
func Plan(s Snapshot, r Request) (Decision, Explanation) {
	var best candidate
	var ex Explanation
	known := memo{}
	for _, h := range s.Hosts {
		c, ok := planHost(s.Tenancy, h, r, known, &ex)
		if ok && (best.empty() || c.less(best)) {
			best = c
		}
	}
	if best.empty() {
		ex.lookElsewhere(s, r)
		return Decision{}, ex.sorted()
	}
	slices.SortFunc(best.slots, func(a, b Slot) int { return bytes.Compare(a.GPU[:], b.GPU[:]) })
	return Decision{Host: best.host.ID, Slots: best.slots}, ex.sorted()
}

// candidate is one host's best offer for a request.
type candidate struct {
	host  Host
	slots []Slot
	score score
}

func (c candidate) empty() bool { return len(c.slots) == 0 }

func (c candidate) less(o candidate) bool {
	order := cmp.Or(c.score.compare(o.score), bytes.Compare(c.host.ID[:], o.host.ID[:]))
	return order < 0
}

// score orders candidates; smaller is better, the fields in order of weight.
type score struct {
	binds int    // fresh bindings to the organization
	loss  int    // shapes that can no longer be placed, in millionths (gpu.Geometry.Loss)
	left  int    // what stays free there: the fullest that fits is best
	tie   uint64 // spreads the rest
}

func (s score) compare(o score) int {
	return cmp.Or(cmp.Compare(s.binds, o.binds), cmp.Compare(s.loss, o.loss),
		cmp.Compare(s.left, o.left), cmp.Compare(s.tie, o.tie))
}

func (s score) plus(o score) score {
	return score{binds: s.binds + o.binds, loss: s.loss + o.loss, left: s.left + o.left, tie: s.tie}
}

// planHost picks the Count best GPUs of a host.
func planHost(t Tenancy, h Host, r Request, known memo, ex *Explanation) (candidate, bool) {
	if f := hostFilter(t, h, r); f != "" {
		ex.count(f, len(h.GPUs))
		return candidate{}, false
	}
	type option struct {
		slot  Slot
		score score
	}
	var options []option
	for _, g := range h.GPUs {
		slot, sc, f := known.planGPU(g, r)
		if f != "" {
			ex.count(f, 1)
			continue
		}
		options = append(options, option{Slot{GPU: g.ID, Slot: slot}, sc})
	}
	count := max(r.Count, 1)
	if len(options) < count {
		ex.count(TooFew, len(options))
		return candidate{}, false
	}
	slices.SortFunc(options, func(a, b option) int {
		return cmp.Or(a.score.compare(b.score), bytes.Compare(a.slot.GPU[:], b.slot.GPU[:]))
	})
	c := candidate{host: h}
	c.score.tie = spread(r.Seed, h.ID[:])
	if t != SharedHosts && h.Organization.IsZero() {
		c.score.binds = 1
	}
	for _, o := range options[:count] {
		c.slots = append(c.slots, o.slot)
		c.score = c.score.plus(o.score)
	}
	if r.Want.Mode.Kind == gpu.Whole {
		c.score.left = len(options) - count
	}
	return c, true
}

func hostFilter(t Tenancy, h Host, r Request) Filter {
	switch {
	case slices.Contains(r.Excluded, h.ID):
		return GivenUp
	case h.State != host.Ready || h.Liveness != host.Live:
		return HostNotReady
	case t != SharedHosts && !h.Organization.IsZero() && h.Organization != r.Org:
		return HostBound
	case h.VCPU-h.VCPUUsed < r.VCPU || h.RAM-h.RAMUsed < r.RAM:
		return HostFull
	}
	return ""
}

// memo remembers the best slot of GPUs that report and hold the same: fleets have
// few states, and the tables of a MIG GPU cost more than looking one up.
type memo map[state]fit

// state is what the best slot of a MIG GPU follows from, for one request.
type state struct {
	profiles *gpu.Profile // the report, shared by GPUs of one inventory
	held     string
}

type fit struct {
	slot   gpu.Slot
	score  score
	filter Filter
}

// planGPU is planGPU for one request over many GPUs.
func (m memo) planGPU(g GPU, r Request) (gpu.Slot, score, Filter) {
	if g.Mode.Kind != gpu.MIG || len(g.Device.Profiles) == 0 || gpuFilter(g, r) != "" {
		return planGPU(g, r)
	}
	key := state{profiles: &g.Device.Profiles[0], held: heldKey(g.Held)}
	f, ok := m[key]
	if !ok {
		f.slot, f.score, f.filter = planGPU(g, r)
		m[key] = f
	}
	f.slot.GPU = g.Device.UUID
	f.score.tie = spread(r.Seed, g.ID[:])
	return f.slot, f.score, f.filter
}

func heldKey(held []gpu.Slot) string {
	b := make([]byte, 0, 16)
	for _, h := range held {
		b = binary.AppendVarint(binary.AppendVarint(b, int64(h.Start)), int64(h.Profile))
	}
	return string(b)
}

// planGPU returns the best slot of one GPU, or why there is none.
func planGPU(g GPU, r Request) (gpu.Slot, score, Filter) {
	if f := gpuFilter(g, r); f != "" {
		return gpu.Slot{}, score{}, f
	}
	fit, err := gpu.Feasible(g.Device, g.Mode, g.Held, r.Want)
	if err != nil {
		return gpu.Slot{}, score{}, filterOf(gpu.ReasonOf(err))
	}
	sc := score{tie: spread(r.Seed, g.ID[:])}
	if g.Mode.BindsOrganization() && g.Organization.IsZero() {
		sc.binds = 1
	}
	sc.loss, sc.left = harm(g, fit[0])
	return fit[0], sc, ""
}

func gpuFilter(g GPU, r Request) Filter {
	switch {
	case g.Device.Model != r.Model:
		return OtherModel
	case !g.Healthy:
		return Unhealthy
	case !g.Settled:
		return OtherMode
	case g.Mode.BindsOrganization() && !g.Organization.IsZero() && g.Organization != r.Org:
		return GPUBound
	}
	return ""
}

// harm is what a slot takes from later requests, and what stays free on its GPU.
func harm(g GPU, s gpu.Slot) (loss, left int) {
	used := s.Size
	for _, h := range g.Held {
		used += h.Size
	}
	left = g.Device.Units(g.Mode) - used
	if g.Mode.Kind != gpu.MIG {
		return 0, left
	}
	table, err := gpu.GeometryOf(g.Device)
	if err != nil {
		return 0, left
	}
	before, err := table.StateOf(g.Held)
	if err != nil {
		return 0, left
	}
	after, ok := table.Add(before, s)
	if !ok {
		return 0, left
	}
	return table.Loss(after) - table.Loss(before), left
}

// spread mixes a seed with an id (splitmix64's finalizer).
func spread(seed uint64, of []byte) uint64 {
	x := seed ^ binary.BigEndian.Uint64(of[8:16]) ^ binary.BigEndian.Uint64(of[:8])<<1
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
