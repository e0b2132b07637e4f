package instance_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/instance"
	_ "github.com/tranche-cloud/tranche/internal/testkit/golden" // the flag -update
)

// edge is one move of a picture; its causes are the labels.
type edge struct{ from, to string }

// TestThePicturesAreCurrent draws the state machines from the code and compares
// them with docs/state-machines.md; -update writes it.
func TestThePicturesAreCurrent(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "state-machines.md")
	text := pictures()
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	onDisk, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(onDisk), text, "run go test ./internal/instance -run Pictures -update")
}

func pictures() string {
	var b strings.Builder
	b.WriteString("# State machines\n\nDrawn from the code by `go test ./internal/instance -run Pictures -update`; a test keeps it current.\n")
	b.WriteString("\n## Instance\n\nWhat `instance.Derive` shows while `instance.Next` is carried out, explored over every order of\n" +
		"requests, reports and silence. `queued` is the time before the first step.\n\n")
	draw(&b, "queued", statusEdges())
	b.WriteString("\n## Assignment\n\n`instance.CanMove`: one run on one host. Only an acknowledged tombstone leads to `released`.\n\n")
	draw(&b, "claimed", tableEdges([]instance.AssignmentState{
		instance.Claimed, instance.Applied, instance.Releasing, instance.Released, instance.Quarantined,
	}, instance.CanMove))
	b.WriteString("\n## Host\n\n`host.CanMove`: the administrative state.\n\n")
	draw(&b, "pending", tableEdges([]host.State{
		host.Pending, host.Approved, host.Validating, host.Ready, host.Cordoned, host.Draining, host.Maintenance, host.Lost, host.Retired,
	}, host.CanMove))
	fmt.Fprintf(&b, "\n## Liveness of a host\n\nBy silence: suspect after %s, unknown after %s. Only the agent's own full report leads back from\n`unknown`.\n\n",
		host.SuspectAfter, host.UnknownAfter)
	draw(&b, string(host.Unproven), map[edge][]string{
		{string(host.Unproven), string(host.Live)}:   {"full report"},
		{string(host.Live), string(host.Suspect)}:    {"silence"},
		{string(host.Suspect), string(host.Live)}:    {"proof"},
		{string(host.Suspect), string(host.Unknown)}: {"silence"},
		{string(host.Live), string(host.Unknown)}:    {"silence"},
		{string(host.Unknown), string(host.Live)}:    {"full report"},
	})
	return b.String()
}

func draw(b *strings.Builder, first string, edges map[edge][]string) {
	fmt.Fprintf(b, "```mermaid\nstateDiagram-v2\n  [*] --> %s\n", first)
	list := slices.SortedFunc(maps.Keys(edges), func(x, y edge) int {
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to))
	})
	for _, e := range list {
		fmt.Fprintf(b, "  %s --> %s", e.from, e.to)
		causes := slices.Compact(slices.Sorted(slices.Values(edges[e])))
		if len(causes) > 0 {
			fmt.Fprintf(b, ": %s", strings.Join(causes, ", "))
		}
		b.WriteString("\n")
	}
	b.WriteString("```\n")
}

func tableEdges[S ~string](all []S, can func(from, to S) bool) map[edge][]string {
	out := map[edge][]string{}
	for _, from := range all {
		for _, to := range all {
			if can(from, to) {
				out[edge{string(from), string(to)}] = nil
			}
		}
	}
	return out
}

// causes are the things that happen to an instance from outside.
var causes = []struct {
	name string
	do   func(*model)
}{
	{"start", func(m *model) {
		if instance.Derive(m.view) == instance.Stopped || instance.Derive(m.view) == instance.Failed {
			m.request(instance.WantRunning)
		}
	}},
	{"stop", func(m *model) {
		if m.view.Desired == instance.WantRunning {
			m.request(instance.WantStopped)
		}
	}},
	{"delete", func(m *model) { m.request(instance.WantDeleted) }},
	{"runs", func(m *model) { m.each(func(i int) { m.see(i, instance.RunRunning) }) }},
	{"ended", func(m *model) { m.each(func(i int) { m.see(i, instance.RunExited) }) }},
	{"refused", func(m *model) { m.each(func(i int) { m.see(i, instance.RunFailed) }) }},
	{"fault, recovery restart", func(m *model) {
		m.view.Recovery = instance.Restart
		m.each(m.breakRun)
	}},
	{"released", func(m *model) { m.each(m.acknowledge) }},
	{"host silent", func(m *model) { m.each(func(i int) { m.view.Assignments[i].HostUnknown = true }) }},
	{"host back", func(m *model) { m.each(func(i int) { m.view.Assignments[i].HostUnknown = false }) }},
	{"no room", func(m *model) { m.room = 0 }},
}

func (m *model) each(do func(i int)) {
	for i := len(m.view.Assignments) - 1; i >= 0; i-- {
		do(i)
	}
}

// abstract is what distinguishes two models for the picture.
func (m *model) abstract() string {
	v := m.view
	var parts []string
	for _, a := range v.Assignments {
		parts = append(parts, fmt.Sprint(a.Run == v.Run, a.State, a.Seen, a.HostUnknown))
	}
	slices.Sort(parts)
	return fmt.Sprint(v.Desired, v.EverRan, v.Recovering, v.Recovery, v.Failure.IsZero(), v.Converged == v.Generation, v.Attempts, m.room == 0, slices.Compact(parts))
}

func (m *model) clone() *model {
	c := *m
	c.view.Assignments = slices.Clone(m.view.Assignments)
	return &c
}

// statusEdges explores the model breadth first and notes each change of status
// with what set it off.
func statusEdges() map[edge][]string {
	first := newModel()
	edges := map[edge][]string{{"queued", string(instance.Derive(first.view))}: {"step"}}
	queue, seen := []*model{first}, map[string]bool{first.abstract(): true}
	for len(queue) > 0 && len(seen) < 20_000 {
		m := queue[0]
		queue = queue[1:]
		for _, c := range causes {
			next := m.clone()
			next.tell(edges, c.name, c.do)
			if len(next.view.Assignments) > 3 || seen[next.abstract()] {
				continue
			}
			seen[next.abstract()] = true
			queue = append(queue, next)
		}
	}
	return edges
}

// tell applies a cause and the steps that follow, noting each status on the way.
func (m *model) tell(edges map[edge][]string, name string, do func(*model)) {
	was := instance.Derive(m.view)
	note := func(cause string) {
		is := instance.Derive(m.view)
		if is == instance.Running {
			m.view.EverRan = true
		}
		if is != was {
			e := edge{string(was), string(is)}
			edges[e] = append(edges[e], cause)
		}
		was = is
	}
	do(m)
	note(name)
	for range 20 {
		if !m.carryOut(instance.Next(m.view, m.at)) {
			return
		}
		note("step")
	}
}
