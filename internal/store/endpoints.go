package store

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Port is a port of a container that its host publishes.
type Port struct {
	Port     int    `json:"port"`
	Protocol string `json:"protocol"` // tcp or udp
}

// LeasedPort is a published port with the host's port that leads to it.
type LeasedPort struct {
	Port
	Host int
}

// Endpoints is where an instance is reached while its run is on a host.
type Endpoints struct {
	Address    string
	SSHPort    int    // 0: the host has no SSH gateway
	SSHHostKey string // one line of the authorized_keys form
	Ports      []LeasedPort
}

// EndpointsOf returns the endpoints of instances of this organization; one that has
// no run on a host, or whose host tenants cannot reach, is not in the result.
func (t *OrgTx) EndpointsOf(ctx context.Context, instances []id.Instance) (map[id.Instance]Endpoints, error) {
	ids := make([]uuid.UUID, len(instances))
	for i, v := range instances {
		ids[i] = uuid.UUID(v)
	}
	out := map[id.Instance]Endpoints{}
	err := t.Escalate(ctx, "the addresses of hosts", func(s *SystemTx) error {
		rows, err := s.q.EndpointsOf(ctx, s.raw, uuid.UUID(t.org), ids)
		if err != nil {
			return mapError(err)
		}
		for _, r := range rows {
			i := id.Instance(r.InstanceID)
			e := out[i]
			e.Address, e.SSHPort, e.SSHHostKey = r.ReachAddress, int(r.ReachSshPort), r.ReachSshHostKey
			if r.Port > 0 {
				e.Ports = append(e.Ports, LeasedPort{Port{int(r.ContainerPort), r.Protocol}, int(r.Port)})
			}
			out[i] = e
		}
		return nil
	})
	return out, err
}
