package app

import (
	"context"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Report is one Observed frame of a stream.
type Report struct {
	Session  store.Session
	Sequence uint64
	Received time.Time // by this process's clock; only its distance from now counts
	agentlink.Observed
}

// RecordObserved takes in what an agent saw: it proves runs, opens and closes
// usage, frees capacity on acknowledged tombstones, and derives the status of the
// instances concerned, each in a transaction of its own. Repeating a report
// changes nothing; a report of another fence, an older sequence or somebody else's
// assignment changes nothing of the assignment. It fails with state.conflict for a
// superseded session; what was written before stays true.
func (a *App) RecordObserved(ctx context.Context, r Report) error {
	begun, err := a.beginReport(ctx, r)
	if err == nil && begun && !r.Failed {
		return a.inferAbsence(ctx, r.Session) // the unchanged full set is a complete report too
	}
	if err != nil || begun {
		return err
	}
	for _, s := range r.Slices {
		if err := a.recordSlice(ctx, r, s); err != nil {
			return err
		}
	}
	for _, g := range r.Gone {
		if err := a.recordGone(ctx, r.Session, g); err != nil {
			return err
		}
	}
	if !r.Full {
		return nil
	}
	return a.settleReport(ctx, r)
}

// settleReport ends a complete report. What it no longer names is not known to run:
// that destroys nothing, but it is not billed on either.
func (a *App) settleReport(ctx context.Context, r Report) error {
	var missing []id.Assignment
	err := a.Store.InSystem(ctx, "settle report", func(t *store.SystemTx) (err error) {
		if err := t.Hold(ctx, r.Session); err != nil {
			return err
		}
		missing, err = t.SettleFullReport(ctx, r.Session, r.Sequence, r.Applied)
		return err
	})
	for _, asg := range missing {
		if err != nil {
			return err
		}
		err = a.Store.InSystem(ctx, "record missing slice", func(t *store.SystemTx) error {
			return a.recordMissing(ctx, t, r.Session, asg)
		})
	}
	if err != nil {
		return err
	}
	return a.inferAbsence(ctx, r.Session)
}

func (a *App) recordMissing(ctx context.Context, t *store.SystemTx, session store.Session, missing id.Assignment) error {
	if err := t.Hold(ctx, session); err != nil {
		return err
	}
	asg, found, err := t.AssignmentOn(ctx, session.Host, missing)
	if err != nil || !found {
		return err
	}
	v, row, err := t.LoadView(ctx, asg.Instance, store.Locked)
	if err != nil {
		return err
	}
	o := &observation{asg: asg, view: v, row: row, cur: held(v, missing)}
	if o.cur == nil {
		return nil
	}
	if err := lost(ctx, t, o); err != nil {
		return err
	}
	if _, err := t.SaveStatus(ctx, &o.row, o.view); err != nil {
		return err
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, o.row.ID.String(), "missing")
}

// unreadable begins the reason of a host that cannot observe its slices.
const unreadable = "observation: "

// beginReport handles what concerns the whole host; done says that nothing is left.
func (a *App) beginReport(ctx context.Context, r Report) (done bool, err error) {
	if !r.Full && !r.Failed {
		return false, nil
	}
	err = a.Store.InSystem(ctx, "begin report", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, r.Session); err != nil {
			return err
		}
		switch {
		case r.Failed:
			done = true
			return t.NoteHostReason(ctx, r.Session.Host, unreadable+r.Failure)
		case r.Unchanged:
			done = true
			m, err := t.BusinessAgo(ctx, a.since(r.Received), 0, 0)
			if err != nil {
				return err
			}
			return t.ProveHostRuns(ctx, r.Session.Host, m.Received)
		}
		// Before the slices: their status depends on the host's liveness.
		if _, err := t.ReviveHost(ctx, r.Session.Host); err != nil {
			return err
		}
		return t.ForgetHostReason(ctx, r.Session.Host, unreadable)
	})
	return done, err
}

func (a *App) since(received time.Time) time.Duration { return max(0, a.Clock.Now().Sub(received)) }

