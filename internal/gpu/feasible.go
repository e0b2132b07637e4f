package gpu

import (
	"cmp"
	"slices"

	"github.com/tranche-cloud/tranche/internal/units"
)

// Want is the shape a request asks one GPU for.
type Want struct {
	Mode      Mode      // exact, grid included
	Profile   string    // mig: the profile's name on this GPU; else ""
	MinMemory units.MiB // 0: any
	MinSMs    int       // 0: any
}

// Feasible returns every slot of the device that satisfies the want while the
// held slots stay, the least harmful to later requests first; ties go to the
// higher start. mode is the GPU's present mode.
//
// The error is a *Refusal (WrongMode, UnknownProfile, TooSmall, NoRoom, or
// InvalidSlot when a held slot is of another GPU); then there are no candidates.
func Feasible(d Device, mode Mode, held []Slot, w Want) ([]Slot, error) {
	if w.Mode != mode || !mode.Valid() {
		return nil, refuse(WrongMode, "gpu is in mode %s, not %s", mode, w.Mode)
	}
	all, err := candidates(d, w)
	if err != nil {
		return nil, err
	}
	fit := all[:0]
	var last error
	for _, s := range all {
		if err := Fits(d, mode, held, s); err != nil {
			last = err
			continue
		}
		fit = append(fit, s)
	}
	if len(fit) == 0 {
		if ReasonOf(last) == InvalidSlot {
			return nil, last
		}
		return nil, refuse(NoRoom, "%s has no room for %s beside %d held slots", d.Model, wantName(w), len(held))
	}
	order(d, held, fit)
	return fit, nil
}

func wantName(w Want) string {
	if w.Mode.Kind == MIG {
		return w.Profile
	}
	return w.Mode.String()
}

// candidates lists the slots that the want could have on the empty device.
func candidates(d Device, w Want) ([]Slot, error) {
	if w.Mode.Kind == MIG {
		return migCandidates(d, w)
	}
	n := d.Units(w.Mode)
	out := make([]Slot, 0, n)
	for u := range n {
		out = append(out, Slot{GPU: d.UUID, Mode: w.Mode, Start: u, Size: 1})
	}
	r, err := ResourcesOf(d, out[0])
	if err != nil {
		return nil, err
	}
	return out, checkMinimum(d, w, r)
}

func migCandidates(d Device, w Want) ([]Slot, error) {
	p, ok := d.ProfileNamed(w.Profile)
	if !ok {
		return nil, refuse(UnknownProfile, "%s does not offer profile %q", d.Model, w.Profile)
	}
	if err := checkMinimum(d, w, Resources{Memory: p.Memory, SMs: p.SMs}); err != nil {
		return nil, err
	}
	out := make([]Slot, 0, len(p.Placements))
	for _, at := range p.Placements {
		out = append(out, MIGSlot(d.UUID, p, at))
	}
	return out, nil
}

// MIGSlot is the slot of a profile at one of its placements.
func MIGSlot(uuid string, p Profile, at Placement) Slot {
	return Slot{
		GPU: uuid, Mode: MIGMode(), Profile: p.ID, Name: p.Name,
		Start: at.Start, Size: at.Size, Compute: p.Compute,
	}
}

func checkMinimum(d Device, w Want, r Resources) error {
	if r.Memory < w.MinMemory {
		return refuse(TooSmall, "%s on %s has %s, wanted at least %s", wantName(w), d.Model, r.Memory, w.MinMemory)
	}
	if r.SMs < w.MinSMs {
		return refuse(TooSmall, "%s on %s has %d SMs, wanted at least %d", wantName(w), d.Model, r.SMs, w.MinSMs)
	}
	return nil
}

// order sorts fitting slots of one want. Units of a grid are alike: the lowest
// first. MIG slots follow the fragmentation cost; where the geometry is unknown
// (a held slot of a profile that is gone), high starts first is the best guess.
func order(d Device, held, fit []Slot) {
	if len(fit) < 2 || fit[0].Mode.Kind != MIG {
		return
	}
	cost := func(Slot) int { return 0 }
	if g, err := GeometryOf(d); err == nil {
		if st, err := g.StateOf(held); err == nil {
			cost = func(s Slot) int { return g.cost(st, s.Profile, s.Start) }
		}
	}
	slices.SortStableFunc(fit, func(a, b Slot) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(b.Start, a.Start))
	})
}

// Fits says whether the slot may be added to the held ones: nil, or a *Refusal.
// It is the one rule of the product: units disjoint, compute slices within the
// GPU, instances within the profile's maximum, engines within the stock.
func Fits(d Device, mode Mode, held []Slot, s Slot) error {
	if s.Mode != mode || !mode.Valid() {
		return refuse(WrongMode, "gpu is in mode %s, not %s", mode, s.Mode)
	}
	if err := legal(d, s); err != nil {
		return err
	}
	for _, h := range held {
		if h.GPU != s.GPU {
			return refuse(InvalidSlot, "held slot %s is of another gpu", h)
		}
		if h.Mode != mode {
			return refuse(WrongMode, "gpu still holds %s", h)
		}
		if h.Start < s.Start+s.Size && s.Start < h.Start+h.Size {
			return refuse(NoRoom, "%s overlaps %s", s, h)
		}
	}
	if mode.Kind != MIG {
		return nil
	}
	return migRoom(d, held, s)
}

// legal checks a slot against the empty device.
func legal(d Device, s Slot) error {
	if s.GPU != d.UUID {
		return refuse(InvalidSlot, "slot %s is of another gpu", s)
	}
	if s.Mode.Kind != MIG {
		if s.Size != 1 || s.Start < 0 || s.Start >= d.Units(s.Mode) {
			return refuse(InvalidSlot, "%s has no unit %d:%d", s.Mode, s.Start, s.Size)
		}
		return nil
	}
	p, ok := d.Profile(s.Profile)
	if !ok {
		return refuse(UnknownProfile, "%s has no profile with id %d", d.Model, s.Profile)
	}
	if s.Compute != p.Compute || !slices.Contains(p.Placements, s.Placement()) {
		return refuse(InvalidSlot, "%s is not a placement of the driver", s)
	}
	return nil
}

// migRoom checks the sums that disjoint intervals do not guard.
func migRoom(d Device, held []Slot, s Slot) error {
	p, _ := d.Profile(s.Profile)
	compute, same := p.Compute, 1
	used := p.Engines.list()
	for _, h := range held {
		compute += h.Compute
		if h.Profile == s.Profile {
			same++
		}
		if hp, ok := d.Profile(h.Profile); ok {
			for i, n := range hp.Engines.list() {
				used[i] += n
			}
		}
	}
	if compute > d.ComputeUnits {
		return refuse(NoRoom, "%s needs %d compute slices of %d in all", s, compute, d.ComputeUnits)
	}
	if same > p.MaxInstances {
		return refuse(NoRoom, "%s has at most %d of %s", d.Model, p.MaxInstances, p.Name)
	}
	for i, n := range d.Engines.list() {
		if used[i] > n {
			return refuse(NoRoom, "media engines of %s are used up for %s", d.Model, p.Name)
		}
	}
	return nil
}

// Coexist says whether all slots may be held together: nil, or the *Refusal of
// the first that does not fit beside those before it.
func Coexist(d Device, mode Mode, slots []Slot) error {
	for i, s := range slots {
		if err := Fits(d, mode, slots[:i], s); err != nil {
			return err
		}
	}
	return nil
}
