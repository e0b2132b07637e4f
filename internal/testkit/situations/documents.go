package situations

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// paid returns the document with money from the prepaid balance on it.
func paid(t T, v billing.Invoice, s billing.Settlement) billing.Invoice {
	v, err := v.Settled(s)
	require.NoError(t, err)
	return v
}

func (m *maker) sum(minor int64) money.Amount { return money.NewAmount(minor, m.v.Currency) }

// settled is documents on which somebody paid beforehand. The first is worked out in
// the reference: usage 100.00, promotion 20.00, tax 20 %, prepaid 30.00 → due 66.00.
func settled(t T) []Situation {
	promo := month(t, "EUR")
	promo.line(gpu("h100-whole"), "2.50", Use{"serve-a", 25 * Hour}, Use{"serve-b", 15 * Hour}).
		flat(billing.PromoCredit, "Welcome credit", "-20.00").taxed("S", 200_000, "")

	covered := month(t, "EUR")
	covered.line(gpu("h100-whole"), "2.49", Use{"serve", 10 * Hour}).taxed("S", standard, "")

	advance := month(t, "EUR")
	advance.v.Kind = billing.AdvanceInvoice
	advance.v.Period = metering.Between(Start.AddDate(0, 0, 3), Start.AddDate(0, 0, 3).Add(time.Second))
	advance.v.TaxPoint = Start.AddDate(0, 0, 3)
	advance.flat(billing.AdvancePaid, "Prepayment received", "100.00").taxed("S", standard, "")

	deducted := month(t, "EUR")
	deducted.line(gpu("h100-whole"), "2.49", Use{"serve", 100 * Hour}).
		flat(billing.AdvanceOffset, "Advance TR-AD-2026-000001", "-100.00").taxed("S", standard, "")

	german := month(t, "EUR")
	german.v.Locale = "de"
	german.line(gpu("h100-whole"), "1234.56", Use{"rechenzeit", 3*Hour + 1_500_000}).taxed("S", standard, "")
	return []Situation{
		{"promo-prepaid", paid(t, promo.open("TR-2026-000011"), billing.Settlement{Prepaid: promo.sum(3000)})},
		{"fully-prepaid", paid(t, covered.open("TR-2026-000012"), billing.Settlement{Prepaid: covered.sum(2963)})},
		{"advance", paid(t, advance.open("TR-AD-2026-000001"), billing.Settlement{Paid: advance.sum(11900)})},
		{"advance-deducted", deducted.open("TR-2026-000013")},
		{"german", german.open("TR-2026-000014")},
	}
}

// corrections is documents that refer to others.
func corrections(t T) []Situation {
	note := month(t, "EUR")
	note.v.Kind, note.v.Reason = billing.CreditNote, "Host failure on 12 November"
	note.v.Corrects = &billing.DocumentRef{ID: ID[id.Invoice](9), Number: "TR-2026-000001", Issued: Start.AddDate(0, 1, 1)}
	correction := gpu("h100-whole")
	correction.Key.Component = billing.Correction
	note.line(correction, "2.49", Use{"serve", -7 * Hour}).corrects("TR-2026-000001", 2).
		flat(billing.Correction, "Goodwill", "-3.00").corrects("TR-2026-000001", 1).taxed("S", standard, "")

	again := month(t, "EUR")
	again.v.Replaces = &billing.DocumentRef{ID: ID[id.Invoice](8), Number: "TR-2026-000001", Issued: Start.AddDate(0, 1, 1)}
	again.v.Buyer.Name = "Acme & Söhne AG"
	again.line(gpu("h100-whole"), "2.49", Use{"serve", 31 * Hour}).taxed("S", standard, "")

	late := gpu("mig")
	late.Key.Component, late.Key.Variant = billing.Adjustment, "usage/"
	adjusted := month(t, "EUR")
	adjusted.v.CloseNo = 1
	adjusted.line(late, "0.49", Use{"night", 5 * Hour}).corrects("TR-2026-000001", 1).
		flat(billing.CarryOver, "Not invoiced in October", "0.37").taxed("S", standard, "")
	return []Situation{
		{"credit-note", note.open("TR-CN-2026-000001")},
		{"re-issue", again.open("TR-2026-000015")},
		{"late-usage", adjusted.open("TR-2026-000016")},
		{"zero", month(t, "EUR").open("TR-2026-000017")},
	}
}

// abroad is other currencies, countries and scripts.
func abroad(t T) []Situation {
	reverse := month(t, "EUR")
	reverse.v.Buyer = billing.Party{Name: "Société Exemple SARL", Address: []string{"3 rue de l'Œuvre", "75001 Paris"}, Country: "FR", TaxID: "FR12345678901"}
	reverse.line(gpu("h100-whole"), "2.49", Use{"serve", 40 * Hour}).taxed("AE", 0, "VAT is due by the recipient, article 196 of Directive 2006/112/EC.")

	yen := month(t, "JPY")
	yen.v.Buyer = billing.Party{Name: "例示株式会社", Address: []string{"千代田区1-1", "東京"}, Country: "JP"}
	yen.line(gpu("mig"), "75.5", Use{"train", 11*Hour + 1}).taxed("O", 0, "Outside the scope of German VAT.")

	dinar := month(t, "KWD")
	dinar.v.Buyer = billing.Party{Name: "Example Co.", Address: []string{"Kuwait City"}, Country: "KW"}
	dinar.line(gpu("mig"), "0.151", Use{"train-a", 11*Hour + 1}, Use{"train-b", Hour / 7}).taxed("O", 0, "Outside the scope of German VAT.")

	chinese := month(t, "CNY")
	chinese.v.Locale = "zh"
	chinese.v.Seller = billing.Party{Name: "切片云（北京）有限公司", Address: []string{"海淀区示例路1号", "北京 100080"}, Country: "CN", TaxID: "91110108MA00000000"}
	chinese.v.Buyer = billing.Party{Name: "示例智能科技（上海）股份有限公司", Address: []string{"浦东新区世纪大道100号", "上海 200120"}, Country: "CN", TaxID: "91310115MA11111111"}
	chinese.line(simulated(gpu("h100-whole")), "17.8", Use{"训练任务-甲", 20 * Hour}, Use{"推理", 3*Hour + 7}).taxed("S", 60_000, "")

	usd := month(t, "USD")
	usd.v.Seller.TaxID, usd.v.Seller.Bank = "", nil
	usd.v.Buyer = billing.Party{Name: "=HYPERLINK(\"x\")", Address: []string{"1 Main Street", "Springfield"}, Country: "US"}
	usd.line(gpu("mig"), "0.49", Use{"@SUM(A1)", 2 * Hour}, Use{"plain", Hour})
	return []Situation{
		{"reverse-charge", reverse.open("TR-2026-000018")},
		{"yen", yen.open("TR-2026-000019")},
		{"dinar", dinar.open("TR-2026-000020")},
		{"chinese", chinese.open("TR-2026-000021")},
		{"no-tax-table", usd.open("TR-2026-000022")},
	}
}
