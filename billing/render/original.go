package render

import (
	"fmt"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render/ubl"
)

// Originals renders the files that are documents before the law.
type Originals struct{ fonts Fonts }

// NewOriginals makes the renderer with the configured Han font, "" for none. It fails
// like LoadFonts.
func NewOriginals(han string) (Originals, error) {
	fonts, err := LoadFonts(han)
	return Originals{fonts}, err
}

// Original renders a document in a format, billing.FormatPDF or billing.FormatUBL. The
// same document gives the same bytes. It fails with document.not_en16931 for what an
// e-invoice cannot say.
func (o Originals) Original(v billing.Invoice, format string) (mediaType string, body []byte, err error) {
	switch format {
	case billing.FormatPDF:
		body, err = PDF(v, o.fonts)
		return "application/pdf", body, err
	case billing.FormatUBL:
		body, err = ubl.Document(v)
		return "application/xml", body, err
	}
	return "", nil, fmt.Errorf("rendering invoice %s: the format %.16q is unknown", v.ID, format)
}
