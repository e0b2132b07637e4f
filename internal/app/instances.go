package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Instance is everything a tenant reads of an instance: one shape from every verb.
type Instance struct {
	store.Instance
	Accepted  bool // a request for it was accepted just now or is still at work
	GPUs      []InstanceGPU
	Billed    []metering.Interval // the last one open while it runs
	CostSoFar money.Exact
	Actions   []Action
	Endpoints []Endpoint // while a run of it is on a host that tenants reach
	Progress  string     // what takes long while it is prepared; "" for nothing
}

// Ready reports that the instance runs and everything asked for is in place.
func (i Instance) Ready() bool { return i.Status == instance.Running }

// Transitioning reports that work is under way.
func (i Instance) Transitioning() bool { return i.Status.IsTransitioning() }

// Working reports whether the last operation is still at work.
func (i Instance) Working() bool { return !i.Operation.ID.IsZero() && !i.Operation.Finished() }

// InstanceGPU is one slot that an instance holds.
type InstanceGPU struct {
	Model     string
	Mode      gpu.Mode
	Profile   string         // "" for whole
	Placement *gpu.Placement // nil for whole
	SMPercent int            // 0: no limit
	Memory    units.MiB
	SMs       int    // 0: nothing reserved
	UUID      string // as the process sees it; "" until the agent reported it
}

// Action is something a tenant may ask of an instance, and why not now.
type Action struct {
	Name    string // start, stop, delete
	Allowed bool
	Code    string // of the refusal; "" when allowed
}

// actionsOf lists the actions in a fixed order. What is no longer to be decided is
// refused with the code that the verb would answer.
func actionsOf(d instance.Desired) []Action {
	actions := []Action{
		{Name: "start", Allowed: d == instance.WantStopped},
		{Name: "stop", Allowed: d == instance.WantRunning},
		{Name: "delete", Allowed: d != instance.WantDeleted},
	}
	for i := range actions {
		if !actions[i].Allowed {
			actions[i].Code = "state.conflict"
		}
	}
	return actions
}

// Wait asks a read to wait until the instance has a status, or until no work is
// under way that could lead to it. Timeout is cut to maxWait.
type Wait struct {
	For     instance.Status // "": do not wait
	Timeout time.Duration   // machine
}

// maxWait bounds a waiting read.
const maxWait = 60 * time.Second

// GetInstance reads an instance of a project; a deleted one for thirty days. It
// answers the current state when the wait is over, and fails with
// resource.not_found.
func (a *App) GetInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, w Wait) (Instance, error) {
	timer := a.Clock.NewTimer(min(w.Timeout, maxWait))
	defer timer.Stop()
	for {
		got, err := a.readInstance(ctx, c, p, i, w.For)
		if err != nil || !got.underWayTo(w.For) {
			return got, err
		}
		if !a.watch.changed(ctx, i, got.Revision, timer.C()) {
			return a.readInstance(ctx, c, p, i, "")
		}
	}
}

// underWayTo reports that the instance is not, but may come to, a status waited for.
func (i Instance) underWayTo(s instance.Status) bool {
	return s != "" && i.Status != s && i.Transitioning()
}

// readInstance reads an instance. One that is under way to the status waited for
// comes without slots and usage: nobody will see it.
func (a *App) readInstance(ctx context.Context, c Caller, p id.Project, i id.Instance, waited instance.Status) (got Instance, err error) {
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		row, err := t.Instance(ctx, p, i)
		if err != nil {
			return err
		}
		if got = (Instance{Instance: row}); got.underWayTo(waited) {
			return nil
		}
		got, err = showInstance(ctx, t, row)
		return err
	})
	return got, err
}

// InstanceFilter narrows a list; zero fields do not filter.
type InstanceFilter struct {
	Status      instance.Status
	Name        string
	ClientToken string
}

