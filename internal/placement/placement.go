// Package placement owns the choice of slots: which host, which GPUs and which
// units of them one run gets. Plan looks at a snapshot of a pool and returns a
// Decision with the Explanation of what stood in the way.
//
// It reserves nothing: the keys and locks of the claim transaction prevent double
// selling, so several planners may decide at once and a loser plans again. What
// fits on one GPU is internal/gpu's rule; quota and price are not looked at.
// Memory is MiB. Nothing here is random: equal candidates are spread by
// Request.Seed.
package placement

import (
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Tenancy says whether organizations share the hosts of a pool. GPUs in mps and
// timeslice mode belong to one organization in either.
type Tenancy string

// The two tenancies.
const (
	OneOrgPerHost Tenancy = "one_org_per_host"
	SharedHosts   Tenancy = "shared"
)

// Snapshot is what a planner may look at: hosts of one pool.
type Snapshot struct {
	Tenancy Tenancy
	Hosts   []Host
}

// Host is one host with its GPUs, those of other models included or not.
type Host struct {
	ID             id.Host
	State          host.State
	Liveness       host.Liveness
	Organization   id.Org // bound to; zero: to none
	VCPU, VCPUUsed int
	RAM, RAMUsed   units.MiB
	GPUs           []GPU
}

// GPU is one GPU with what is held on it.
type GPU struct {
	ID           id.GPU
	Device       gpu.Device
	Mode         gpu.Mode // as the driver shows it; the zero Mode sells nothing
	Settled      bool     // its mode is not being changed
	Healthy      bool     // present and fit for new work
	Organization id.Org   // bound to; zero: to none
	Held         []gpu.Slot
}

// Request is one run to place: Count GPUs of a model on one host.
type Request struct {
	Org      id.Org
	Model    string
	Want     gpu.Want // on each of the GPUs
	Count    int
	VCPU     int
	RAM      units.MiB
	Excluded []id.Host // hosts that this request has given up on
	Seed     uint64    // spreads equal candidates; the same seed decides the same
}

// Slot is a chosen slot and the GPU it is on.
type Slot struct {
	GPU  id.GPU
	Slot gpu.Slot
}

// Decision is a host and one slot on each chosen GPU, ordered by GPU id.
type Decision struct {
	Host  id.Host
	Slots []Slot
}

// Placed reports whether anything was found.
func (d Decision) Placed() bool { return !d.Host.IsZero() }
