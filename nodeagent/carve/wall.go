package carve

import (
	"sync"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// wall remembers for whom this process made slices on GPUs that are bound to one
// organization. The claim in the control plane is the first wall; what another
// process made before is the journal's to know: Bound.
type wall struct {
	mu   sync.Mutex
	orgs map[gpu.Slot]string
}

// enter notes the slice; fresh says that it was not noted before.
func (w *wall) enter(s Slice) (fresh bool, err error) {
	if s.Org == "" || !s.Slot.Mode.BindsOrganization() {
		return false, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make([]Slice, 0, len(w.orgs))
	for slot, org := range w.orgs {
		held = append(held, Slice{Slot: slot, Org: org})
	}
	if err := Bound(held, s); err != nil {
		return false, err
	}
	_, known := w.orgs[s.Slot]
	w.orgs[s.Slot] = s.Org
	return !known, nil
}

func (w *wall) leave(s Slice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.orgs[s.Slot] == s.Org {
		delete(w.orgs, s.Slot)
	}
}

// Bound refuses a slice on a GPU whose mode binds it to one organization while
// another organization's slice is there: NoRoom. Slices without an organization
// bind nothing.
func Bound(held []Slice, s Slice) error {
	if s.Org == "" || !s.Slot.Mode.BindsOrganization() {
		return nil
	}
	for _, h := range held {
		if h.Slot.GPU == s.Slot.GPU && h.Org != "" && h.Org != s.Org {
			return gpudrv.Refuse(gpudrv.NoRoom, "admit", s.Slot.GPU,
				"mode %s binds the gpu to one organization, and another one holds %s", s.Slot.Mode, h.Slot)
		}
	}
	return nil
}
