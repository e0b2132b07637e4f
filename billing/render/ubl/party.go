package ubl

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
)

func (w writer) seller() party {
	p := partyOf(w.v.Seller)
	p.ID = &partyID{orElse(w.v.Issuer, w.v.Seller.Name)}
	switch {
	case w.v.Seller.TaxID == "":
	case w.outside():
		// Outside the scope of VAT no VAT id may be stated: it is a tax registration.
		p.TaxIDs = []taxScheme{{w.v.Seller.TaxID, "TAX"}}
	default:
		p.TaxIDs = []taxScheme{{w.v.Seller.TaxID, "VAT"}}
	}
	return p
}

func (w writer) buyer() party {
	p := partyOf(w.v.Buyer)
	p.ID = &partyID{w.v.Org.String()}
	if w.v.Buyer.TaxID != "" && !w.outside() && vatID.MatchString(w.v.Buyer.TaxID) {
		p.TaxIDs = []taxScheme{{w.v.Buyer.TaxID, "VAT"}}
	}
	if scheme, value, ok := strings.Cut(w.v.Buyer.Endpoint, ":"); ok {
		p.Endpoint = &identifier{scheme, value}
	}
	return p
}

func (w writer) outside() bool {
	return slices.ContainsFunc(w.v.Taxes, func(t billing.Tax) bool { return t.Category == billing.OutsideScope })
}

func partyOf(p billing.Party) party {
	out := party{Name: p.Name, Address: address{Country: p.Country}}
	for i, a := range p.Address {
		switch i {
		case 0:
			out.Address.Street = a
		case 1:
			out.Address.Additional = a
		default:
			if out.Address.Line == nil {
				out.Address.Line = &rest{}
			}
			out.Address.Line.Line = strings.TrimPrefix(out.Address.Line.Line+", "+a, ", ")
		}
	}
	return out
}

// vatID is a VAT id by form: a country and what that country wants.
var vatID = regexp.MustCompile(`^[A-Z]{2}[0-9A-Z+*]{2,13}$`)

// categories are the tax categories that documents have.
var categories = []string{"S", "AE", "O", "E", "Z"}

// problemsOf lists why a document is none by EN 16931.
func problemsOf(v billing.Invoice) []fault.Field {
	var out []fault.Field
	want := func(ok bool, pointer, detail string) {
		if !ok {
			out = append(out, fault.Field{Pointer: pointer, Code: "en16931", Detail: detail})
		}
	}
	want(v.State == billing.Open && v.Number != "", "/state", "Only a finalized document has a number and a date of issue.")
	want(v.Currency.Exponent() <= 2, "/currency", "Amounts have two decimals at most; "+v.Currency.Code()+" has more.")
	for side, p := range map[string]billing.Party{"/seller": v.Seller, "/buyer": v.Buyer} {
		want(p.Name != "", side+"/name", "A name is needed.")
		want(len(p.Country) == 2, side+"/country", "A country is needed.")
	}
	want(v.Kind != billing.CreditNote || v.Corrects != nil, "/corrects", "A credit note names the invoice that it corrects.")
	outside := false
	for _, t := range v.Taxes {
		want(slices.Contains(categories, t.Category), "/taxes", "The tax category "+t.Category+" is unknown.")
		outside = outside || t.Category == billing.OutsideScope
		if t.Category != billing.OutsideScope {
			want(vatID.MatchString(v.Seller.TaxID), "/seller/tax_id", "Tax of the category "+t.Category+" needs the seller's VAT id, which begins with its country.")
		}
		if t.Category == "AE" {
			want(vatID.MatchString(v.Buyer.TaxID), "/buyer/tax_id", "Reverse charge needs the buyer's VAT id, which begins with its country.")
		}
	}
	want(!outside || len(v.Taxes) == 1, "/taxes", "What is outside the scope of VAT has a document of its own.")
	slices.SortStableFunc(out, func(a, b fault.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	return out
}
