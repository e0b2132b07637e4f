package app

import (
	"context"
	"maps"
	"regexp"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// TakeSamples takes in a host's readings, once: a repeated id changes nothing.
// Readings of what is not on the host are left out. It returns the id up to which
// everything is taken. It fails with state.conflict for a superseded session.
func (a *App) TakeSamples(ctx context.Context, s store.Session, received time.Time, in agentlink.Samples) (uint64, error) {
	return a.takeSpooled(ctx, s, in.ID, a.since(received)+in.Age, func(t *store.SystemTx, at time.Time) error {
		list := make([]store.SliceReading, 0, len(in.Slices))
		for _, x := range in.Slices {
			list = append(list, store.SliceReading(x))
		}
		if len(list) == 0 {
			return nil
		}
		if err := t.InsertSamples(ctx, s.Host, in.ID, at, in.Interval, list); err != nil {
			return err
		}
		return countersProve(ctx, t, s.Host, at, in.Interval, list)
	})
}

// TakeEvent takes in what happened on a host, once: a repeated id changes nothing.
// What concerns an instance of this host reaches its tenant's feed if tenants may know
// it; the sessions of people go to the audit log as well; the rest is the operator's.
// It returns the id up to which everything is taken. It fails with state.conflict for
// a superseded session.
func (a *App) TakeEvent(ctx context.Context, s store.Session, received time.Time, e agentlink.Event) (uint64, error) {
	return a.takeSpooled(ctx, s, e.ID, a.since(received)+e.Age, func(t *store.SystemTx, at time.Time) error {
		if !kindForm.MatchString(e.Kind) {
			a.Log.Warn("event of no proper kind dropped", "host_id", s.Host.String(), "kind", e.Kind)
			return nil
		}
		if asg, err := id.Parse[id.Assignment](e.Subject); err == nil {
			return a.runEvent(ctx, t, s, e, asg, at)
		}
		return hostEvent(ctx, t, s, e, at)
	})
}

// SkipSpooled counts a record as taken that nobody can make sense of. It returns the id up
// to which everything is taken, and fails with state.conflict for a superseded session.
func (a *App) SkipSpooled(ctx context.Context, s store.Session, spool uint64) (uint64, error) {
	return a.takeSpooled(ctx, s, spool, 0, func(*store.SystemTx, time.Time) error { return nil })
}

// takeSpooled runs take, with the business instant of what is that old, unless the id
// was taken before.
func (a *App) takeSpooled(ctx context.Context, s store.Session, spool uint64, age time.Duration,
	take func(*store.SystemTx, time.Time) error,
) (through uint64, err error) {
	err = a.Store.InSystem(ctx, "take spooled", func(t *store.SystemTx) error {
		if err := t.Hold(ctx, s); err != nil {
			return err
		}
		taken, err := t.HoldSpool(ctx, s.Host)
		if err != nil {
			return err
		}
		if through = taken; spool <= taken {
			return nil
		}
		m, err := t.BusinessAgo(ctx, age, 0, 0)
		if err != nil {
			return err
		}
		if err := take(t, m.Received); err != nil {
			return err
		}
		through = spool
		return t.AdvanceSpool(ctx, s.Host, spool)
	})
	return through, err
}

// kindForm is what a host may call an event; what the control plane itself says of
// instances, operations and money it may not.
var kindForm = regexp.MustCompile(`^(gpu|host|session|exec|client|runtime|image|slice|agent|spool|net)(\.[a-z][a-z_]{0,40}){1,3}$`)

// tenantKinds are the events of a run that its tenant is told; those of people are
// audited under the name given.
var tenantKinds = map[string]string{
	"session.opened": "instance.session_open",
	"session.closed": "instance.session_close",
	"exec.opened":    "instance.exec_open",
	"exec.closed":    "instance.exec_close",
	"client.ended":   "",
	"gpu.xid":        "",
}

// operatorKinds are those of tenants' events that operators are told too.
var operatorKinds = map[string]bool{"client.ended": true, "gpu.xid": true}

func eventData(e agentlink.Event) map[string]any {
	data := map[string]any{}
	for k, v := range e.Attributes {
		data[k] = v
	}
	data["detail"] = e.Detail
	return data
}

// runEvent is an event of a run that is, or was, on this host; of any other run it
// says nothing.
func (a *App) runEvent(ctx context.Context, t *store.SystemTx, s store.Session, e agentlink.Event, asg id.Assignment, at time.Time) error {
	o, found, err := t.OwnerOn(ctx, s.Host, asg)
	if err != nil {
		return err
	}
	if !found {
		a.Log.Warn("event of another host's run dropped", "host_id", s.Host.String(), "kind", e.Kind, "subject", e.Subject)
		return nil
	}
	audited, told := tenantKinds[e.Kind]
	data := eventData(e)
	data["run"] = o.Run
	if told {
		err := t.AppendEventAt(ctx, store.Event{
			Org: o.Org, Project: o.Project, Cell: o.Cell, Type: e.Kind, Subject: o.Instance, Data: data,
		}, at)
		if err != nil {
			return err
		}
	}
	if audited != "" {
		if err := t.Audit(ctx, sessionAudit(o, e, audited)); err != nil {
			return err
		}
	}
	if told && !operatorKinds[e.Kind] {
		return nil
	}
	data = maps.Clone(data)
	data["host"], data["instance"] = s.Host.String(), o.Instance.String()
	return t.AppendEventAt(ctx, store.Event{Cell: o.Cell, Type: e.Kind, Subject: asg, Data: data}, at)
}

// sessionAudit is the row for a session of a person in an instance.
func sessionAudit(o store.Owner, e agentlink.Event, operation string) store.AuditRow {
	who := e.Attributes["fingerprint"]
	if who == "" {
		who = e.Attributes["key"]
	}
	actor := "ssh/" + who
	if p := e.Attributes["principal"]; p != "" {
		actor = p
	}
	return store.AuditRow{
		Org: o.Org, Actor: actor, Credential: who, Operation: operation, Resource: o.Instance.String(), Result: accepted,
		RequestID: e.Attributes["session"],
	}
}

// hostEvent is an event of a GPU of this host, or of the host itself.
func hostEvent(ctx context.Context, t *store.SystemTx, s store.Session, e agentlink.Event, at time.Time) error {
	cell, err := t.CellOf(ctx, s.Host)
	if err != nil {
		return err
	}
	out := store.Event{Cell: cell, Type: e.Kind, Subject: s.Host, Data: eventData(e)}
	out.Data["host"] = s.Host.String()
	if e.Subject == "" {
		return t.AppendEventAt(ctx, out, at)
	}
	out.Data["subject"] = e.Subject
	g, health, found, err := t.GPUOn(ctx, s.Host, e.Subject)
	if err != nil {
		return err
	}
	if found {
		out.Subject = g
		if told := (health == "healthy") == (e.Kind == "gpu.healthy"); told && (e.Kind == "gpu.healthy" || e.Kind == "gpu.unhealthy") {
			return nil // the inventory has told it already
		}
	}
	return t.AppendEventAt(ctx, out, at)
}

// samplesKept is how many days the readings of slices stay.
const samplesKept = 30

// pruneSamples deletes old readings.
func (a *App) pruneSamples(ctx context.Context) error {
	for {
		var n int64
		err := a.Store.InSystem(ctx, "prune samples", func(t *store.SystemTx) (err error) {
			n, err = t.PruneSamples(ctx, samplesKept, pruneBatch)
			return err
		})
		if err != nil || n < pruneBatch {
			return err
		}
	}
}
