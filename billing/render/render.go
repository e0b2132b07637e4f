// Package render owns how documents look to people: an invoice as PDF, which is the
// stored legal original unless an e-invoice is agreed, as one HTML page that loads
// under a content security policy without scripts, and as CSV and JSON. All are made
// from one model; all but the PDF say that they are copies. The same document gives
// the same bytes.
//
// It does not own the document (billing), e-invoices (billing/render/ubl), exports
// for cost tools (billing/focus), paper (internal/sheet), or any arithmetic: what it
// prints was computed before. Quantities are shown in priced units, cut to six
// decimals, next to the exact seconds. Captions, dates and separators of HTML and PDF
// follow the document's locale (en, de, zh; English otherwise); CSV and JSON never do.
package render

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"

	"github.com/tranche-cloud/tranche/billing"
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

// view is the model as the template sees it.
type view struct {
	model
	Style template.CSS
}

// T returns the caption of a key.
func (v view) T(key string) string { return v.locale.T(key) }

// Of returns the caption of a key with a number in it.
func (v view) Of(key string, n int) string { return fmt.Sprintf(v.locale.T(key), n) }

// HTML renders a document, a draft or a preview as UTF-8, with what was paid and
// credited since it was issued.
func HTML(v billing.Invoice) ([]byte, error) {
	var out bytes.Buffer
	if err := invoice.Execute(&out, view{modelOf(v, false), template.CSS(style)}); err != nil { //nolint:gosec // our own style sheet
		return nil, fmt.Errorf("rendering invoice %s: %w", v.ID, err)
	}
	return out.Bytes(), nil
}
