package agentlink

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/id"
)

// EventOut maps to the wire. Of too many attributes those last by name stay behind.
func EventOut(e Event) *agentv1.Event {
	m := &agentv1.Event{Id: e.ID, Kind: e.Kind, Subject: told(e.Subject), Detail: told(e.Detail), AgeUs: ageOut(e.Age)}
	names := slices.Sorted(maps.Keys(e.Attributes))
	for _, name := range names[:min(len(names), maxNamed)] {
		if m.Attributes == nil {
			m.Attributes = map[string]string{}
		}
		m.Attributes[told(name)] = told(e.Attributes[name])
	}
	return m
}

// EventIn maps from the wire; an event needs an id and a kind.
func EventIn(m *agentv1.Event) (Event, error) {
	e := Event{
		ID: m.GetId(), Kind: m.GetKind(), Subject: m.GetSubject(), Detail: m.GetDetail(),
		Age: ageIn(m.GetAgeUs()), Attributes: m.GetAttributes(),
	}
	if e.ID == 0 || e.Kind == "" || e.Age < 0 || len(e.Attributes) > maxNamed {
		return Event{}, fmt.Errorf("event %d: no id, kind or age, or %d attributes", e.ID, len(e.Attributes))
	}
	texts := []string{e.Kind, e.Subject, e.Detail}
	for k, v := range e.Attributes {
		texts = append(texts, k, v)
	}
	if err := plain(texts...); err != nil {
		return Event{}, fmt.Errorf("event %d: %w", e.ID, err)
	}
	return e, nil
}

// SamplesOut maps to the wire. An interval travels in whole milliseconds, from one to
// the 24 days that a column holds.
func SamplesOut(s Samples) *agentv1.Samples {
	interval := min(max(s.Interval.Milliseconds(), 1), math.MaxInt32)
	m := &agentv1.Samples{Id: s.ID, AgeUs: ageOut(s.Age), IntervalMs: uint32(interval)} //nolint:gosec // bounded just above
	for _, x := range s.Slices {
		w := &agentv1.SliceSample{AssignmentId: x.Assignment.String(), Source: x.Source, Gap: x.Gap}
		for _, name := range slices.Sorted(maps.Keys(x.Readings)) {
			w.Readings = append(w.Readings, &agentv1.Reading{Name: name, Value: x.Readings[name]})
		}
		m.Slices = append(m.Slices, w)
	}
	return m
}

// SamplesIn maps from the wire; readings must not be negative.
func SamplesIn(m *agentv1.Samples) (Samples, error) {
	s := Samples{ID: m.GetId(), Age: ageIn(m.GetAgeUs()), Interval: time.Duration(m.GetIntervalMs()) * time.Millisecond}
	if s.ID == 0 || s.Age < 0 || s.Interval <= 0 || m.GetIntervalMs() > math.MaxInt32 || len(m.GetSlices()) > maxSlices {
		return Samples{}, fmt.Errorf("samples %d: no id, age or interval, or %d slices", s.ID, len(m.GetSlices()))
	}
	for _, w := range m.GetSlices() {
		x, err := sampleIn(w)
		if err != nil {
			return Samples{}, fmt.Errorf("samples %d: slice %q: %w", s.ID, w.GetAssignmentId(), err)
		}
		s.Slices = append(s.Slices, x)
	}
	return s, nil
}

func sampleIn(m *agentv1.SliceSample) (SliceSample, error) {
	x := SliceSample{Source: m.GetSource(), Gap: m.GetGap()}
	var err error
	if x.Assignment, err = id.Parse[id.Assignment](m.GetAssignmentId()); err != nil {
		return SliceSample{}, err
	}
	if len(m.GetReadings()) > maxNamed {
		return SliceSample{}, fmt.Errorf("%d readings are too many", len(m.GetReadings()))
	}
	for _, r := range m.GetReadings() {
		if err := plain(r.GetName()); err != nil {
			return SliceSample{}, err
		}
		if r.GetName() == "" || r.GetValue() < 0 {
			return SliceSample{}, fmt.Errorf("reading %q of %d", r.GetName(), r.GetValue())
		}
		if x.Readings == nil {
			x.Readings = map[string]int64{}
		}
		x.Readings[r.GetName()] = r.GetValue()
	}
	return x, plain(x.Source, x.Gap)
}

// SecretsRequestOut maps to the wire.
func SecretsRequestOut(r SecretsRequest) *agentv1.SecretsRequest {
	return &agentv1.SecretsRequest{AssignmentId: r.Assignment.String(), Fence: r.Fence}
}

// SecretsRequestIn maps from the wire.
func SecretsRequestIn(m *agentv1.SecretsRequest) (SecretsRequest, error) {
	a, err := id.Parse[id.Assignment](m.GetAssignmentId())
	if err != nil {
		return SecretsRequest{}, fmt.Errorf("secrets request: %w", err)
	}
	return SecretsRequest{Assignment: a, Fence: m.GetFence()}, nil
}

// SecretsOut maps to the wire.
func SecretsOut(s Secrets) *agentv1.Secrets {
	m := &agentv1.Secrets{AssignmentId: s.Assignment.String(), Fence: s.Fence, Env: s.Env, Refused: s.Refused}
	if l := s.Login; l != nil {
		m.Registry = &agentv1.RegistryLogin{Registry: l.Registry, Username: l.Username, Password: l.Password}
	}
	return m
}

// SecretsIn maps from the wire.
func SecretsIn(m *agentv1.Secrets) (Secrets, error) {
	a, err := id.Parse[id.Assignment](m.GetAssignmentId())
	if err != nil {
		return Secrets{}, fmt.Errorf("secrets: %w", err)
	}
	s := Secrets{Assignment: a, Fence: m.GetFence(), Env: m.GetEnv(), Refused: m.GetRefused()}
	if l := m.GetRegistry(); l != nil {
		s.Login = &Login{Registry: l.GetRegistry(), Username: l.GetUsername(), Password: l.GetPassword()}
	}
	return s, nil
}
