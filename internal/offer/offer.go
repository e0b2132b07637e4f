// Package offer owns what can be bought: an offer is a name for an immutable SKU in
// a pool. It turns an operator's wish into a SKU with its honest isolation classes
// and content hash, and a SKU into what placement looks for.
//
// It does not own prices (billing) or availability (placement). Memory is MiB.
package offer

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/units"
)

// HostIsolation says what keeps neighbours on one host apart.
type HostIsolation string

// The classes sold today.
const (
	SingleOrgHost HostIsolation = "single_org_host"
	SharedKernel  HostIsolation = "shared_kernel"
)

// Isolation is the class on both axes.
type Isolation struct {
	GPU  gpu.Isolation
	Host HostIsolation
}

// Shape is what a buyer gets, apart from who shares it.
type Shape struct {
	Model     string
	Mode      gpu.Mode
	Profile   string // as shown: 1g.18gb, 4x25, 2; "" for whole
	Count     int    // GPUs on one host, one slot on each
	Memory    units.MiB
	SMs       int // 0: not promised
	SMPercent int // 0: no limit
	VCPU      int
	RAM       units.MiB
}

// SKU is a shape with its isolation. Two SKUs of equal content are one.
type SKU struct {
	ID        [16]byte // a UUIDv7
	Code      string   // the offer that it was first made for; unique
	Shape     Shape
	Isolation Isolation
}

// Offer sells a SKU from a pool.
type Offer struct {
	ID         string // a slug
	SKU        SKU
	Region     string
	Pool       string
	Enabled    bool
	Generation int64
	UpdatedAt  time.Time // machine
}

// NewShape checks a wish: mode and profile together must be a mode, the profile is
// for parts only. Its other fields were bounded before. It fails with
// request.invalid.
func NewShape(kind gpu.Kind, s Shape) (Shape, error) {
	text := string(kind)
	switch kind {
	case gpu.Whole:
		if s.Profile != "" {
			return s, invalid("/profile", "a whole GPU has no profile")
		}
	case gpu.MIG:
		if s.Profile == "" {
			return s, invalid("/profile", "mig needs the driver's profile, for example 1g.18gb")
		}
	default:
		text += ":" + s.Profile
	}
	mode, err := gpu.ParseMode(text)
	if err != nil {
		return s, invalid("/profile", "mps needs shares x percent such as 4x25, timeslice a number of shares such as 2")
	}
	s.Mode = mode
	s.Count = max(s.Count, 1)
	if s.SMPercent == 0 {
		s.SMPercent = mode.Percent
	}
	return s, nil
}

func invalid(pointer, detail string) error {
	return fault.New(fault.Invalid, "request.invalid", "The offer's shape is not valid: "+detail+".").
		With(fault.Field{Pointer: pointer, Code: "invalid", Detail: detail})
}

// IsolationIn is the class of a shape sold from a pool of the tenancy.
func (s Shape) IsolationIn(t placement.Tenancy) Isolation {
	host := SingleOrgHost
	if t == placement.SharedHosts {
		host = SharedKernel
	}
	return Isolation{GPU: s.Mode.Isolation(), Host: host}
}

// ContentHash identifies a SKU by what it is. The text is versioned: a new field
// needs a new version, or old SKUs would change their hash.
func (k SKU) ContentHash() []byte {
	s := k.Shape
	sum := sha256.Sum256(fmt.Appendf(nil, "sku/1\n%q\n%q\n%q\n%d\n%d\n%d\n%d\n%d\n%d\n%q\n%q\n",
		s.Model, s.Mode.String(), s.Profile, s.Count, s.Memory, s.SMs, s.SMPercent, s.VCPU, s.RAM,
		k.Isolation.GPU, k.Isolation.Host))
	return sum[:]
}

// Request is what placement looks for on behalf of an organization.
func (s Shape) Request(o id.Org) placement.Request {
	want := gpu.Want{Mode: s.Mode, MinMemory: s.Memory, MinSMs: s.SMs}
	if s.Mode.Kind == gpu.MIG {
		want.Profile = s.Profile
	}
	return placement.Request{Org: o, Model: s.Model, Want: want, Count: s.Count, VCPU: s.VCPU, RAM: s.RAM}
}
