package nodeagent_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// listener is a runtime that remembers what it was asked to start.
type listener struct {
	runtime.Driver
	specs []runtime.Spec
}

func (l *listener) Start(ctx context.Context, s runtime.Spec) (runtime.Container, error) {
	l.specs = append(l.specs, s)
	return l.Driver.Start(ctx, s)
}

// The plain environment of an order reaches the container.
func TestThePlainEnvironmentReachesTheContainer(t *testing.T) {
	n := newNode(t)
	var heard *listener
	n.adjust = func(h *nodeagent.Host) {
		heard = &listener{Driver: h.Runtime}
		h.Runtime = heard
	}
	n.up(t, nil)
	o := n.wholeOrder(id.New[id.Assignment](), 1)
	o.Env = map[string]string{"EPOCHS": "3"}
	n.obey(orders(o))
	require.Len(t, heard.specs, 1)
	require.Equal(t, map[string]string{"EPOCHS": "3"}, heard.specs[0].Env)
}

// An instance's name is any text; its host name is what a kernel and a resolver take.
func TestAnyNameMakesAHostName(t *testing.T) {
	for name, want := range map[string]string{
		"trainer": "trainer", "My trainer 1": "My-trainer-1", "a_b": "a-b", "../x": "x", "-a-": "a", "ё": "", "näive.run": "n-ive.run",
	} {
		t.Run(want, func(t *testing.T) {
			n := newNode(t)
			var heard *listener
			n.adjust = func(h *nodeagent.Host) {
				heard = &listener{Driver: h.Runtime}
				h.Runtime = heard
			}
			n.up(t, nil)
			o := n.wholeOrder(id.New[id.Assignment](), 1)
			o.Name = name
			n.obey(orders(o))
			require.Len(t, heard.specs, 1)
			require.Equal(t, want, heard.specs[0].Hostname)
		})
	}
}
