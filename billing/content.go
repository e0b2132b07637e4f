package billing

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// hash is the SHA-256 of the canonical content: lines, taxes, parties, period and
// currency; not the number, dates of issue, or ids of the document. Two invoices
// with one hash are identical.
func (v Invoice) hash() [32]byte { return sha256.Sum256([]byte(v.canonical())) }

// canonical writes one fact a line, strings quoted, so that no text of a customer
// can look like another fact.
func (v Invoice) canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invoice 1\nperiod %d %d\ncurrency %s\n", v.Period.From.UnixMicro(), v.Period.To.UnixMicro(), v.Currency)
	writeParty(&b, "seller", v.Seller)
	writeParty(&b, "buyer", v.Buyer)
	for _, l := range v.Lines {
		fmt.Fprintf(&b, "line %s %q %q %q %q %q %s %d %q %q %s %q %d %s %d %t\n",
			l.Key.Project, l.Key.Meter, l.SKUCode, l.Key.IsolationGPU, l.Key.IsolationHost, l.Key.Pricing, l.Key.PriceVersion,
			l.Key.Tier, l.Key.TaxCategory, l.Description, l.Quantity, l.QuantityUnit, l.Divisor,
			l.UnitPrice.Decimal(), l.Amount.Minor(), l.Simulated)
	}
	for _, t := range v.Taxes {
		fmt.Fprintf(&b, "tax %q %d %d %d %q\n", t.Category, t.RatePPM, t.Base.Minor(), t.Amount.Minor(), t.Note)
	}
	fmt.Fprintf(&b, "total %d %d %d\n", v.Subtotal.Minor(), v.TaxTotal.Minor(), v.Total.Minor())
	return b.String()
}

func writeParty(b *strings.Builder, role string, p Party) {
	fmt.Fprintf(b, "%s %q %q %q %q\n", role, p.Name, p.Address, p.Country, p.TaxID)
}
