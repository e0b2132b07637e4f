package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	"net/http"
	"strconv"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/billing/render/ubl"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// GetInvoiceHtml answers GET /v1/organization/invoices/{invoice}/html.
func (h *Handlers) GetInvoiceHtml(ctx context.Context, req GetInvoiceHtmlRequestObject) (GetInvoiceHtmlResponseObject, error) {
	return h.copyOf(ctx, req.Invoice, "html", "text/html; charset=utf-8", render.HTML)
}

// GetInvoiceCsv answers GET /v1/organization/invoices/{invoice}/csv.
func (h *Handlers) GetInvoiceCsv(ctx context.Context, req GetInvoiceCsvRequestObject) (GetInvoiceCsvResponseObject, error) {
	form := render.LinesCSV
	if value(req.Params.Table) == wire.CsvTableSubjects {
		form = render.SubjectsCSV
	}
	return h.copyOf(ctx, req.Invoice, "csv", "text/csv; charset=utf-8", form)
}

// GetInvoiceJson answers GET /v1/organization/invoices/{invoice}/json.
func (h *Handlers) GetInvoiceJson(ctx context.Context, req GetInvoiceJsonRequestObject) (GetInvoiceJsonResponseObject, error) {
	return h.copyOf(ctx, req.Invoice, "json", "application/json", render.JSON)
}

// GetInvoiceUbl answers GET /v1/organization/invoices/{invoice}/ubl.
func (h *Handlers) GetInvoiceUbl(ctx context.Context, req GetInvoiceUblRequestObject) (GetInvoiceUblResponseObject, error) {
	return h.copyOf(ctx, req.Invoice, "xml", "application/xml", ubl.Document)
}

// copyOf renders a document in a form that is no original.
func (h *Handlers) copyOf(ctx context.Context, invoice, extension, media string, form func(billing.Invoice) ([]byte, error)) (*document, error) {
	got, err := h.invoice(ctx, invoice)
	if err != nil {
		return nil, err
	}
	return copyIn(got, extension, media, form)
}

func copyIn(v billing.Invoice, extension, media string, form func(billing.Invoice) ([]byte, error)) (*document, error) {
	body, err := form(v)
	if err != nil {
		return nil, fmt.Errorf("rendering invoice %s: %w", v.ID, err)
	}
	return &document{media: media, name: v.Number + "." + extension, body: body}, nil
}

// GetInvoicePdf answers GET /v1/organization/invoices/{invoice}/pdf: with the stored
// original where that is a PDF.
func (h *Handlers) GetInvoicePdf(ctx context.Context, req GetInvoicePdfRequestObject) (GetInvoicePdfResponseObject, error) {
	got, err := h.invoice(ctx, req.Invoice)
	if err != nil {
		return nil, err
	}
	return h.pdf(ctx, got)
}

// pdf is a document as PDF: the stored original where it is one.
func (h *Handlers) pdf(ctx context.Context, got billing.Invoice) (*document, error) {
	if got.Original != nil && got.Original.MediaType == mediaPDF {
		return h.original(ctx, got)
	}
	if h.app.Originals == nil {
		return nil, fault.New(fault.Internal, "internal", "No renderer of originals is set up.")
	}
	media, body, err := h.app.Originals.Original(got, billing.FormatPDF)
	if err != nil {
		return nil, fmt.Errorf("rendering invoice %s: %w", got.ID, err)
	}
	return &document{media: media, name: got.Number + ".pdf", body: body}, nil
}

// GetInvoiceOriginal answers GET /v1/organization/invoices/{invoice}/original.
func (h *Handlers) GetInvoiceOriginal(ctx context.Context, req GetInvoiceOriginalRequestObject) (GetInvoiceOriginalResponseObject, error) {
	got, err := h.invoice(ctx, req.Invoice)
	if err != nil {
		return nil, err
	}
	return h.original(ctx, got)
}

const mediaPDF = "application/pdf"

func (h *Handlers) original(ctx context.Context, v billing.Invoice) (*document, error) {
	which, body, err := h.app.GetOriginal(ctx, inside(ctx, v.Org), v.ID)
	if err != nil {
		return nil, err
	}
	extension := ".xml"
	if which.MediaType == mediaPDF {
		extension = ".pdf"
	}
	return &document{media: which.MediaType, name: v.Number + extension, body: body, sha256: which.SHA256[:]}, nil
}

// document is a file as an answer. A page may load and run nothing.
type document struct {
	media, name string
	body        []byte
	sha256      []byte // of a stored original
}

func (d *document) write(w http.ResponseWriter) error {
	disposition := "attachment"
	if d.media == "text/html; charset=utf-8" {
		disposition = "inline"
		w.Header().Set("Content-Security-Policy", render.ContentSecurityPolicy)
	} else {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	}
	w.Header().Set("Content-Type", d.media)
	w.Header().Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": d.name}))
	w.Header().Set("Content-Length", strconv.Itoa(len(d.body)))
	if d.sha256 != nil {
		w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(d.sha256)+":")
	}
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(d.body)
	return err
}

func (d *document) VisitGetInvoiceHtmlResponse(w http.ResponseWriter) error { return d.write(w) }

func (d *document) VisitGetInvoiceCsvResponse(w http.ResponseWriter) error { return d.write(w) }

func (d *document) VisitGetInvoiceJsonResponse(w http.ResponseWriter) error { return d.write(w) }

func (d *document) VisitGetInvoiceUblResponse(w http.ResponseWriter) error { return d.write(w) }

func (d *document) VisitGetInvoicePdfResponse(w http.ResponseWriter) error { return d.write(w) }

func (d *document) VisitGetInvoiceOriginalResponse(w http.ResponseWriter) error { return d.write(w) }