func (a *App) recordSlice(ctx context.Context, r Report, s agentlink.Slice) error {
	return a.Store.InSystem(ctx, "record slice", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, r.Session); err != nil {
			return err
		}
		asg, found, err := t.AssignmentOn(ctx, r.Session.Host, s.Assignment)
		if err != nil {
			return err
		}
		if !found {
			// Not ours, or said to be another host's: kept for operators, no more.
			s.Assignment = id.Assignment{}
		}
		follows := found && asg.Fence == s.Fence && asg.Run == s.Run
		if follows && !consequent[s.RunState] {
			_, follows, err = t.LastProof(ctx, s.Assignment)
			if err != nil {
				return err
			}
		}
		if !follows {
			_, err := t.RecordSlice(ctx, r.Session, r.Sequence, observedRow(s))
			return err
		}
		v, row, err := t.LoadView(ctx, asg.Instance, store.Locked)
		if err != nil {
			return err
		}
		fresh, err := t.RecordSlice(ctx, r.Session, r.Sequence, observedRow(s))
		if err != nil || !fresh {
			return err
		}
		cur := held(v, s.Assignment)
		if cur == nil || cur.Fence != s.Fence || cur.Run != s.Run {
			return nil
		}
		return a.applyReport(ctx, t, r, s, &observation{asg: asg, view: v, row: row, cur: cur, age: a.since(r.Received)})
	})
}

// consequent are the run states that something follows from; from the others it
// does only for a run that was proven to be up.
var consequent = map[instance.RunState]bool{
	instance.RunRunning: true, instance.RunExited: true, instance.RunFailed: true,
}

// observation is a report beside the rows that it is about, which are locked.
type observation struct {
	asg  store.HostedAssignment
	view instance.View
	row  store.InstanceRow
	cur  *instance.Assignment // in view
	age  time.Duration        // of the report
}

// wanted reports whether the assignment carries the run that intent asks for.
func (o *observation) wanted() bool {
	return o.view.Desired == instance.WantRunning && o.view.Run == o.cur.Run && o.live()
}

func (o *observation) live() bool {
	return o.cur.State == instance.Claimed || o.cur.State == instance.Applied
}

func held(v instance.View, asg id.Assignment) *instance.Assignment {
	for i := range v.Assignments {
		if v.Assignments[i].ID == asg {
			return &v.Assignments[i]
		}
	}
	return nil
}

// applyReport draws the consequences of a report of exactly the ordered fence.
func (a *App) applyReport(ctx context.Context, t *store.SystemTx, r Report, s agentlink.Slice, o *observation) error {
	before, status := o.cur.Seen, o.row.Status
	o.cur.Seen, o.cur.Reason, o.cur.Credited, o.cur.Progress = s.RunState, s.Reason, s.Credited, s.Progress
	var err error
	switch s.RunState {
	case instance.RunRunning:
		err = a.runs(ctx, t, r.Session.Host, s, o)
	case instance.RunExited, instance.RunFailed:
		err = a.ended(ctx, t, s, o)
	case instance.RunNone, instance.RunPreparing:
		err = lost(ctx, t, o)
	}
	if err != nil {
		return err
	}
	now, err := t.SaveStatus(ctx, &o.row, o.view)
	if err != nil {
		return err
	}
	if now == status && (before == s.RunState || !o.live()) {
		return nil // of a run that is being released only the tombstone counts
	}
	return t.AppendOutbox(ctx, store.OutboxInstance, o.row.ID.String(), string(s.RunState))
}

// startJitter is by how much two reports of one process may differ about its start:
// the way of each counts as time since then.
const startJitter = time.Second

// runs takes a proof that the run goes on: the assignment is applied, and the
// meter runs from the instant that the agent saw the process start.
func (a *App) runs(ctx context.Context, t *store.SystemTx, h id.Host, s agentlink.Slice, o *observation) error {
	m, err := t.BusinessAgo(ctx, o.age, o.age+max(0, s.Age), 0)
	if err != nil {
		return err
	}
	start := metering.StartInstant(m.Received, m.Received.Sub(m.Started), o.asg.OrderedBiz)
	proof := store.RunProof{
		Org: o.asg.Org, Assignment: s.Assignment, Instance: o.asg.Instance, Run: s.Run, Host: h,
		StartedAt: start, LastProof: laterOf(start, m.Received),
	}
	for _, slot := range s.Slots {
		proof.Devices = append(proof.Devices, slot.Device)
	}
	proven, before, err := t.LastProof(ctx, s.Assignment)
	if err != nil {
		return err
	}
	start, alive, err := t.ProveRun(ctx, proof)
	if err != nil || !alive {
		return err
	}
	restarted := before && proof.StartedAt.After(proven) && proof.StartedAt.Sub(start) > startJitter
	if o.cur.State == instance.Claimed {
		if err := t.MarkApplied(ctx, s.Assignment); err != nil {
			return err
		}
		o.cur.State = instance.Applied
	}
	if !o.wanted() || o.cur.HostUnknown {
		return nil
	}
	if restarted {
		start = proof.StartedAt
	}
	o.row.StartedAt = &start
	o.view.EverRan = true
	_, err = t.OpenSegment(ctx, store.OpenSegment{
		Org: o.asg.Org, Instance: o.asg.Instance, Assignment: s.Assignment, Run: s.Run,
		At: start, Restarted: restarted, Reason: string(metering.ProcessStarted),
	})
	return err
}

