package ubl_test

import (
	"encoding/xml"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// node is an element of the produced XML; names are without prefix.
type node struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Text     string     `xml:",chardata"`
	Children []node     `xml:",any"`
}

// all returns the elements at a path.
func (n node) all(path string) []node {
	found := []node{n}
	for step := range strings.SplitSeq(path, "/") {
		var next []node
		for _, f := range found {
			for _, c := range f.Children {
				if c.XMLName.Local == step {
					next = append(next, c)
				}
			}
		}
		found = next
	}
	return found
}

func (n node) has(path string) bool { return len(n.all(path)) > 0 }

// text returns the text at a path, "" where there is none.
func (n node) text(path string) string {
	if found := n.all(path); len(found) > 0 {
		return strings.TrimSpace(found[0].Text)
	}
	return ""
}

func (n node) attr(path, name string) string {
	for _, f := range n.all(path) {
		for _, a := range f.Attrs {
			if a.Name.Local == name {
				return a.Value
			}
		}
	}
	return ""
}

// number returns the number at a path, 0 where there is none.
func (n node) number(path string) *big.Rat {
	r, ok := new(big.Rat).SetString(orZero(n.text(path)))
	if !ok {
		panic(path + ": " + n.text(path))
	}
	return r
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

func sum(nodes []node, path string) *big.Rat {
	total := new(big.Rat)
	for _, n := range nodes {
		total.Add(total, n.number(path))
	}
	return total
}

func parse(t *testing.T, document []byte) node {
	t.Helper()
	var n node
	require.NoError(t, xml.Unmarshal(document, &n))
	return n
}

// judge collects broken rules by their identifiers.
type judge struct{ broken []string }

func (j *judge) want(ok bool, rule, detail string, args ...any) {
	if !ok {
		j.broken = append(j.broken, rule+": "+fmt.Sprintf(detail, args...))
	}
}

func equal(a, b *big.Rat) bool { return a.Cmp(b) == 0 }

// violations checks what EN 16931 asks of a document, over the XML alone.
func violations(n node) []string {
	j := &judge{}
	lines := append(n.all("InvoiceLine"), n.all("CreditNoteLine")...)
	j.presence(n, lines)
	for _, l := range lines {
		j.line(l, n.text("DocumentCurrencyCode"))
	}
	j.totals(n, lines)
	for _, g := range n.all("TaxTotal/TaxSubtotal") {
		j.group(n, g, lines)
	}
	j.decimals(n)
	j.order(n)
	return j.broken
}

func (j *judge) presence(n node, lines []node) {
	for rule, path := range map[string]string{
		"BR-01": "CustomizationID", "BR-02": "ID", "BR-03": "IssueDate", "BR-05": "DocumentCurrencyCode",
		"BR-06": "AccountingSupplierParty/Party/PartyLegalEntity/RegistrationName",
		"BR-07": "AccountingCustomerParty/Party/PartyLegalEntity/RegistrationName",
		"BR-08": "AccountingSupplierParty/Party/PostalAddress", "BR-09": "AccountingSupplierParty/Party/PostalAddress/Country/IdentificationCode",
		"BR-10": "AccountingCustomerParty/Party/PostalAddress", "BR-11": "AccountingCustomerParty/Party/PostalAddress/Country/IdentificationCode",
		"BR-12": "LegalMonetaryTotal/LineExtensionAmount", "BR-13": "LegalMonetaryTotal/TaxExclusiveAmount",
		"BR-14": "LegalMonetaryTotal/TaxInclusiveAmount", "BR-15": "LegalMonetaryTotal/PayableAmount", "BR-CO-18": "TaxTotal/TaxSubtotal",
	} {
		j.want(n.has(path), rule, "no %s", path)
	}
	j.want(slices.Contains([]string{"380", "386"}, n.text("InvoiceTypeCode")) != (n.text("CreditNoteTypeCode") == "381"), "BR-04", "no type code")
	j.want(len(lines) > 0, "BR-16", "no line")
	ids := map[string]bool{}
	for _, l := range lines {
		j.want(!ids[l.text("ID")] && l.text("ID") != "", "BR-21", "line id %q", l.text("ID"))
		ids[l.text("ID")] = true
	}
	seller := n.all("AccountingSupplierParty/Party")[0]
	j.want(seller.has("PartyIdentification/ID") || seller.has("PartyTaxScheme/CompanyID") || seller.has("PartyLegalEntity/CompanyID"), "BR-CO-26", "the seller cannot be identified")
	for _, p := range append(n.all("AccountingSupplierParty/Party"), n.all("AccountingCustomerParty/Party")...) {
		j.want(!p.has("EndpointID") || p.attr("EndpointID", "schemeID") != "", "BR-62", "an endpoint without a scheme")
		for _, s := range p.all("PartyTaxScheme") {
			if s.text("TaxScheme/ID") == "VAT" {
				j.want(regexp.MustCompile(`^[A-Z]{2}\w+`).MatchString(s.text("CompanyID")), "BR-CO-09", "VAT id %q", s.text("CompanyID"))
			}
		}
	}
	for _, m := range n.all("PaymentMeans") {
		j.want(m.has("PaymentMeansCode"), "BR-49", "no code")
		j.want(m.text("PaymentMeansCode") != "30" || m.text("PayeeFinancialAccount/ID") != "", "BR-61", "no account")
	}
	for _, p := range n.all("BillingReference/InvoiceDocumentReference") {
		j.want(p.text("ID") != "", "BR-55", "no number of the preceding invoice")
	}
	if n.number("LegalMonetaryTotal/PayableAmount").Sign() > 0 && n.XMLName.Local == "Invoice" {
		j.want(n.has("DueDate") || n.has("PaymentTerms/Note"), "BR-CO-25", "neither due date nor terms")
	}
	for _, p := range n.all("InvoicePeriod") {
		j.want(p.text("StartDate") <= p.text("EndDate"), "BR-29", "the period ends before it begins")
	}
}

func (j *judge) line(l node, currency string) {
	quantity := "InvoicedQuantity"
	if l.has("CreditedQuantity") {
		quantity = "CreditedQuantity"
	}
	j.want(l.has(quantity), "BR-22", "no quantity")
	unit := l.attr(quantity, "unitCode")
	j.want(slices.Contains([]string{"SEC", "AD", "C62"}, unit), "BR-23", "unit %q", unit)
	j.want(l.has("LineExtensionAmount"), "BR-24", "no net amount")
	j.want(l.text("Item/Name") != "", "BR-25", "no name")
	j.want(l.has("Price/PriceAmount"), "BR-26", "no price")
	j.want(l.number("Price/PriceAmount").Sign() >= 0, "BR-27", "negative price")
	j.want(l.text("Item/ClassifiedTaxCategory/ID") != "", "BR-CO-04", "no tax category")
	j.want(l.attr("LineExtensionAmount", "currencyID") == currency, "BT-131", "currency")
	for _, p := range l.all("InvoicePeriod") {
		j.want(p.text("StartDate") <= p.text("EndDate"), "BR-30", "the period ends before it begins")
	}
	reductions := new(big.Rat)
	for _, a := range l.all("AllowanceCharge") {
		j.want(a.text("ChargeIndicator") == "false" && a.has("Amount"), "BR-41", "an allowance without an amount")
		j.want(a.text("AllowanceChargeReason") != "", "BR-42", "an allowance without a reason")
		reductions.Add(reductions, a.number("Amount"))
	}
	base := big.NewRat(1, 1)
	if l.has("Price/BaseQuantity") {
		base = l.number("Price/BaseQuantity")
		j.want(l.attr("Price/BaseQuantity", "unitCode") == unit, "PEPPOL-R130", "the price has another unit")
	}
	gross := new(big.Rat).Mul(l.number(quantity), new(big.Rat).Quo(l.number("Price/PriceAmount"), base))
	decimals := len(l.text("LineExtensionAmount")) - 1 - strings.IndexByte(l.text("LineExtensionAmount")+".", '.')
	stated := rounded(gross, max(decimals, 0))
	j.want(equal(new(big.Rat).Sub(stated, reductions), l.number("LineExtensionAmount")), "PEPPOL-R120",
		"line %s: %s × %s / %s − %s is not %s", l.text("ID"), l.text(quantity), l.text("Price/PriceAmount"), base.RatString(), reductions.FloatString(2), l.text("LineExtensionAmount"))
}

// rounded is half away from zero.
func rounded(r *big.Rat, decimals int) *big.Rat {
	out, _ := new(big.Rat).SetString(r.FloatString(decimals))
	return out
}

func (j *judge) totals(n node, lines []node) {
	t := n.all("LegalMonetaryTotal")[0]
	var allowances []node
	for _, a := range n.all("AllowanceCharge") {
		j.want(a.text("ChargeIndicator") == "false" && a.has("Amount"), "BR-31", "an allowance without an amount")
		j.want(a.text("TaxCategory/ID") != "", "BR-32", "an allowance without a category")
		j.want(a.text("AllowanceChargeReason") != "", "BR-33", "an allowance without a reason")
		allowances = append(allowances, a)
	}
	sumLines := sum(lines, "LineExtensionAmount")
	j.want(equal(t.number("LineExtensionAmount"), sumLines), "BR-CO-10", "Σ lines is %s", sumLines.FloatString(2))
	j.want(equal(t.number("AllowanceTotalAmount"), sum(allowances, "Amount")), "BR-CO-11", "Σ allowances")
	net := new(big.Rat).Sub(sumLines, t.number("AllowanceTotalAmount"))
	j.want(equal(t.number("TaxExclusiveAmount"), net), "BR-CO-13", "net is %s", net.FloatString(2))
	j.want(equal(n.number("TaxTotal/TaxAmount"), sum(n.all("TaxTotal/TaxSubtotal"), "TaxAmount")), "BR-CO-14", "Σ taxes")
	gross := new(big.Rat).Add(net, n.number("TaxTotal/TaxAmount"))
	j.want(equal(t.number("TaxInclusiveAmount"), gross), "BR-CO-15", "gross is %s", gross.FloatString(2))
	due := new(big.Rat).Sub(gross, t.number("PrepaidAmount"))
	j.want(equal(t.number("PayableAmount"), due), "BR-CO-16", "due is %s", due.FloatString(2))
}

// group checks a group of the tax breakdown and what its category asks for.
func (j *judge) group(n, g node, lines []node) {
	category, percent := g.text("TaxCategory/ID"), g.text("TaxCategory/Percent")
	for rule, path := range map[string]string{"BR-45": "TaxableAmount", "BR-46": "TaxAmount", "BR-47": "TaxCategory/ID"} {
		j.want(g.has(path), rule, "no %s", path)
	}
	j.want(percent != "" || category == "O", "BR-48", "no rate")
	base := new(big.Rat)
	for _, l := range lines {
		if l.text("Item/ClassifiedTaxCategory/ID") == category && l.text("Item/ClassifiedTaxCategory/Percent") == percent {
			base.Add(base, l.number("LineExtensionAmount"))
		}
	}
	for _, a := range n.all("AllowanceCharge") {
		if a.text("TaxCategory/ID") == category && a.text("TaxCategory/Percent") == percent {
			base.Sub(base, a.number("Amount"))
		}
	}
	j.want(equal(base, g.number("TaxableAmount")), "BR-"+category+"-08", "the base is %s, stated %s", base.FloatString(2), g.text("TaxableAmount"))
	rate, ok := new(big.Rat).SetString(orZero(percent))
	j.want(ok, "BT-119", "rate %q", percent)
	_, decimals, _ := strings.Cut(g.text("TaxAmount"), ".") // yen have none; the standard allows a unit
	tax := rounded(new(big.Rat).Mul(base, new(big.Rat).Quo(rate, big.NewRat(100, 1))), len(decimals))
	off := tax.Sub(tax, g.number("TaxAmount"))
	tolerance := new(big.Rat)
	if n.XMLName.Local == "CreditNote" || n.text("InvoiceTypeCode") == "386" {
		tolerance = big.NewRat(1, 100) // the tax of what was credited or paid before is in it
	}
	j.want(off.Abs(off).Cmp(tolerance) <= 0, "BR-CO-17", "%s × %s %% is not %s", g.text("TaxableAmount"), percent, g.text("TaxAmount"))
	vat := func(side string) bool {
		for _, s := range n.all("Accounting" + side + "Party/Party/PartyTaxScheme") {
			if s.text("TaxScheme/ID") == "VAT" {
				return true
			}
		}
		return false
	}
	reason := g.has("TaxCategory/TaxExemptionReason") || g.has("TaxCategory/TaxExemptionReasonCode")
	switch category {
	case "S":
		j.want(rate.Sign() > 0, "BR-S-05", "rate %s", percent)
		j.want(vat("Supplier"), "BR-S-02", "no VAT id of the seller")
		j.want(!reason, "BR-S-10", "a reason for no tax")
	case "AE", "E", "Z":
		j.want(rate.Sign() == 0 && percent != "", "BR-"+category+"-05", "rate %q", percent)
		j.want(g.number("TaxAmount").Sign() == 0, "BR-"+category+"-09", "tax %s", g.text("TaxAmount"))
		j.want(vat("Supplier"), "BR-"+category+"-02", "no VAT id of the seller")
		j.want(category != "AE" || vat("Customer"), "BR-AE-02", "no VAT id of the buyer")
		j.want(reason == (category != "Z"), "BR-"+category+"-10", "reason for no tax: %t", reason)
	case "O":
		j.want(percent == "", "BR-O-05", "rate %q", percent)
		j.want(g.number("TaxAmount").Sign() == 0, "BR-O-09", "tax %s", g.text("TaxAmount"))
		j.want(!vat("Supplier") && !vat("Customer"), "BR-O-02", "a VAT id")
		j.want(reason, "BR-O-10", "no reason for no tax")
		j.want(len(n.all("TaxTotal/TaxSubtotal")) == 1, "BR-O-11", "another group beside it")
	default:
		j.want(false, "BT-118", "category %q", category)
	}
}

// decimals checks that amounts have two at most and one currency.
func (j *judge) decimals(n node) {
	currency := n.text("DocumentCurrencyCode")
	var walk func(node)
	walk = func(x node) {
		for _, c := range x.Children {
			for _, a := range c.Attrs {
				if a.Name.Local != "currencyID" {
					continue
				}
				j.want(a.Value == currency, "BR-05", "%s in %s", c.XMLName.Local, a.Value)
				_, fraction, _ := strings.Cut(strings.TrimSpace(c.Text), ".")
				j.want(len(fraction) <= 2 || c.XMLName.Local == "PriceAmount", "BR-DEC", "%s has %d decimals", c.XMLName.Local, len(fraction))
			}
			walk(c)
		}
	}
	walk(n)
}

// sequence is the order of the schema's elements, as far as they are used.
var sequence = map[string][]string{
	"Invoice": {
		"CustomizationID", "ID", "IssueDate", "DueDate", "InvoiceTypeCode", "Note", "DocumentCurrencyCode", "InvoicePeriod", "BillingReference",
		"AccountingSupplierParty", "AccountingCustomerParty", "PaymentMeans", "PaymentTerms", "AllowanceCharge", "TaxTotal", "LegalMonetaryTotal", "InvoiceLine",
	},
	"CreditNote": {
		"CustomizationID", "ID", "IssueDate", "CreditNoteTypeCode", "Note", "DocumentCurrencyCode", "InvoicePeriod", "BillingReference",
		"AccountingSupplierParty", "AccountingCustomerParty", "PaymentMeans", "PaymentTerms", "AllowanceCharge", "TaxTotal", "LegalMonetaryTotal", "CreditNoteLine",
	},
	"Party":                 {"EndpointID", "PartyIdentification", "PostalAddress", "PartyTaxScheme", "PartyLegalEntity"},
	"PostalAddress":         {"StreetName", "AdditionalStreetName", "AddressLine", "Country"},
	"PaymentMeans":          {"PaymentMeansCode", "PaymentDueDate", "PaymentID", "PayeeFinancialAccount"},
	"PayeeFinancialAccount": {"ID", "Name", "FinancialInstitutionBranch"},
	"AllowanceCharge":       {"ChargeIndicator", "AllowanceChargeReasonCode", "AllowanceChargeReason", "Amount", "BaseAmount", "TaxCategory"},
	"TaxCategory":           {"ID", "Percent", "TaxExemptionReasonCode", "TaxExemptionReason", "TaxScheme"},
	"ClassifiedTaxCategory": {"ID", "Percent", "TaxScheme"},
	"TaxSubtotal":           {"TaxableAmount", "TaxAmount", "TaxCategory"},
	"LegalMonetaryTotal":    {"LineExtensionAmount", "TaxExclusiveAmount", "TaxInclusiveAmount", "AllowanceTotalAmount", "PrepaidAmount", "PayableAmount"},
	"InvoiceLine":           {"ID", "Note", "InvoicedQuantity", "LineExtensionAmount", "InvoicePeriod", "AllowanceCharge", "Item", "Price"},
	"CreditNoteLine":        {"ID", "Note", "CreditedQuantity", "LineExtensionAmount", "InvoicePeriod", "AllowanceCharge", "Item", "Price"},
	"Item":                  {"Description", "Name", "SellersItemIdentification", "ClassifiedTaxCategory", "AdditionalItemProperty"},
	"Price":                 {"PriceAmount", "BaseQuantity"},
}

// order checks that elements come in the order of the schema.
func (j *judge) order(n node) {
	want, known := sequence[n.XMLName.Local]
	last := 0
	for _, c := range n.Children {
		if at := slices.Index(want, c.XMLName.Local); known {
			j.want(at >= last, "XSD", "%s in %s", c.XMLName.Local, n.XMLName.Local)
			last = max(last, at)
		}
		j.order(c)
	}
}
