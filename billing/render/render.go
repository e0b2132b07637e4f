// Package render owns how documents look to people: an invoice as one HTML page
// that needs nothing else, prints well, and loads under a content security policy
// without scripts. It is a copy of the document and says so.
//
// It does not own the document (billing), its JSON (package api maps it to the
// contract), or any arithmetic: what it prints was computed before. Quantities are
// shown in priced units, cut to six decimals, next to the exact integer.
package render

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"math/big"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
)

//go:embed invoice.html
var page string

//go:embed invoice.css
var style string

var invoice = template.Must(template.New("invoice").Parse(page))

// ContentSecurityPolicy is the header under which a page of HTML may be served: its
// own style, by hash, and nothing else.
var ContentSecurityPolicy = "default-src 'none'; style-src 'sha256-" + styleHash() +
	"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func styleHash() string {
	sum := sha256.Sum256([]byte(style))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// HTML renders an invoice, a draft or a preview as UTF-8. The same document gives
// the same bytes.
func HTML(v billing.Invoice) ([]byte, error) {
	var out bytes.Buffer
	if err := invoice.Execute(&out, modelOf(v)); err != nil {
		return nil, fmt.Errorf("rendering invoice %s: %w", v.ID, err)
	}
	return out.Bytes(), nil
}

// model is what the page shows, as text.
type model struct {
	Style         template.CSS
	Title         string
	Number        string
	State         string
	Draft         bool
	Simulated     bool
	From, To      string // dates, both inclusive
	FromAt, ToAt  string // instants, half-open
	Issued        string
	Currency      string
	Seller, Buyer billing.Party
	Lines         []lineModel
	Taxes         []taxModel
	Subtotal      string
	Total, Due    string
	Hash          string
	ID            string
}

type lineModel struct {
	No                          int
	Description, Project        string
	ProjectID, SKU              string
	IsolationGPU, IsolationHost string
	Quantity, Priced            string
	Exact, Unit                 string
	UnitPrice, Amount, Tax      string
	Simulated                   bool
	Shares                      []shareModel
}

type shareModel struct{ Name, ID, Exact, Amount string }

type taxModel struct{ Category, Rate, Base, Amount, Note string }

const (
	dateLayout    = "2 January 2006"
	instantLayout = "2006-01-02T15:04:05.000000Z"
)

func modelOf(v billing.Invoice) model {
	m := model{
		Style: template.CSS(style), Number: v.Number, State: string(v.State), Draft: v.State != billing.Open,
		Simulated: v.Simulated(), From: v.Period.From.Format(dateLayout), To: v.Period.To.Add(-time.Microsecond).Format(dateLayout),
		FromAt: v.Period.From.Format(instantLayout), ToAt: v.Period.To.Format(instantLayout),
		Currency: v.Currency.Code(), Seller: v.Seller, Buyer: v.Buyer,
		Subtotal: v.Subtotal.Decimal(), Total: v.Total.Decimal(), Due: v.Due.Decimal(),
		Hash: hex.EncodeToString(v.ContentHash[:]), ID: v.ID.String(),
	}
	m.Title = "Invoice " + v.Number
	if m.Draft {
		m.Title = "Invoice " + string(v.State)
	}
	if !v.FinalizedAt.IsZero() {
		m.Issued = v.FinalizedAt.Format(dateLayout)
	}
	for _, l := range v.Lines {
		m.Lines = append(m.Lines, lineOf(l))
	}
	for _, t := range v.Taxes {
		m.Taxes = append(m.Taxes, taxModel{
			Category: t.Category, Rate: percent(t.RatePPM), Base: t.Base.Decimal(), Amount: t.Amount.Decimal(), Note: t.Note,
		})
	}
	return m
}

func lineOf(l billing.Line) lineModel {
	m := lineModel{
		No: l.No, Description: l.Description, Project: l.ProjectName, ProjectID: l.Key.Project.String(), SKU: l.SKUCode,
		IsolationGPU: words(l.Key.IsolationGPU), IsolationHost: words(l.Key.IsolationHost),
		Quantity: pricedUnits(l.Quantity, l.Divisor), Priced: l.PricedUnit, Exact: l.Quantity.String(), Unit: l.QuantityUnit,
		UnitPrice: l.UnitPrice.Decimal(), Amount: l.Amount.Decimal(), Tax: l.Key.TaxCategory, Simulated: l.Simulated,
	}
	for _, s := range l.Subjects {
		m.Shares = append(m.Shares, shareModel{
			Name: s.Name, ID: id.Instance(s.Subject.ID).String(), Exact: s.Quantity.String(), Amount: s.Amount.Decimal(),
		})
	}
	return m
}

// words writes shared_kernel as shared kernel.
func words(s string) string { return strings.ReplaceAll(s, "_", " ") }

// pricedUnits is a quantity in the unit that has the price, cut to six decimals.
func pricedUnits(quantity *big.Int, divisor int64) string {
	micro := new(big.Int).Mul(quantity, big.NewInt(1_000_000))
	micro.Quo(micro, big.NewInt(divisor))
	whole, rest := new(big.Int).QuoRem(micro, big.NewInt(1_000_000), new(big.Int))
	return fmt.Sprintf("%s.%06d", whole, rest)
}

// percent writes parts per million: 190000 is 19 %.
func percent(ppm int64) string {
	text := fmt.Sprintf("%d.%04d", ppm/10_000, ppm%10_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}
