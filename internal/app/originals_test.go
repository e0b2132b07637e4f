package app_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// printer writes down what it was asked to render.
type printer struct{ refuseUBL bool }

func (p printer) Original(v billing.Invoice, format string) (string, []byte, error) {
	if format == billing.FormatUBL {
		if p.refuseUBL {
			return "", nil, fault.New(fault.Unprocessable, "document.not_en16931", "UBL cannot say this.")
		}
		return "application/xml", []byte("<" + v.Number + ">"), nil
	}
	return "application/pdf", fmt.Appendf(nil, "%s %s due %s", v.Number, v.Label(), v.Due.Decimal()), nil
}

func TestOriginalsAreStoredOnce(t *testing.T) {
	b := newBilled(t)
	b.Originals = printer{}
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	_, _, err := b.GetOriginal(t.Context(), c.Caller, v.ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = b.credit(t, c, v.ID, app.CreditRequest{})
	require.NoError(t, err)

	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.StoreOriginals(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	o, body, err := b.GetOriginal(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, "DE-2026-000001 open due 5.83", string(body), "as it was issued, whatever was credited since")
	require.Equal(t, billing.Original{MediaType: "application/pdf", SHA256: sha256.Sum256(body), Size: int64(len(body))}, o)
	got, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, &o, got.Original)
	n, err := b.StoreOriginals(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, 2, b.count(t, `select count(*) from invoice_originals where keep_until = '2037-01-01'`))
	require.Zero(t, b.count(t, `select count(*) from pg_constraint where conrelid = 'invoice_originals'::regclass and contype = 'f'`),
		"no organization's end can take it along")
}

func TestAgreedEInvoicesAreUBL(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	for name, p := range map[string]printer{"application/xml": {}, "application/pdf": {refuseUBL: true}} {
		b.Originals = p
		c := b.tenant(t, name, quota.Limits{})
		b.setClock(t, november)
		_, err := b.SetBillingProfile(t.Context(), c.Caller, c.Org, store.BillingProfile{
			Name: name, Country: "de", EInvoice: true, Endpoint: "9930:DE123456789",
		})
		require.NoError(t, err)
		b.used(t, c, "one", time.Hour)
		v := b.invoiced(t, c)[0]
		o, err := b.StoreOriginal(t.Context(), c.Org, v.ID)
		require.NoError(t, err)
		require.Equal(t, name, o.MediaType)
		require.Equal(t, "9930:DE123456789", v.Buyer.Endpoint)
	}
}

// Neither of the roles that the product runs as can change what is issued.
func TestIssuedDocumentsCannotBeChangedByAnyRole(t *testing.T) {
	b := newBilled(t)
	b.Originals = printer{}
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	_, err := b.StoreOriginals(t.Context())
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), b.db.AppDSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	attempts := []string{
		`update invoices set total_minor = total_minor`, `update invoices set buyer = '{}'`, `update invoices set reason = 'x'`,
		`update invoices set number = 'X-2026-000001'`, `update invoices set status = 'draft', number = null`,
		`update invoices set finalized_at = finalized_at - interval '1 day'`, `update invoices set due_on = '2030-01-01'`,
		`update invoices set credited_minor = 100000`, `update invoices set credited_minor = -1`, `delete from invoices`, `truncate invoices cascade`,
		`update invoice_lines set amount_minor = 0`, `delete from invoice_lines`, `truncate invoice_lines cascade`,
		`update line_subjects set quantity = 0`, `delete from line_subjects`, `update invoice_taxes set amount_minor = 0`,
		`delete from invoice_taxes`, `insert into invoice_taxes (org_id, invoice_id, category, rate, base_minor, amount_minor)
			select org_id, id, 'Z', 0, 0, 0 from invoices`,
		`update invoice_originals set body = 'x'`, `delete from invoice_originals`, `truncate invoice_originals`,
		`update issuer_versions set profile = '{}'`, `delete from issuer_versions`, `update tax_tables set document = '{}'`, `delete from tax_tables`,
		`update ledger_postings set amount_minor = 0`, `delete from ledger_journals`,
	}
	for _, role := range []string{"tranche_system", "tranche_org"} {
		for _, sql := range attempts {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `select set_config('role', $1, true), set_config('tranche.org_id', $2, true)`, role, uuid.UUID(c.Org).String())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), sql)
			require.Error(t, err, "%s: %s", role, sql)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
	got, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, v.ContentHash, got.ContentHash)
}
