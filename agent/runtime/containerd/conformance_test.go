package containerd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/runtime/containerd"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
	"github.com/tranche-cloud/tranche/nodeagent/runtime/runtimetest"
)

func TestConformance(t *testing.T) {
	l := newLab(t)
	var last *containerd.Driver
	end := func() {
		if last != nil {
			require.NoError(t, last.Close())
		}
	}
	t.Cleanup(end)
	runtimetest.Run(t, runtimetest.Harness{
		Open: func(t *testing.T, dir string) runtime.Driver {
			end() // a host has one agent at a time
			var err error
			last, err = containerd.Open(l.config(t, dir))
			require.NoError(t, err)
			return last
		},
		Executes:  true,
		Images:    l.registry.Images(t),
		CDIDir:    l.cdi,
		LogLimit:  logLimit,
		Leftovers: l.leftovers,
	})
}
