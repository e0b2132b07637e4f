// Package ubl owns the e-invoice: a document as UBL 2.1 that keeps EN 16931, for
// buyers who agreed to it. It is then the legal original; the same document gives the
// same bytes. Amounts have the currency's decimals and never follow a locale.
//
// It does not own the document (billing) or how it looks (billing/render), and it adds
// nothing up: totals are the document's, and what they must satisfy is tested over the
// XML. Usage is stated in seconds with the price of so many of them, so that quantity ×
// price is exact. What EN 16931 cannot say is refused.
package ubl

import (
	"bytes"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/money"
)

const (
	customization = "urn:cen.eu:en16931:2017"
	namespace     = "urn:oasis:names:specification:ubl:schema:xsd:"
)

// Codes of EN 16931 (UNTDID 1001, 4461, 5189).
const (
	typeInvoice    = "380"
	typeCreditNote = "381"
	typePrepayment = "386"
	creditTransfer = "30"
	reasonDiscount = "95"
)

// Document returns an open document as UBL: an Invoice (380, an advance 386) or a
// CreditNote (381), whose amounts are positive. It fails with fault.Unprocessable,
// document.not_en16931, where the standard cannot say what the document says; each
// reason is a field.
func Document(v billing.Invoice) ([]byte, error) {
	if problems := problemsOf(v); len(problems) > 0 {
		return nil, fault.New(fault.Unprocessable, "document.not_en16931", fmt.Sprintf("The document %s cannot be an e-invoice by EN 16931.", v.Number)).
			Suggest("Complete the seller's and buyer's data before the document is finalized, or agree on PDF.").With(problems...)
	}
	d, err := writerOf(v).document()
	if err != nil {
		return nil, fmt.Errorf("rendering invoice %s as UBL: %w", v.ID, err)
	}
	var out bytes.Buffer
	out.WriteString(xml.Header)
	e := xml.NewEncoder(&out)
	e.Indent("", "  ")
	if err := e.Encode(d); err != nil {
		return nil, fmt.Errorf("writing invoice %s as UBL: %w", v.ID, err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// writer knows the sign of a document: a credit note states what it takes back.
type writer struct {
	v    billing.Invoice
	sign int64
}

func writerOf(v billing.Invoice) writer {
	if v.Kind == billing.CreditNote {
		return writer{v: v, sign: -1}
	}
	return writer{v: v, sign: 1}
}

func (w writer) credit() bool { return w.sign < 0 }

// amount writes minor units of the document with its sign.
func (w writer) amount(a money.Amount) amount {
	return amount{w.v.Currency.Code(), money.NewAmount(w.sign*a.Minor(), w.v.Currency).Decimal()}
}

func (w writer) minor(n int64) amount {
	return w.amount(money.NewAmount(n, w.v.Currency))
}

func (w writer) document() (document, error) {
	v := w.v
	d := document{
		Namespace: namespace + "Invoice-2", CAC: namespace + "CommonAggregateComponents-2", CBC: namespace + "CommonBasicComponents-2",
		Customization: customization, ID: v.Number, IssueDate: date(v.FinalizedAt), Notes: w.notes(), Currency: v.Currency.Code(),
		Seller: role{w.seller()}, Buyer: role{w.buyer()}, Period: days(v.Period.From, v.Period.To),
	}
	d.XMLName.Local = "Invoice"
	if v.Corrects != nil {
		d.Preceding = &preceding{v.Corrects.Number, date(v.Corrects.Issued)}
	} else if v.Replaces != nil {
		d.Preceding = &preceding{v.Replaces.Number, date(v.Replaces.Issued)}
	}
	d.Means = w.means()
	var lines []line
	allowances := int64(0)
	for _, l := range v.Lines {
		if w.isAllowance(l) {
			d.Allowances = append(d.Allowances, allowance{
				ReasonCode: reasonDiscount, Reason: orElse(l.Description, string(l.Key.Component)), Amount: w.minor(-l.Amount.Minor()), Category: categoryOf(l.Key.TaxCategory, l.TaxRatePPM),
			})
			allowances -= l.Amount.Minor()
			continue
		}
		x, err := w.line(l)
		if err != nil {
			return document{}, err
		}
		lines = append(lines, x)
	}
	if len(lines) == 0 {
		lines = []line{w.nothing()}
	}
	switch {
	case w.credit():
		d.XMLName.Local, d.Namespace = "CreditNote", namespace+"CreditNote-2"
		d.CreditNoteType, d.CreditLines = typeCreditNote, lines
	case v.Kind == billing.AdvanceInvoice:
		d.InvoiceType, d.InvoiceLines, d.DueDate = typePrepayment, lines, date(v.DueOn)
	default:
		d.InvoiceType, d.InvoiceLines, d.DueDate = typeInvoice, lines, date(v.DueOn)
	}
	d.Tax = w.taxes()
	d.Totals = w.totals(allowances)
	return d, nil
}

// isAllowance reports whether a line is a reduction of the whole document rather than
// something sold.
func (w writer) isAllowance(l billing.Line) bool {
	switch l.Key.Component {
	case billing.FixedDiscount, billing.PromoCredit, billing.CapCredit:
		return l.Amount.Sign() < 0 && !w.credit()
	}
	return false
}

func (w writer) notes() []string {
	v := w.v
	notes := append([]string(nil), v.Notes...)
	if v.Reason != "" {
		notes = append(notes, v.Reason)
	}
	if v.Simulated() {
		notes = append(notes, "Simulated hardware: lines marked as simulated are usage of GPUs that do not exist.")
	}
	return append(notes, "Content hash "+hex.EncodeToString(v.ContentHash[:]))
}

func (w writer) taxes() taxTotal {
	t := taxTotal{Amount: w.amount(w.v.TaxTotal)}
	for _, x := range w.v.Taxes {
		c := categoryOf(x.Category, x.RatePPM)
		c.Code, c.Reason = exemption(x)
		t.Groups = append(t.Groups, subtotal{Base: w.amount(x.Base), Amount: w.amount(x.Amount), Category: *c})
	}
	return t
}

// exemption is why a group bears no tax; standard and zero rates need no reason.
func exemption(t billing.Tax) (code, reason string) {
	switch t.Category {
	case "AE":
		return "VATEX-EU-AE", orElse(t.Note, "Reverse charge")
	case "O":
		return "VATEX-EU-O", orElse(t.Note, "Not subject to VAT")
	case "E":
		return "", orElse(t.Note, "Exempt from VAT")
	}
	return "", ""
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func categoryOf(category string, ppm int64) *taxCategory {
	c := &taxCategory{ID: category, Scheme: "VAT"}
	if category != "O" {
		percent := decimal(big.NewInt(ppm), 4)
		c.Percent = &percent
	}
	return c
}

func (w writer) totals(allowances int64) totals {
	v := w.v
	t := totals{
		Lines: w.minor(v.Subtotal.Minor() + allowances), Exclusive: w.amount(v.Subtotal), Inclusive: w.amount(v.Total),
		Payable: w.minor(v.Total.Minor() - v.Settlement.Prepaid.Minor()),
	}
	if allowances != 0 {
		a := w.minor(allowances)
		t.Allowances = &a
	}
	if !v.Settlement.Prepaid.IsZero() {
		p := w.amount(v.Settlement.Prepaid)
		t.Prepaid = &p
	}
	return t
}

// means says how to pay; a credit note and a document without a bank do not.
func (w writer) means() *means {
	b := w.v.Seller.Bank
	if b == nil || b.IBAN == "" || w.credit() {
		return nil
	}
	m := &means{Code: creditTransfer, Reference: w.v.Number, Account: &account{ID: strings.ReplaceAll(b.IBAN, " ", ""), Name: b.Holder}}
	if b.BIC != "" {
		m.Account.Bank = &partyID{b.BIC}
	}
	return m
}

func date(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

// days are the first and last day of a half-open interval.
func days(from, to time.Time) *period {
	if from.IsZero() || !to.After(from) {
		return nil
	}
	return &period{date(from), date(to.Add(-time.Microsecond))}
}

// decimal writes an integer of 10^-scale without trailing zeros.
func decimal(n *big.Int, scale int) string {
	text := new(big.Rat).SetFrac(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)).FloatString(scale)
	if scale > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return text
}
