package render

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/sheet"
)

// Fonts are the typefaces of a PDF.
type Fonts = sheet.Fonts

// LoadFonts reads the configured Han font, "" for none: Chinese names then print as
// replacement signs, the PDF says so, and captions of zh documents are English. It fails with
// fault.Invalid for a file that is no plain TrueType font.
func LoadFonts(han string) (Fonts, error) { return sheet.LoadFonts(han) }

// PDF renders a document as it is issued: with the prepaid balance that paid it, and
// without what was paid or credited later. The same document and fonts give the same
// bytes.
func PDF(v billing.Invoice, fonts Fonts) ([]byte, error) {
	if !fonts.Covers(localeOf(v.Locale).T("lines")) {
		v.Locale = "en"
	}
	m := modelOf(v, true)
	if !fonts.Covers(m.text()) {
		m.Mentions = append(m.Mentions, m.locale.T("no-glyph"))
	}
	at := v.FinalizedAt
	if at.IsZero() {
		at = v.CreatedAt
	}
	if at.IsZero() {
		at = v.Period.To
	}
	d := sheet.New(fonts, sheet.Meta{
		Title: m.Title, Author: v.Seller.Name, Language: m.Lang, At: at,
		Page: m.locale.T("page"), Foot: strings.TrimSpace(v.Seller.Name + "   " + m.Title),
	})
	m.head(d)
	m.top(d)
	m.table(d)
	m.below(d)
	out, err := d.Bytes()
	if err != nil {
		return nil, fmt.Errorf("rendering invoice %s: %w", v.ID, err)
	}
	return out, nil
}

// text is all that varies on a document, to look for characters without a glyph.
func (m model) text() string {
	var b strings.Builder
	add := func(texts ...string) {
		for _, t := range texts {
			b.WriteString(t)
		}
	}
	add(m.Title, m.Seller.Name, m.Seller.TaxID, m.Buyer.Name, m.Buyer.TaxID)
	add(m.Seller.Address...)
	add(m.Buyer.Address...)
	add(m.Mentions...)
	for _, f := range append(append([]fact(nil), m.Facts...), m.Bank...) {
		add(f.Value)
	}
	for _, l := range m.Lines {
		add(l.Description, l.SKU, l.Project, l.Quantity, l.Corrects)
		add(l.Discounts...)
	}
	for _, s := range m.Sums {
		add(s.Note)
	}
	return b.String()
}

func cell(paragraphs ...sheet.Paragraph) sheet.Cell { return sheet.Cell{Paragraphs: paragraphs} }

func right(paragraphs ...sheet.Paragraph) sheet.Cell {
	return sheet.Cell{Paragraphs: paragraphs, Right: true}
}

func plain(text string) sheet.Paragraph { return sheet.Paragraph{Text: text} }
func small(text string) sheet.Paragraph { return sheet.Paragraph{Text: text, Style: sheet.Small} }
func bold(text string) sheet.Paragraph  { return sheet.Paragraph{Text: text, Style: sheet.Bold} }

func row(cells ...sheet.Cell) sheet.Row { return sheet.Row{Cells: cells} }

// head is the seller beside the name of the document.
func (m model) head(d *sheet.Document) {
	seller := []sheet.Paragraph{{Text: m.Seller.Name, Style: sheet.Large}}
	for _, a := range m.Seller.Address {
		seller = append(seller, small(a))
	}
	if m.Seller.TaxID != "" {
		seller = append(seller, small(m.locale.T("tax-id")+" "+m.Seller.TaxID))
	}
	title := []sheet.Paragraph{{Text: m.Kind, Style: sheet.Title}}
	if m.Number != "" {
		title = append(title, sheet.Paragraph{Text: m.Number, Style: sheet.Large})
	}
	if m.Unfinal {
		title = append(title, bold(m.State))
	}
	d.Draw(sheet.Grid{Widths: []int{870, 870}, Rows: []sheet.Row{row(cell(seller...), right(title...))}})
	d.Space(60)
}

// top is the buyer beside what is due, and below both the dates and references, two
// in a row.
func (m model) top(d *sheet.Document) {
	buyer := []sheet.Paragraph{small(m.locale.T("buyer")), bold(m.Buyer.Name)}
	for _, a := range m.Buyer.Address {
		buyer = append(buyer, plain(a))
	}
	if m.Buyer.TaxID != "" {
		buyer = append(buyer, plain(m.locale.T("tax-id")+" "+m.Buyer.TaxID))
	}
	due := []sheet.Paragraph{small(m.DueLabel), {Text: m.Due, Style: sheet.Large}}
	d.Draw(sheet.Grid{Widths: []int{1100, 640}, Rows: []sheet.Row{row(cell(buyer...), right(due...))}})
	d.Space(30)
	d.Draw(pairs(m.Facts))
	d.Space(30)
	for _, text := range m.Mentions {
		d.Draw(sheet.Grid{Widths: []int{sheet.Width}, Rows: []sheet.Row{row(cell(plain(text)))}})
	}
	d.Space(30)
}

