package render

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/money"
)

// The copy as JSON. Money and quantities are decimal strings: many readers of JSON
// have floating point numbers only.
type (
	document struct {
		Copy        bool       `json:"copy"` // always true: the original is stored apart
		ID          string     `json:"id,omitempty"`
		Number      string     `json:"number,omitempty"`
		Kind        string     `json:"kind"`
		State       string     `json:"state"`
		Locale      string     `json:"locale,omitempty"`
		Issuer      string     `json:"issuer,omitempty"`
		IssuedAt    string     `json:"issued_at,omitempty"`
		DueOn       string     `json:"due_on,omitempty"`
		TaxPoint    string     `json:"tax_point,omitempty"`
		PeriodStart string     `json:"period_start"`
		PeriodEnd   string     `json:"period_end"`
		CloseNo     int        `json:"close_no"`
		Currency    string     `json:"currency"`
		Corrects    *reference `json:"corrects,omitempty"`
		Replaces    *reference `json:"replaces,omitempty"`
		Reason      string     `json:"reason,omitempty"`
		Seller      side       `json:"seller"`
		Buyer       side       `json:"buyer"`
		Lines       []position `json:"lines"`
		Taxes       []taxGroup `json:"taxes"`
		Net         string     `json:"net_total"`
		TaxTotal    string     `json:"tax_total"`
		Total       string     `json:"total"`
		Prepaid     string     `json:"prepaid"`
		Paid        string     `json:"paid"`
		Credited    string     `json:"credited"`
		WrittenOff  string     `json:"written_off"`
		Due         string     `json:"due"`
		Notes       []string   `json:"notes,omitempty"`
		Simulated   bool       `json:"simulated"`
		Hash        string     `json:"content_hash"`
	}
	reference struct {
		ID       string `json:"id"`
		Number   string `json:"number"`
		IssuedAt string `json:"issued_at,omitempty"`
	}
	side struct {
		Name    string   `json:"name"`
		Address []string `json:"address,omitempty"`
		Country string   `json:"country,omitempty"`
		TaxID   string   `json:"tax_id,omitempty"`
		Bank    *account `json:"bank,omitempty"`
	}
	account struct {
		Holder string `json:"holder,omitempty"`
		IBAN   string `json:"iban,omitempty"`
		BIC    string `json:"bic,omitempty"`
		Name   string `json:"name,omitempty"`
	}
	position struct {
		No            int         `json:"line"`
		Component     string      `json:"component"`
		Description   string      `json:"description"`
		SKU           string      `json:"sku,omitempty"`
		Project       string      `json:"project_id,omitempty"`
		ProjectName   string      `json:"project,omitempty"`
		Meter         string      `json:"meter,omitempty"`
		IsolationGPU  string      `json:"isolation_gpu,omitempty"`
		IsolationHost string      `json:"isolation_host,omitempty"`
		Pricing       string      `json:"pricing,omitempty"`
		PriceVersion  string      `json:"price_version,omitempty"`
		Tier          int         `json:"tier,omitempty"`
		Reference     string      `json:"reference,omitempty"`
		From          string      `json:"usage_start,omitempty"`
		To            string      `json:"usage_end,omitempty"`
		Quantity      string      `json:"quantity,omitempty"`
		QuantityUnit  string      `json:"quantity_unit,omitempty"`
		Divisor       int64       `json:"divisor,omitempty"`
		PricedUnit    string      `json:"priced_unit,omitempty"`
		UnitPrice     string      `json:"unit_price,omitempty"`
		Packages      int64       `json:"packages,omitempty"`
		Discounts     []reduction `json:"discounts,omitempty"`
		TaxCategory   string      `json:"tax_category"`
		TaxRate       string      `json:"tax_rate_percent"`
		Amount        string      `json:"amount"`
		Simulated     bool        `json:"simulated"`
		Corrects      *lineRef    `json:"corrects,omitempty"`
		Subjects      []part      `json:"subjects,omitempty"`
	}
	reduction struct {
		Name    string `json:"name"`
		Percent string `json:"percent"`
	}
	lineRef struct {
		Number string `json:"number"`
		Line   int    `json:"line"`
	}
	part struct {
		Kind     string `json:"kind"`
		ID       string `json:"id"`
		Name     string `json:"name"`
		Quantity string `json:"quantity"`
		Segments int64  `json:"segments"`
		Amount   string `json:"amount"`
		Hash     string `json:"segments_hash"`
	}
	taxGroup struct {
		Category string `json:"category"`
		Rate     string `json:"rate_percent"`
		Base     string `json:"base"`
		Amount   string `json:"amount"`
		Note     string `json:"note,omitempty"`
	}
)