// lost ends the usage of a run that was up and that its host no longer shows, at its
// last proof. It is no symptom: the same process, seen again, fills the gap.
func lost(ctx context.Context, t *store.SystemTx, o *observation) error {
	at, found, err := t.LastProof(ctx, o.cur.ID)
	if err != nil || !found || !o.wanted() {
		return err
	}
	_, err = t.CloseByEvent(ctx, o.asg.Org, o.asg.Instance, metering.Silence, metering.Facts{LastProof: at})
	return err
}

// ended takes the end of a run, or that it never began. Usage ends when the agent
// saw it end; if nobody saw that, at the last proof.
func (a *App) ended(ctx context.Context, t *store.SystemTx, s agentlink.Slice, o *observation) error {
	if err := t.NoteAssignmentReason(ctx, s.Assignment, s.Reason); err != nil {
		return err
	}
	var at time.Time
	if s.EndedAge >= 0 {
		m, err := t.BusinessAgo(ctx, o.age, 0, o.age+s.EndedAge)
		if err != nil {
			return err
		}
		at = m.Ended
		if err := a.provenUntil(ctx, t, s, o, at); err != nil {
			return err
		}
	}
	at, found, err := t.EndRun(ctx, s.Assignment, at)
	if err != nil || !found || !o.wanted() {
		return err
	}
	switch {
	case o.cur.Faulted():
		return faulted(ctx, t, o, at)
	case s.RunState == instance.RunExited && s.Reason.IsZero(), tenants[instance.BlameOf(s.Reason.Code)]:
		// The tenant's own doing; nothing of ours failed.
		_, err = t.CloseOpenSegment(ctx, o.asg.Org, o.asg.Instance, metering.GPU, at, "process_exited", "tenant")
		return err
	}
	_, err = t.CloseByEvent(ctx, o.asg.Org, o.asg.Instance, metering.OurFault, metering.Facts{FirstSymptom: at, LastProof: at})
	return err
}

// tenants are the blames that are the tenant's where nothing is credited.
var tenants = map[instance.Blame]bool{instance.Tenant: true, instance.AsCredited: true}

// faulted takes a fault of the platform that ended the wanted run: usage ends at that
// business instant, and what is lost from then on is written down until the instance
// is back. The tenant is told the cause.
func faulted(ctx context.Context, t *store.SystemTx, o *observation, at time.Time) error {
	_, err := t.CloseByEvent(ctx, o.asg.Org, o.asg.Instance, metering.OurFault, metering.Facts{FirstSymptom: at, LastProof: at})
	if err != nil {
		return err
	}
	why := instance.Public(o.cur.Reason)
	if why.IsZero() {
		why = instance.Public(runMissing)
	}
	o.view.Failure = why
	return t.OpenInterruption(ctx, &o.row, o.cur.ID, why.Code, why.Detail, o.cur.Credited, at)
}

// recordGone takes an acknowledged tombstone: only now is the capacity free.
func (a *App) recordGone(ctx context.Context, s store.Session, g agentlink.Tombstone) error {
	return a.Store.InSystem(ctx, "record gone", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, s); err != nil {
			return err
		}
		asg, found, err := t.AssignmentOn(ctx, s.Host, g.Assignment)
		if err != nil || !found {
			return err
		}
		freed, err := t.FreeAssignment(ctx, g.Assignment, g.Fence)
		if err != nil || !freed && asg.State != instance.Released {
			return err
		}
		return t.ForgetSlice(ctx, s.Host, g.Assignment)
	})
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func observedRow(s agentlink.Slice) store.ObservedSlice {
	o := store.ObservedSlice{
		Key: s.Key, Assignment: s.Assignment, Fence: s.Fence, Run: s.Run, State: string(s.State),
		RunState: s.RunState, Reason: s.Reason, Progress: s.Progress, Credited: s.Credited,
	}
	if len(s.Slots) > 0 {
		first := s.Slots[0]
		o.Slot, o.Device, o.Memory, o.SMs = first.Slot, first.Device, first.Memory, first.SMs
	}
	return o
}
