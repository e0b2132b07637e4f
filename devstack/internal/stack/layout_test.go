package stack_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

func TestFreePortsAreFreeLowAndOurs(t *testing.T) {
	var taken []stack.Ports
	for range 5 {
		p, release, err := stack.FreePorts()
		require.NoError(t, err)
		defer release()
		for _, other := range taken {
			require.NotEqual(t, other.API, p.API, "nobody else gets them before release")
		}
		taken = append(taken, p)
		require.GreaterOrEqual(t, p.API, 20000)
		require.Less(t, p.Membership+3, 32768, "membership ports are stored in 15 bits")
		for _, port := range []int{p.API, p.Metrics, p.Metrics + 2, p.Gateway, p.Postgres, p.Temporal, p.Temporal + 3, p.Membership, p.Membership + 3} {
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			require.NoError(t, err)
			defer l.Close()
		}
	}
}

func TestDemoAndDevelopmentShareNoPort(t *testing.T) {
	demo := stack.DevPorts.Shift(1000)
	require.Equal(t, stack.Ports{API: 9080, Metrics: 9081, Gateway: 9443, Postgres: 16432, Temporal: 18233, Membership: 17933}, demo)
}
