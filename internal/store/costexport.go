package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// UsedResource is where something that was used stood, and its labels then.
type UsedResource struct {
	Region string
	Labels map[string]string
}

// ResourcesUsed reads what an organization used in a month, YYYY-MM, as it was when it
// was used last.
func (t *tx) ResourcesUsed(ctx context.Context, org id.Org, period string) (map[metering.Subject]UsedResource, error) {
	rows, err := t.q.ResourcesUsed(ctx, t.raw, uuid.UUID(org), period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[metering.Subject]UsedResource, len(rows))
	for _, r := range rows {
		used := UsedResource{Region: r.Region}
		if err := json.Unmarshal(r.Labels, &used.Labels); err != nil {
			return nil, fmt.Errorf("reading the labels of %s %s: %w", r.SubjectKind, r.SubjectID, err)
		}
		out[metering.Subject{Kind: r.SubjectKind, ID: r.SubjectID}] = used
	}
	return out, nil
}

// PrepaidAtIssue derives from postings what the prepaid balance paid on documents when
// they were issued; of a credit note, what went back to it, negative. Unlike
// Settlement.Prepaid it never changes. Documents without any are absent.
func (t *tx) PrepaidAtIssue(ctx context.Context, org id.Org, c money.Currency, invoices []id.Invoice) (map[id.Invoice]money.Amount, error) {
	kinds := []string{string(ledger.InvoiceFinalized), string(ledger.CreditNoteIssued)}
	rows, err := t.q.PrepaidAtIssue(ctx, t.raw, db.PrepaidAtIssueParams{OrgID: uuid.UUID(org), Documents: uuids(invoices), Kinds: kinds})
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[id.Invoice]money.Amount, len(rows))
	for _, r := range rows {
		out[id.Invoice(r.DocumentID)] = money.NewAmount(r.AmountMinor, c)
	}
	return out, nil
}
