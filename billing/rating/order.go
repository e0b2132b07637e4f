package rating

import (
	"bytes"
	"cmp"

	"github.com/tranche-cloud/tranche/billing"
)

// compareKeys is the order of the document: by project, component, SKU code, meter,
// isolation, pricing kind, then as the lines' usage began.
func compareKeys(x, y billing.LineKey, codeX, codeY string, fromX, fromY int64) int {
	if c := bytes.Compare(x.Project[:], y.Project[:]); c != 0 {
		return c
	}
	if c := cmp.Compare(x.Component.Order(), y.Component.Order()); c != 0 {
		return c
	}
	c := compareText(codeX, codeY, string(x.Meter), string(y.Meter),
		x.IsolationGPU, y.IsolationGPU, x.IsolationHost, y.IsolationHost, string(x.Pricing), string(y.Pricing))
	return cmp.Or(c,
		bytes.Compare(x.SKU[:], y.SKU[:]),
		cmp.Compare(fromX, fromY),
		bytes.Compare(x.PriceVersion[:], y.PriceVersion[:]),
		compareText(x.Reference, y.Reference, x.Variant, y.Variant),
		cmp.Compare(x.Tier, y.Tier),
		cmp.Compare(x.TaxCategory, y.TaxCategory),
	)
}