// pairs lays out facts two in a row.
func pairs(facts []fact) sheet.Grid {
	g := sheet.Grid{Widths: []int{300, 640, 290, 510}, Whole: true}
	for i := 0; i < len(facts); i += 2 {
		r := row(cell(small(facts[i].Label)), cell(plain(facts[i].Value)))
		if i+1 < len(facts) {
			r.Cells = append(r.Cells, cell(small(facts[i+1].Label)), cell(plain(facts[i+1].Value)))
		}
		g.Rows = append(g.Rows, r)
	}
	return g
}

// table is the lines and, below them, the sums.
func (m model) table(d *sheet.Document) {
	t := m.locale.T
	head := row(cell(bold("#")), cell(bold(t("description"))), right(bold(t("quantity"))), right(bold(t("unit-price"))),
		right(bold(t("tax"))), right(bold(t("amount")+" "+m.Currency)))
	g := sheet.Grid{Widths: []int{80, 620, 400, 270, 150, 220}, Head: &head}
	for _, l := range m.Lines {
		r := row(cell(plain(strconv.Itoa(l.No))), cell(m.description(l)...), right(texts(l.Quantity, l.Measured)...),
			right(m.price(l)...), right(plain(l.Tax)), right(plain(l.Amount)))
		r.Ruled = l.No > 1
		g.Rows = append(g.Rows, r)
	}
	if len(m.Lines) == 0 {
		g.Rows = append(g.Rows, row(cell(), cell(plain(t("none")))))
	}
	d.Draw(g)
	d.Space(20)
	sums := sheet.Grid{Widths: []int{500, 840, 400}, Whole: true}
	for _, s := range m.Sums {
		r := row(cell(), right(texts(s.Label, s.Note)...), right(plain(s.Value)))
		if s.Strong {
			r = row(cell(), right(bold(s.Label)), right(bold(s.Value)))
			r.Ruled = true
		}
		sums.Rows = append(sums.Rows, r)
	}
	d.Draw(sums)
}

// texts is a plain paragraph and, if there is more to say, a small one.
func texts(first, second string) []sheet.Paragraph {
	out := []sheet.Paragraph{plain(first)}
	if second != "" {
		out = append(out, small(second))
	}
	return out
}

func (m model) description(l line) []sheet.Paragraph {
	t := m.locale.T
	name := l.Description
	if l.Component != "" {
		name = l.Component + ": " + name
	}
	if l.Simulated {
		name += " (" + t("simulated") + ")"
	}
	out := []sheet.Paragraph{plain(name)}
	add := func(label, text string) {
		if text != "" {
			out = append(out, small(label+text))
		}
	}
	add("", l.SKU)
	add(t("project")+" ", l.Project)
	isolation := l.IsolationGPU
	if l.IsolationHost != "" {
		isolation += ", " + t("host") + ": " + l.IsolationHost
	}
	add(t("isolation")+": ", strings.TrimPrefix(isolation, ", "))
	add("", l.During)
	for _, discount := range l.Discounts {
		add("", discount)
	}
	add(t("corrects")+" ", l.Corrects)
	return out
}

func (m model) price(l line) []sheet.Paragraph {
	if l.Per == "" {
		return nil
	}
	return texts(l.UnitPrice, m.locale.T("per")+" "+l.Per)
}

// below is where the money goes, and how the figures came about.
func (m model) below(d *sheet.Document) {
	if len(m.Bank) > 0 {
		d.Space(50)
		d.Draw(sheet.Grid{Widths: []int{sheet.Width}, Rows: []sheet.Row{row(cell(bold(m.locale.T("bank"))))}})
		d.Draw(pairs(m.Bank))
	}
	d.Space(50)
	proof := m.locale.T("hash") + " " + m.Hash
	if m.ID != "" {
		proof = m.locale.T("document") + " " + m.ID + ". " + proof
	}
	d.Draw(sheet.Grid{Widths: []int{sheet.Width}, Rows: []sheet.Row{row(cell(small(m.locale.T("rounding")), small(proof)))}})
}