// ListInstances lists instances of a project, newest first; deleted ones only when
// the filter asks for them. It fails with resource.not_found.
func (a *App) ListInstances(ctx context.Context, c Caller, p id.Project, f InstanceFilter, page Page) (List[Instance], error) {
	k, err := keyset[id.Instance](page)
	if err != nil {
		return List[Instance]{}, err
	}
	var out List[Instance]
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		if _, err := t.Project(ctx, c.Org, p); err != nil {
			return err
		}
		rows, err := t.Instances(ctx, store.InstanceFilter{
			Project: p, Status: f.Status, Name: f.Name, ClientToken: f.ClientToken,
		}, k)
		if err != nil {
			return err
		}
		cut := paged(rows, page.Size, func(i store.Instance) string { return i.ID.String() })
		out.Next = cut.Next
		out.Items, err = showInstances(ctx, t, cut.Items)
		return err
	})
	return out, err
}

func showInstance(ctx context.Context, t *store.OrgTx, row store.Instance) (Instance, error) {
	shown, err := showInstances(ctx, t, []store.Instance{row})
	if err != nil {
		return Instance{}, err
	}
	return shown[0], nil
}

// showInstances adds slots and usage, each read once for the whole page.
func showInstances(ctx context.Context, t *store.OrgTx, rows []store.Instance) ([]Instance, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	ids := make([]id.Instance, len(rows))
	for n, r := range rows {
		ids[n] = r.ID
	}
	slots, err := t.SlotsOf(ctx, ids)
	if err != nil {
		return nil, err
	}
	usage, err := usageOfInstances(ctx, t, t.Org(), rows[0].Price.Currency(), ids)
	if err != nil {
		return nil, err
	}
	out := make([]Instance, len(rows))
	for n, r := range rows {
		out[n] = newInstance(r, slots[r.ID], usage[r.ID])
	}
	return out, showReach(ctx, t, out)
}

// showReach adds where those are reached that are on a host, and what the host is
// busy with for those that it prepares.
func showReach(ctx context.Context, t *store.OrgTx, shown []Instance) error {
	var held, preparing []id.Instance
	for _, i := range shown {
		switch i.Status {
		case instance.Preparing:
			held, preparing = append(held, i.ID), append(preparing, i.ID)
		case instance.Running, instance.Interrupted:
			held = append(held, i.ID)
		default:
		}
	}
	if len(held) == 0 {
		return nil
	}
	endpoints, err := t.EndpointsOf(ctx, held)
	if err != nil {
		return err
	}
	progress := map[id.Instance]string{}
	if len(preparing) > 0 {
		if progress, err = t.ProgressOf(ctx, preparing); err != nil {
			return err
		}
	}
	for n, i := range shown {
		shown[n].Endpoints, shown[n].Progress = endpointsOf(i.ID, endpoints[i.ID]), progress[i.ID]
	}
	return nil
}

func newInstance(r store.Instance, slots []store.HeldSlot, u InstanceUsage) Instance {
	out := Instance{
		Instance: r, Billed: u.Billed, CostSoFar: u.Cost, Actions: actionsOf(r.Desired),
	}
	out.Accepted = out.Working()
	for _, s := range slots {
		out.GPUs = append(out.GPUs, instanceGPU(r, s))
	}
	return out
}

func instanceGPU(r store.Instance, s store.HeldSlot) InstanceGPU {
	g := InstanceGPU{
		Model: r.SKU.Shape.Model, Mode: s.Mode, Profile: r.SKU.Shape.Profile, SMPercent: r.SKU.Shape.SMPercent,
		Memory: s.Memory, SMs: s.SMs, UUID: s.DeviceUUID,
	}
	if s.Mode.Kind == gpu.MIG {
		g.Profile = s.Profile
	}
	if s.Mode.Kind != gpu.Whole {
		g.Placement = &gpu.Placement{Start: s.Start, Size: s.Size}
	}
	if s.Mode.Kind == gpu.TimeSlice {
		g.SMs = 0 // turns, not SMs
	}
	return g
}
