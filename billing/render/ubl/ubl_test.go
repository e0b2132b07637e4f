package ubl_test

import (
	"encoding/xml"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render/ubl"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/testkit/golden"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

// What EN 16931 has no words for: amounts of three decimals, a document without a
// number, a Chinese tax id.
var refused = []string{"dinar", "preview", "chinese"}

func TestEverySituationKeepsTheStandard(t *testing.T) {
	for _, s := range situations.All(t) {
		t.Run(s.Name, func(t *testing.T) {
			document, err := ubl.Document(s.Invoice)
			if slices.Contains(refused, s.Name) {
				require.Equal(t, fault.Unprocessable, fault.KindOf(err))
				require.Equal(t, "document.not_en16931", fault.CodeOf(err))
				require.NotEmpty(t, fault.From(err).Fields)
				return
			}
			require.NoError(t, err)
			require.Empty(t, violations(parse(t, document)))
			golden.Assert(t, s.Name+".xml", document)
			again, err := ubl.Document(s.Invoice)
			require.NoError(t, err)
			require.Equal(t, document, again)
		})
	}
}

func document(t *testing.T, name string) node {
	t.Helper()
	d, err := ubl.Document(situations.Named(t, name))
	require.NoError(t, err)
	return parse(t, d)
}

func TestWhatABuyersProgramReads(t *testing.T) {
	plain := document(t, "plain-usage")
	require.Equal(t, "380", plain.text("InvoiceTypeCode"))
	require.Equal(t, "5407.000001", plain.text("InvoiceLine/InvoicedQuantity"))
	require.Equal(t, "3600", plain.text("InvoiceLine/Price/BaseQuantity"))
	require.Equal(t, "DE02120300000000202051", plain.text("PaymentMeans/PayeeFinancialAccount/ID"))
	require.Equal(t, "2026-11-30", plain.text("InvoicePeriod/EndDate"), "the last day is inside")

	promo := document(t, "promo-prepaid")
	require.Equal(t, "20.00", promo.text("AllowanceCharge/Amount"))
	require.Equal(t, "80.00", promo.text("LegalMonetaryTotal/TaxExclusiveAmount"))
	require.Equal(t, "16.00", promo.text("TaxTotal/TaxAmount"))
	require.Equal(t, "30.00", promo.text("LegalMonetaryTotal/PrepaidAmount"))
	require.Equal(t, "66.00", promo.text("LegalMonetaryTotal/PayableAmount"))

	note := document(t, "credit-note")
	require.Equal(t, "CreditNote", note.XMLName.Local)
	require.Equal(t, "TR-2026-000001", note.text("BillingReference/InvoiceDocumentReference/ID"))
	require.Equal(t, "25200", note.text("CreditNoteLine/CreditedQuantity"))
	require.Equal(t, "24.31", note.text("LegalMonetaryTotal/PayableAmount"), "positive: a credit note takes back")

	discounts := document(t, "discounts")
	require.Equal(t, "Volume agreement 1 10 %, Volume agreement 2 5 %", discounts.text("InvoiceLine/AllowanceCharge/AllowanceChargeReason"))

	require.Equal(t, "386", document(t, "advance").text("InvoiceTypeCode"))
	require.Equal(t, "VATEX-EU-AE", document(t, "reverse-charge").text("TaxTotal/TaxSubtotal/TaxCategory/TaxExemptionReasonCode"))
}

func TestWhatTheStandardCannotSayIsRefused(t *testing.T) {
	for pointer, spoil := range map[string]func(*billing.Invoice){
		"/seller/tax_id":  func(v *billing.Invoice) { v.Seller.TaxID = "" },
		"/buyer/tax_id":   func(v *billing.Invoice) { v.Buyer.TaxID = "unknown"; v.Taxes[0].Category = "AE" },
		"/buyer/country":  func(v *billing.Invoice) { v.Buyer.Country = "" },
		"/seller/country": func(v *billing.Invoice) { v.Seller.Country = "Germany" },
		"/buyer/name":     func(v *billing.Invoice) { v.Buyer.Name = "" },
		"/corrects":       func(v *billing.Invoice) { v.Kind = billing.CreditNote },
		"/taxes":          func(v *billing.Invoice) { v.Taxes = append(v.Taxes, billing.Tax{Category: "O"}) },
		"/state":          func(v *billing.Invoice) { v.State = billing.Draft },
	} {
		v := situations.Named(t, "plain-usage")
		v.Taxes = slices.Clone(v.Taxes)
		spoil(&v)
		_, err := ubl.Document(v)
		require.Equal(t, fault.Unprocessable, fault.KindOf(err), pointer)
		require.True(t, slices.ContainsFunc(fault.From(err).Fields, func(f fault.Field) bool { return f.Pointer == pointer }), pointer)
	}
}

// The judge of this test sees each breach: a spoiled document breaks the rule.
func TestTheRulesSeeEachBreach(t *testing.T) {
	d, err := ubl.Document(situations.Named(t, "promo-prepaid"))
	require.NoError(t, err)
	for rule, change := range map[string][2]string{
		"BR-CO-10": {"<cbc:LineExtensionAmount currencyID=\"EUR\">100.00</cbc:LineExtensionAmount>\n    <cbc:TaxEx", "<cbc:LineExtensionAmount currencyID=\"EUR\">100.01</cbc:LineExtensionAmount>\n    <cbc:TaxEx"},
		"BR-CO-11": {">20.00</cbc:AllowanceTotalAmount>", ">21.00</cbc:AllowanceTotalAmount>"},
		"BR-CO-13": {">80.00</cbc:TaxExclusiveAmount>", ">80.01</cbc:TaxExclusiveAmount>"},
		"BR-CO-15": {">96.00</cbc:TaxInclusiveAmount>", ">96.01</cbc:TaxInclusiveAmount>"},
		"BR-CO-16": {">66.00</cbc:PayableAmount>", ">66.01</cbc:PayableAmount>"},
		"BR-CO-17": {">16.00</cbc:TaxAmount>", ">15.00</cbc:TaxAmount>"},
		"BR-S-08":  {">80.00</cbc:TaxableAmount>", ">79.00</cbc:TaxableAmount>"},
		"BR-S-02":  {"<cbc:ID>VAT</cbc:ID>", "<cbc:ID>TAX</cbc:ID>"},
		"BR-27":    {">2.50</cbc:PriceAmount>", ">-2.50</cbc:PriceAmount>"},
		"BR-02":    {"<cbc:ID>TR-2026-000011</cbc:ID>\n  <cbc:Issue", "<cbc:Issue"},
		"BR-DEC":   {">66.00</cbc:PayableAmount>", ">66.000</cbc:PayableAmount>"},
		"BR-CO-25": {"<cbc:DueDate>2026-12-16</cbc:DueDate>", ""},
		"XSD":      {"<cbc:IssueDate>2026-12-02</cbc:IssueDate>", ""},
	} {
		text := strings.ReplaceAll(string(d), change[0], change[1])
		if rule == "XSD" {
			text = strings.Replace(text, "<cbc:CustomizationID>", "<cbc:IssueDate>2026-12-02</cbc:IssueDate><cbc:CustomizationID>", 1)
		}
		require.NotEqual(t, string(d), text, rule)
		found := violations(parse(t, []byte(text)))
		require.True(t, slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, rule+":") }), "%s: %v", rule, found)
	}
}

func TestNamesAreText(t *testing.T) {
	const evil = `<x>&"'` + "\x00\x01"
	v := situations.Named(t, "plain-usage")
	v.Buyer.Name, v.Notes = evil, []string{evil}
	d, err := ubl.Document(v)
	require.NoError(t, err)
	require.Equal(t, "<x>&\"'\uFFFD\uFFFD", parse(t, d).text("AccountingCustomerParty/Party/PartyLegalEntity/RegistrationName"))
	require.NoError(t, xml.Unmarshal(d, new(node)))
}

// Any usage, price and discount keeps the arithmetic of the standard.
func TestAnyDocumentKeepsTheArithmetic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := situations.Random(rt)
		d, err := ubl.Document(v)
		require.NoError(rt, err)
		var n node
		require.NoError(rt, xml.Unmarshal(d, &n))
		require.Empty(rt, violations(n))
		require.True(rt, equal(n.number("LegalMonetaryTotal/TaxInclusiveAmount"), new(big.Rat).Abs(v.Total.Exact().Rat())))
	})
}
