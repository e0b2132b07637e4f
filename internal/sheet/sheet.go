// Package sheet owns how text lands on A4 pages: fonts, wrapping, tables that
// continue over pages with their head repeated, and page numbers, written as PDF.
// The same calls give the same bytes.
//
// It does not know what the text is about (billing/render does). Lengths are tenths
// of a millimetre.
package sheet

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/go-pdf/fpdf"
)

// Width is the room between the margins of a page.
const Width = 1740

const (
	marginMM  = 18.0
	bottomMM  = 297.0 - 22.0
	topMM     = 18.0
	mmPerUnit = 0.1
	padMM     = 1.1 // above and below the text of a row
	gapMM     = 1.6 // right of a cell
)

// Meta is what a PDF says about itself.
type Meta struct {
	Title, Author, Language string
	At                      time.Time // creation date
	Page                    string    // the word before page numbers
	Foot                    string    // left in the foot of each page
}

// Style is how a paragraph looks.
type Style int

// The styles.
const (
	Plain Style = iota
	Small       // grey
	Bold
	Title
	Large // bold, between Plain and Title
)

var looks = [...]struct {
	bold       bool
	points     float64
	lineHeight float64 // mm
	grey       int
}{
	Plain: {points: 9, lineHeight: 4.2, grey: 25},
	Small: {points: 7.5, lineHeight: 3.5, grey: 95},
	Bold:  {bold: true, points: 9, lineHeight: 4.2, grey: 25},
	Title: {bold: true, points: 17, lineHeight: 8.2, grey: 25},
	Large: {bold: true, points: 11, lineHeight: 5.4, grey: 25},
}

// Paragraph is text in one style; \n breaks a line.
type Paragraph struct {
	Text  string
	Style Style
}

// Cell is paragraphs below each other. Right aligns them right.
type Cell struct {
	Paragraphs []Paragraph
	Right      bool
}

// Row is cells beside each other. Ruled draws a line above it.
type Row struct {
	Cells []Cell
	Ruled bool
}

// Grid is rows of columns. Head is repeated on each page that the grid reaches.
type Grid struct {
	Widths []int // of the columns
	Head   *Row
	Rows   []Row
	Whole  bool // on one page, where it fits on one
}

// Document is a PDF in the making.
type Document struct {
	pdf   *fpdf.Fpdf
	fonts Fonts
	y     float64 // of the next row, mm
}

// New begins a document with an empty page.
func New(fonts Fonts, meta Meta) *Document {
	pdf := fpdf.New("P", "mm", "A4", "")
	pdf.SetCatalogSort(true)
	pdf.SetCreationDate(meta.At.UTC())
	pdf.SetModificationDate(meta.At.UTC())
	pdf.SetTitle(meta.Title, true)
	pdf.SetAuthor(meta.Author, true)
	pdf.SetProducer("Tranche", true)
	pdf.SetLang(meta.Language)
	pdf.SetMargins(marginMM, topMM, marginMM)
	pdf.SetAutoPageBreak(false, 0)
	pdf.SetCellMargin(0)
	pdf.AliasNbPages(pages)
	// The writer changes the bytes of a font while it cuts its subset.
	pdf.AddUTF8FontFromBytes(latin, "", slices.Clone(notoRegular))
	pdf.AddUTF8FontFromBytes(latin, "B", slices.Clone(notoBold))
	if fonts.han != nil {
		pdf.AddUTF8FontFromBytes(han, "", slices.Clone(fonts.han))
	}
	d := &Document{pdf: pdf, fonts: fonts}
	pdf.SetFooterFunc(func() { d.foot(meta) })
	d.page()
	return d
}

const (
	latin = "latin"
	han   = "han"
	pages = "{nb}"
)

// Space leaves room below what was drawn last.
func (d *Document) Space(tenths int) { d.y += float64(tenths) * mmPerUnit }

// Bytes ends the document and returns the PDF.
func (d *Document) Bytes() ([]byte, error) {
	var out bytes.Buffer
	if err := d.pdf.Output(&out); err != nil {
		return nil, fmt.Errorf("writing a PDF: %w", err)
	}
	return out.Bytes(), nil
}

func (d *Document) page() {
	d.pdf.AddPage()
	d.y = topMM
}

func (d *Document) foot(meta Meta) {
	d.pdf.SetDrawColor(200, 204, 210)
	d.pdf.Line(marginMM, bottomMM+3, marginMM+Width*mmPerUnit, bottomMM+3)
	number := fmt.Sprintf("%s %d / %s", meta.Page, d.pdf.PageNo(), pages)
	const top, room = bottomMM + 4.5, 25.0 // the alias is wider than the number that replaces it
	d.write(d.lines(Paragraph{Text: meta.Foot, Style: Small}, Width*mmPerUnit-room)[0], marginMM, top)
	d.write(d.lines(Paragraph{Text: number, Style: Small}, Width*mmPerUnit)[0], marginMM+Width*mmPerUnit-room+4, top)
}
