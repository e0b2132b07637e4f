package billing

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// newestContent is the version of the canonical content that new documents have. The
// older one stays, so that every stored document keeps the hash it was given.
const newestContent = 2

// hash is the SHA-256 of the canonical content: lines with their units and time, taxes,
// parties, period, currency and the reason of a credit note; not the number, dates of
// issue, or ids of the document. Two invoices
// with one hash are identical.
func (v Invoice) hash() [32]byte {
	if v.ContentVersion == 1 {
		return sha256.Sum256([]byte(v.canonical1()))
	}
	return sha256.Sum256([]byte(v.canonical2()))
}

// canonical2 writes one fact a line, strings quoted, so that no text of a customer
// can look like another fact.
func (v Invoice) canonical2() string {
	var b strings.Builder
	fmt.Fprintf(&b, "document 2 %q %q %q\nperiod %d %d\ncurrency %s\n", kindOf(v.Kind), v.Issuer, v.Locale,
		v.Period.From.UnixMicro(), v.Period.To.UnixMicro(), v.Currency)
	writeParty(&b, "seller", v.Seller)
	writeParty(&b, "buyer", v.Buyer)
	fmt.Fprintf(&b, "reason %q\n", v.Reason)
	for _, l := range v.Lines {
		fmt.Fprintf(&b, "line %q %q %q %s %q %q %q %q %q %s %d %q %d %q %s %q %q %d %s %d %d %t\n",
			l.Key.Component, l.Key.Reference, l.Key.Variant, l.Key.Project, l.Key.Meter, l.SKUCode, l.Key.IsolationGPU, l.Key.IsolationHost,
			l.Key.Pricing, l.Key.PriceVersion, l.Key.Tier, l.Key.TaxCategory, l.TaxRatePPM, l.Description, l.Quantity,
			l.QuantityUnit, l.PricedUnit, l.Divisor, l.UnitPrice.Decimal(), l.Packages, l.Amount.Minor(), l.Simulated)
		if !l.During.From.IsZero() {
			fmt.Fprintf(&b, "during %d %d\n", l.During.From.UnixMicro(), l.During.To.UnixMicro())
		}
		for _, d := range l.Discounts {
			fmt.Fprintf(&b, "discount %q %d\n", d.Name, d.PPM)
		}
		if l.Corrects != nil {
			fmt.Fprintf(&b, "corrects %q %d\n", l.Corrects.Number, l.Corrects.No)
		}
	}
	for _, t := range v.Taxes {
		fmt.Fprintf(&b, "tax %q %d %d %d %q\n", t.Category, t.RatePPM, t.Base.Minor(), t.Amount.Minor(), t.Note)
	}
	fmt.Fprintf(&b, "total %d %d %d\n", v.Subtotal.Minor(), v.TaxTotal.Minor(), v.Total.Minor())
	return b.String()
}

// kindOf reads a document without a kind as what it always was.
func kindOf(k Kind) Kind {
	if k == "" {
		return UsageInvoice
	}
	return k
}

func writeParty(b *strings.Builder, role string, p Party) {
	fmt.Fprintf(b, "%s %q %q %q %q %q\n", role, p.Name, p.Address, p.Country, p.TaxID, p.Endpoint)
	if p.Bank != nil {
		fmt.Fprintf(b, "bank %q %q %q %q\n", p.Bank.Holder, p.Bank.IBAN, p.Bank.BIC, p.Bank.Name)
	}
}

// canonical1 is the content of documents from before components and taxes.
func (v Invoice) canonical1() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invoice 1\nperiod %d %d\ncurrency %s\n", v.Period.From.UnixMicro(), v.Period.To.UnixMicro(), v.Currency)
	for i, p := range []Party{v.Seller, v.Buyer} {
		fmt.Fprintf(&b, "%s %q %q %q %q\n", []string{"seller", "buyer"}[i], p.Name, p.Address, p.Country, p.TaxID)
	}
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
