package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/internal/gpu"
)

// Filter names why a GPU could not take a request; a GPU counts under the first
// that applies, in the order of the constants.
type Filter string

// The filters. Full, HostFull and TooFew change as others leave; WrongShape and
// OtherModel do not.
const (
	GivenUp      Filter = "given_up"       // an attempt of this request failed on its host
	HostNotReady Filter = "host_not_ready" // not in state ready, or silent
	HostBound    Filter = "host_bound"     // the host holds another organization
	HostFull     Filter = "host_full"      // CPU or memory of the host
	OtherModel   Filter = "other_model"
	Unhealthy    Filter = "unhealthy"
	OtherMode    Filter = "other_mode" // sold in another way, or being switched
	GPUBound     Filter = "gpu_bound"  // the GPU's shares hold another organization
	WrongShape   Filter = "wrong_shape"
	Full         Filter = "full"
	TooFew       Filter = "too_few" // would do, but its host has not enough of them
)

// filterOf maps the refusal of a GPU to a filter.
func filterOf(r gpu.Reason) Filter {
	switch r {
	case gpu.WrongMode:
		return OtherMode
	case gpu.NoRoom:
		return Full
	default:
		return WrongShape
	}
}

// Count is how many GPUs a filter turned away.
type Count struct {
	Filter Filter
	GPUs   int
}

// Explanation says what stood in the way: GPUs looked at per filter, most first,
// and what else of the model is free at this moment.
type Explanation struct {
	Counts []Count
	// Instead lists profiles and modes of the wanted model that have room now.
	Instead []string
}

func (e *Explanation) count(f Filter, n int) {
	if n == 0 {
		return
	}
	for i := range e.Counts {
		if e.Counts[i].Filter == f {
			e.Counts[i].GPUs += n
			return
		}
	}
	e.Counts = append(e.Counts, Count{f, n})
}

func (e *Explanation) suggest(name string) {
	if !slices.Contains(e.Instead, name) {
		e.Instead = append(e.Instead, name)
	}
}

// lookElsewhere notes what GPUs of the wanted model could hold in place of the
// request, on hosts that would take its organization.
func (e *Explanation) lookElsewhere(s Snapshot, r Request) {
	for _, h := range s.Hosts {
		if hostFilter(s.Tenancy, h, r) != "" {
			continue
		}
		for _, g := range h.GPUs {
			if g.Device.Model == r.Model && g.Healthy && g.Settled {
				e.near(g, r)
			}
		}
	}
}

func (e *Explanation) near(g GPU, r Request) {
	if g.Mode.Kind == gpu.MIG {
		for _, p := range g.Device.Profiles {
			want := gpu.Want{Mode: gpu.MIGMode(), Profile: p.Name}
			if _, err := gpu.Feasible(g.Device, g.Mode, g.Held, want); err == nil {
				e.suggest(p.Name)
			}
		}
		return
	}
	free := len(g.Held) < g.Device.Units(g.Mode)
	if ours := g.Organization.IsZero() || g.Organization == r.Org; free && ours && g.Mode != r.Want.Mode {
		e.suggest(g.Mode.String())
	}
}

func (e Explanation) sorted() Explanation {
	slices.SortFunc(e.Counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Filter, b.Filter))
	})
	slices.Sort(e.Instead)
	return e
}

// String is for the operator's log: every filter with its count.
func (e Explanation) String() string {
	if len(e.Counts) == 0 {
		return "no GPUs"
	}
	var parts []string
	for _, c := range e.Counts {
		parts = append(parts, fmt.Sprintf("%s %d", c.Filter, c.GPUs))
	}
	return strings.Join(parts, ", ")
}

// tenantWords folds the filters into what a tenant may know: nothing about other
// organizations and nothing about the operator's work.
var tenantWords = map[Filter]string{
	Full: "full", HostFull: "full", TooFew: "full",
	OtherMode: "sold in another way", WrongShape: "sold in another way", OtherModel: "of another model",
}

// Public is the reason in one sentence for the tenant, without a trailing cause
// that would tell of other organizations.
func (e Explanation) Public() string {
	sums := map[string]int{}
	var order []string
	for _, c := range e.Counts {
		w, ok := tenantWords[c.Filter]
		if !ok {
			w = "not on offer now"
		}
		if sums[w] == 0 {
			order = append(order, w)
		}
		sums[w] += c.GPUs
	}
	if len(order) == 0 {
		return "No GPU can take this instance now."
	}
	var parts []string
	for _, w := range order {
		parts = append(parts, fmt.Sprintf("%d %s", sums[w], w))
	}
	return "No GPU can take this instance now: " + strings.Join(parts, ", ") + "."
}

// Suggestion says what to do: what is free instead, if anything.
func (e Explanation) Suggestion() string {
	if len(e.Instead) == 0 {
		return "Try again later, or choose another offer."
	}
	return "Try again later, or choose what is free now: " + strings.Join(e.Instead, ", ") + "."
}
