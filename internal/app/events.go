package app

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Event is something that happened, as operators read it. Subject is a typed id.
type Event struct {
	store.EventRow
	Subject string
}

// EventFilter narrows the list; zero fields do not filter. A Type with a trailing dot
// stands for all that begin with it; Subject is a typed id.
type EventFilter struct{ Type, Subject string }

// ListEvents lists events of all hosts, GPUs and instances, newest first. It fails
// with request.invalid for a subject that is no id.
func (a *App) ListEvents(ctx context.Context, _ Caller, f EventFilter, p Page) (List[Event], error) {
	filter := store.EventFilter{Type: f.Type}
	if f.Subject != "" {
		subject, ok := subjectID(f.Subject)
		if !ok {
			return List[Event]{}, fault.New(fault.Invalid, "request.invalid", "The subject is no id.").
				With(fault.Field{Pointer: "subject", Code: "format", Detail: "an id of a host, GPU, instance, operation or invoice"})
		}
		filter.Subject = &subject
	}
	var rows []store.EventRow
	err := a.Store.InSystem(ctx, "list events", func(t *store.SystemTx) (err error) {
		rows, err = t.Events(ctx, filter, p.Cursor, p.Size+1)
		return err
	})
	if err != nil {
		return List[Event]{}, err
	}
	cut := paged(rows, p.Size, func(e store.EventRow) string { return e.Place })
	out := List[Event]{Next: cut.Next}
	for _, e := range cut.Items {
		out.Items = append(out.Items, Event{EventRow: e, Subject: subjectText(e)})
	}
	return out, nil
}

// subjectID reads the id of anything that events are about.
func subjectID(text string) ([16]byte, bool) {
	noun, _, _ := strings.Cut(text, "_")
	var out [16]byte
	var err error
	switch noun {
	case "host":
		out, err = asBytes[id.Host](text)
	case "gpu":
		out, err = asBytes[id.GPU](text)
	case "asg":
		out, err = asBytes[id.Assignment](text)
	case "inst":
		out, err = asBytes[id.Instance](text)
	case "op":
		out, err = asBytes[id.Operation](text)
	case "inv":
		out, err = asBytes[id.Invoice](text)
	default:
		return out, false
	}
	return out, err == nil
}

func asBytes[I interface{ ~[16]byte }, P interface {
	*I
	UnmarshalText([]byte) error
}](text string) ([16]byte, error) {
	v, err := id.Parse[I, P](text)
	return [16]byte(v), err
}

// subjectText names what an event is about. The row has no noun: what the control plane
// tells is named by the word before the first dot of its type, what a host tells by the
// host that is among its facts.
func subjectText(e store.EventRow) string {
	noun, _, _ := strings.Cut(e.Type, ".")
	on, ofHost := e.Data["host"].(string)
	_, ofRun := e.Data["instance"].(string)
	switch {
	case noun == "operation":
		return id.Operation(e.Subject).String()
	case noun == "invoice":
		return id.Invoice(e.Subject).String()
	case noun == "wallet", e.Type == "budget.exhausted":
		return id.Org(e.Subject).String()
	case noun == "budget":
		return id.Budget(e.Subject).String()
	case noun == "grant":
		return id.Grant(e.Subject).String()
	case noun == "instance", !e.Org.IsZero():
		return id.Instance(e.Subject).String()
	case noun == "host", ofHost && on == id.Host(e.Subject).String():
		return id.Host(e.Subject).String()
	case ofRun:
		return id.Assignment(e.Subject).String()
	case noun == "gpu", ofHost:
		return id.GPU(e.Subject).String()
	}
	return uuid.UUID(e.Subject).String()
}
