package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Originals renders the file that is a document before the law. The same document
// gives the same bytes. Format is billing.FormatPDF or billing.FormatUBL.
type Originals interface {
	Original(v billing.Invoice, format string) (mediaType string, body []byte, err error)
}

// originalBatch is how many originals one pass stores.
const originalBatch = 32

// StoreOriginals stores the originals that finalized documents still lack, oldest
// first, and returns how many. Those that cannot be rendered keep no other back; their
// failures are returned.
func (a *App) StoreOriginals(ctx context.Context) (stored int, failed error) {
	var after id.Invoice
	for stored < originalBatch {
		var missing []store.Document
		err := a.Store.InSystem(ctx, "look for documents without original", func(t *store.SystemTx) (err error) {
			missing, err = t.WithoutOriginal(ctx, after, originalBatch)
			return err
		})
		if err != nil {
			return stored, errors.Join(failed, err)
		}
		for _, d := range missing {
			after = d.ID
			if _, err := a.StoreOriginal(ctx, d.Org, d.ID); err != nil {
				failed = errors.Join(failed, err)
				if ctx.Err() != nil {
					return stored, failed
				}
				continue
			}
			stored++
		}
		if len(missing) < originalBatch {
			break
		}
	}
	return stored, failed
}

// StoreOriginal renders the original of a finalized document and stores it, once: a
// second call answers what is stored. Where e-invoices are agreed it is UBL, otherwise
// what the issuer says; a document that UBL cannot say is a PDF. It fails with
// resource.not_found, and with fault.Internal without a renderer.
func (a *App) StoreOriginal(ctx context.Context, org id.Org, inv id.Invoice) (billing.Original, error) {
	var v billing.Invoice
	var issuer billing.Issuer
	format := ""
	err := a.Store.InSystem(ctx, "read a document", func(t *store.SystemTx) (err error) {
		if v, err = t.Invoice(ctx, org, inv); err != nil {
			return err
		}
		if v.State != billing.Open {
			return store.NotFound()
		}
		if v.Kind != billing.CreditNote { // what went back to the balance later is on the credit note
			prepaid, err := t.PrepaidAtIssue(ctx, org, v.Currency, []id.Invoice{inv})
			if err != nil {
				return err
			}
			v.Settlement.Prepaid = prepaid[inv]
		}
		buyer, _, err := t.BillingProfile(ctx, org)
		if err != nil {
			return err
		}
		if issuer, err = a.issuerAt(ctx, t, v.Issuer, v.FinalizedAt); err != nil {
			return err
		}
		if format = issuer.Original; buyer.EInvoice {
			format = billing.FormatUBL
		}
		return nil
	})
	if err != nil || v.Original != nil {
		return orZeroOriginal(v.Original), err
	}
	media, body, err := a.render(asIssued(v), format)
	if err != nil {
		return billing.Original{}, fmt.Errorf("rendering the original of %s: %w", v.Number, err)
	}
	o := billing.Original{MediaType: media, SHA256: sha256.Sum256(body), Size: int64(len(body))}
	keep := time.Date(v.FinalizedAt.Year()+issuer.Retention+1, 1, 1, 0, 0, 0, 0, time.UTC) // whole calendar years
	err = a.Store.InSystem(ctx, "store an original", func(t *store.SystemTx) error {
		fresh, err := t.InsertOriginal(ctx, v, o, body, keep)
		if err == nil && !fresh {
			o, _, err = t.Original(ctx, org, inv)
		}
		return err
	})
	return o, err
}

// asIssued is the document as it was when it was issued: what was paid or credited
// later is not part of it.
func asIssued(v billing.Invoice) billing.Invoice {
	at := billing.Settlement{Prepaid: v.Settlement.Prepaid}
	if v.Kind == billing.AdvanceInvoice { // the money is there
		at.Prepaid = v.Total
	}
	issued, err := v.Settled(at)
	if err != nil {
		return v
	}
	issued.Cancelled = false
	return issued
}

func (a *App) render(v billing.Invoice, format string) (string, []byte, error) {
	if a.Originals == nil {
		return "", nil, fault.New(fault.Internal, "internal", "No renderer of originals is set up.")
	}
	media, body, err := a.Originals.Original(v, format)
	if format == billing.FormatUBL && fault.KindOf(err) == fault.Unprocessable {
		return a.Originals.Original(v, billing.FormatPDF)
	}
	return media, body, err
}

func orZeroOriginal(o *billing.Original) billing.Original {
	if o == nil {
		return billing.Original{}
	}
	return *o
}

// GetOriginal reads the stored original of a document and checks its digest. It fails
// with resource.not_found, also while it is not stored yet.
func (a *App) GetOriginal(ctx context.Context, c Caller, inv id.Invoice) (o billing.Original, body []byte, err error) {
	err = a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) error {
		o, body, err = t.Original(ctx, c.Org, inv)
		return err
	})
	if err == nil && sha256.Sum256(body) != o.SHA256 {
		return billing.Original{}, nil, fault.New(fault.Internal, "internal", "A stored original does not have its digest.")
	}
	return o, body, err
}
