// Package billing owns the nouns of money that customers see: price books and
// their versions, invoices and their states, and the rules that bind them. It is
// pure: instants are arguments, nothing is read or written.
//
// It does not own how usage becomes lines (billing/rating), how documents look
// (billing/render), postings (billing/ledger), usage itself (internal/metering),
// arithmetic (internal/money) or storage (internal/store).
package billing

import (
	"math/big"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// SKU is what a line was for: an immutable shape with its isolation class.
type SKU struct {
	ID            [16]byte
	Code          string // unique and readable, h200-mig-1g-16gib
	Name          string // for people, H200-141 mig 1g.18gb
	Family        string // what reservations, tiers and free quotas pool: the GPU model and mode, H200-141/mig
	IsolationGPU  string // dedicated, partitioned, limited, shared
	IsolationHost string // single_org_host, vm, sandboxed, shared_kernel
}

// FamilyOf names the family of a GPU model in a mode.
func FamilyOf(model, mode string) string { return model + "/" + mode }

// PricingKind is how the price of usage came about.
type PricingKind string

// The pricing kinds; only OnDemand is rated so far.
const (
	OnDemand PricingKind = "on_demand"
	Reserved PricingKind = "reserved"
	Spot     PricingKind = "spot"
)

// million is one whole in the unit of fractions: parts per million.
const million = 1_000_000

// Discount takes a fraction off a line, inside the line's one rounding; several
// multiply.
type Discount struct {
	Name string
	PPM  int64 // parts per million, 0 to 1,000,000
}

// Factor returns Π(1 − dⱼ), 1 for no discounts. It fails with fault.Invalid for a
// fraction outside 0 to 1.
func Factor(discounts []Discount) (*big.Rat, error) {
	f := big.NewRat(1, 1)
	for _, d := range discounts {
		if d.PPM < 0 || d.PPM > million {
			return nil, fault.New(fault.Invalid, "request.invalid", "A discount lies between 0 and 100 percent.")
		}
		f.Mul(f, big.NewRat(million-d.PPM, million))
	}
	return f, nil
}