// JSON renders a copy of a document, with what was paid and credited since it was
// issued. It never depends on the document's locale.
func JSON(v billing.Invoice) ([]byte, error) {
	d := document{
		Copy: true, ID: v.ID.String(), Number: v.Number, Kind: string(kindOf(v)), State: string(v.State), Locale: v.Locale, Issuer: v.Issuer,
		IssuedAt: instant(v.FinalizedAt), TaxPoint: instant(v.TaxPoint), PeriodStart: instant(v.Period.From), PeriodEnd: instant(v.Period.To),
		CloseNo: v.CloseNo, Currency: v.Currency.Code(), Corrects: referenceOf(v.Corrects), Replaces: referenceOf(v.Replaces), Reason: v.Reason,
		Seller: sideOf(v.Seller), Buyer: sideOf(v.Buyer), Lines: []position{}, Taxes: []taxGroup{},
		Net: v.Subtotal.Decimal(), TaxTotal: v.TaxTotal.Decimal(), Total: v.Total.Decimal(),
		Prepaid: orZero(v, v.Settlement.Prepaid), Paid: orZero(v, v.Settlement.Paid), Credited: orZero(v, v.Settlement.Credited),
		WrittenOff: orZero(v, v.Settlement.WrittenOff), Due: v.Due.Decimal(), Notes: v.Notes, Simulated: v.Simulated(),
		Hash: hex.EncodeToString(v.ContentHash[:]),
	}
	if !v.DueOn.IsZero() {
		d.DueOn = v.DueOn.Format(time.DateOnly)
	}
	for _, l := range v.Lines {
		d.Lines = append(d.Lines, positionOf(l))
	}
	for _, t := range v.Taxes {
		d.Taxes = append(d.Taxes, taxGroup{t.Category, rate(t.RatePPM), t.Base.Decimal(), t.Amount.Decimal(), t.Note})
	}
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing invoice %s as JSON: %w", v.ID, err)
	}
	return append(out, '\n'), nil
}

func orZero(v billing.Invoice, a money.Amount) string {
	return money.NewAmount(a.Minor(), v.Currency).Decimal()
}

func referenceOf(r *billing.DocumentRef) *reference {
	if r == nil {
		return nil
	}
	return &reference{ID: r.ID.String(), Number: r.Number, IssuedAt: instant(r.Issued)}
}

func sideOf(p billing.Party) side {
	s := side{Name: p.Name, Address: p.Address, Country: p.Country, TaxID: p.TaxID}
	if p.Bank != nil {
		s.Bank = &account{p.Bank.Holder, p.Bank.IBAN, p.Bank.BIC, p.Bank.Name}
	}
	return s
}

func positionOf(l billing.Line) position {
	p := position{
		No: l.No, Component: string(l.Key.Component), Description: l.Description, SKU: l.SKUCode, Project: l.Key.Project.String(),
		ProjectName: l.ProjectName, Meter: string(l.Key.Meter), IsolationGPU: l.Key.IsolationGPU, IsolationHost: l.Key.IsolationHost,
		Pricing: string(l.Key.Pricing), PriceVersion: l.Key.PriceVersion.String(), Tier: l.Key.Tier, Reference: l.Key.Reference,
		From: instant(l.During.From), To: instant(l.During.To), Packages: l.Packages, TaxCategory: l.Key.TaxCategory, TaxRate: rate(l.TaxRatePPM),
		Amount: l.Amount.Decimal(), Simulated: l.Simulated,
	}
	if measured(l) {
		p.Quantity, p.QuantityUnit, p.Divisor = l.Quantity.String(), l.QuantityUnit, l.Divisor
		p.PricedUnit, p.UnitPrice = l.PricedUnit, l.UnitPrice.Decimal()
	}
	for _, d := range l.Discounts {
		p.Discounts = append(p.Discounts, reduction{d.Name, rate(d.PPM)})
	}
	if l.Corrects != nil {
		p.Corrects = &lineRef{l.Corrects.Number, l.Corrects.No}
	}
	for _, s := range l.Subjects {
		p.Subjects = append(p.Subjects, part{
			Kind: s.Subject.Kind, ID: subjectID(s), Name: s.Name, Quantity: s.Quantity.String(), Segments: s.Segments,
			Amount: s.Amount.Decimal(), Hash: hex.EncodeToString(s.Hash[:]),
		})
	}
	return p
}
