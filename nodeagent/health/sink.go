package health

import (
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/guard"
)

var _ guard.Sink = (*Monitor)(nil)

// Ended implements guard.Sink: a program took more than its slice and was ended. By
// policy its run ends too, uncredited and with the reason; its neighbours are told, for
// an end with work under way may have cost them theirs.
func (m *Monitor) Ended(e guard.Ended) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.event(agentlink.Event{Kind: "client.ended", Subject: e.Assignment, Detail: e.Detail, Attributes: map[string]string{
		"reason": string(e.Reason), "gpu": e.GPU, "name": e.Name, "pid": strconv.Itoa(e.Process.PID),
		"victims": strings.Join(e.Victims, ","),
	}})
	for _, v := range e.Victims {
		m.event(agentlink.Event{
			Kind: "client.ended", Subject: v, Detail: "a program that shares the GPU was ended; work under way may have been lost",
			Attributes: map[string]string{"reason": "NEIGHBOUR_ENDED", "gpu": e.GPU},
		})
	}
	if len(e.Victims) > 0 {
		m.bed(e.GPU).proof = true
	}
	a, err := id.Parse[id.Assignment](e.Assignment)
	if err == nil && m.c.Policy.EndClients {
		m.interrupt(nodeagent.Interruption{GPU: e.GPU, Assignment: a, Code: string(e.Reason), Detail: e.Detail})
	}
}

// Held implements guard.Sink: somebody is on the GPU who is in no slice.
func (m *Monitor) Held(h guard.Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.event(agentlink.Event{Kind: "gpu.stranger", Subject: h.GPU, Detail: h.Name, Attributes: map[string]string{
		"pid": strconv.Itoa(h.Process.PID), "name": h.Name,
	}})
}

// Drifted implements guard.Sink: somebody changed a GPU's compute mode. It takes no new
// work while the guard says so.
func (m *Monitor) Drifted(d guard.Drift) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bed(d.GPU)
	b.drift = &Ailment{
		Cause: causeDrift, Detail: "the compute mode is " + d.Got + " and should be " + d.Want, Level: Suspect, Since: m.c.Uptime(),
	}
	b.driftAt = m.c.Uptime()
	b.Take(*b.drift, m.c.Clock.Now())
	m.settle(d.GPU, b)
}
