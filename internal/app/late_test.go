package app_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// arrives records usage of an instance in November that is accepted only now.
func (b *billed) arrives(t *testing.T, c customer, inst id.Instance, from time.Time, d time.Duration) {
	t.Helper()
	b.exec(t, `insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, units, sku_id,
			sku_snapshot, price_book_id, locked_price_version_id, region, isolation_gpu, isolation_host, subject_name, labels,
			open_reason, close_reason, simulated, billing_period, close_no, during)
		select org_id, gen_random_uuid(), subject_kind, subject_id, project_id, meter, start_id, seq + 1, run, units, sku_id,
			sku_snapshot, price_book_id, locked_price_version_id, region, isolation_gpu, isolation_host, subject_name, labels,
			'late', 'late', simulated, billing_period, usage_close_no(org_id, $3), tstzrange($3, $4, '[)')
		from usage_segments where org_id = $1 and subject_id = $2 order by seq desc limit 1`,
		uuid.UUID(c.Org), uuid.UUID(inst), from, from.Add(d))
}

// excludes takes billed time of an instance back.
func (b *billed) excludes(t *testing.T, c customer, inst id.Instance, from time.Time, d time.Duration) {
	t.Helper()
	require.Equal(t, 1, b.count(t, `select exclude_usage($1, $2, 'gpu', 0, tstzrange($3, $4, '[)'), 'host_fault', null)`,
		uuid.UUID(c.Org), uuid.UUID(inst), from, from.Add(d)))
}

func TestLateUsageIsInvoicedApart(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	inst := b.used(t, c, "one", 10*time.Hour)
	first := b.invoiced(t, c)[0]
	require.Equal(t, 0, first.CloseNo)

	b.arrives(t, c, inst, november.AddDate(0, 0, 10), 2*time.Hour+30*time.Minute)
	run := b.invoiceRun(t, "2026-11")
	require.Len(t, run.Invoices, 2, "late usage makes its organization due again")
	docs := b.invoiced(t, c)
	require.Len(t, docs, 2)
	late := docs[1]
	require.Equal(t, 1, late.CloseNo)
	require.Equal(t, "DE-2026-000002", late.Number)
	require.Equal(t, billing.Adjustment, late.Lines[0].Key.Component)
	require.Equal(t, &billing.LineRef{Invoice: first.ID, Number: first.Number, No: 1}, late.Lines[0].Corrects)
	require.Equal(t, "1.23", late.Subtotal.Decimal(), "12.5 × 0.49 = 6.125, less the 4.90 that was billed")
	require.Equal(t, "0.23", late.TaxTotal.Decimal())
	require.Len(t, b.invoiced(t, c), 2, "nothing is late any more")

	b.arrives(t, c, inst, november.AddDate(0, 0, 12), time.Hour)
	b.arrives(t, c, inst, november.AddDate(0, 0, 13), time.Hour)
	docs = b.invoiced(t, c)
	require.Len(t, docs, 3)
	require.Equal(t, 2, docs[2].CloseNo)
	require.Equal(t, "0.98", docs[2].Subtotal.Decimal(), "of 14.5 hours 7.105, less 6.13")
	for _, v := range docs {
		require.NoError(t, b.RerateInvoice(t.Context(), c.Org, v.ID), v.Number)
	}
	b.balanced(t, c, docs[0].ID, docs[1].ID, docs[2].ID)

	note, next, err := b.ReissueInvoice(t.Context(), b.operator, c.Org, first.ID, app.Cancellation{Reason: "another address"})
	require.NoError(t, err)
	require.Equal(t, "-5.83", note.Total.Decimal())
	require.Equal(t, first.ContentHash, next.ContentHash, "of the usage that it had, not of what came later")
	require.Len(t, b.invoiced(t, c), 3)
	_, again, err := b.ReissueInvoice(t.Context(), b.operator, c.Org, late.ID, app.Cancellation{Reason: "another address"})
	require.NoError(t, err)
	require.Equal(t, late.Subtotal, again.Subtotal)
	b.balanced(t, c, first.ID, next.ID, late.ID, again.ID)
}

// What was billed and then found not to have been there is credited by itself.
func TestDowntimeOfAClosedMonthIsACreditNote(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "acme", quota.Limits{})
	b.buyer(t, c, "DE", "")
	inst := b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	b.excludes(t, c, inst, november.AddDate(0, 0, 1).Add(time.Hour), 90*time.Minute)
	docs := b.invoiced(t, c)
	require.Len(t, docs, 2)
	note := docs[1]
	require.Equal(t, billing.CreditNote, note.Kind)
	require.Equal(t, "DE-CN-2026-000001", note.Number)
	require.Equal(t, v.Number, note.Corrects.Number)
	require.Equal(t, "-0.73", note.Subtotal.Decimal(), "8.5 × 0.49 = 4.165 is 4.17, less 4.90")
	require.Equal(t, "-0.14", note.TaxTotal.Decimal())
	require.Equal(t, new(big.Int).Mul(big.NewInt(-90*60), big.NewInt(1_000_000)), note.Lines[0].Quantity)
	got, err := b.GetInvoice(t.Context(), c.Caller, v.ID)
	require.NoError(t, err)
	require.Equal(t, "4.96", got.Due.Decimal())
	require.Len(t, b.invoiced(t, c), 2)
	b.balanced(t, c, v.ID)

	b.excludes(t, c, inst, november.AddDate(0, 0, 1).Add(3*time.Hour), 90*time.Minute)
	b.arrives(t, c, inst, november.AddDate(0, 0, 15), 10*time.Hour)
	docs = b.invoiced(t, c)
	require.Len(t, docs, 3)
	require.Equal(t, billing.UsageInvoice, docs[2].Kind, "on the whole it is more")
	require.Equal(t, "4.16", docs[2].Subtotal.Decimal(), "17 × 0.49 = 8.33, less 4.17")

	last, err := b.CancelInvoice(t.Context(), b.operator, c.Org, v.ID, app.Cancellation{Reason: "all of it"})
	require.NoError(t, err)
	require.Equal(t, "-4.96", last.Total.Decimal(), "what the first note left")
	b.balanced(t, c, v.ID, docs[2].ID)
}

func TestALineReachesItsSeconds(t *testing.T) {
	b := newBilled(t)
	c, other := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "other", quota.Limits{})
	one := b.used(t, c, "one", 90*time.Minute+time.Microsecond)
	two := b.instance(t, c, "two")
	for day := range 3 {
		from := november.AddDate(0, 0, 3+day)
		require.True(t, b.start(t, c, two, day+1, from))
		require.True(t, b.stop(t, c, two, metering.StopRelease, metering.Facts{At: from.Add(7 * time.Second)}))
	}
	v := b.invoiced(t, c)[0]
	all, err := b.InvoiceLineSegments(t.Context(), c.Caller, v.ID, 1, app.Page{Size: 200})
	require.NoError(t, err)
	require.Len(t, all.Items, 4)
	sum, subjects := new(big.Int), map[string]int64{}
	for _, s := range all.Items {
		require.Equal(t, metering.Quantity(s.Units, metering.Between(s.From, s.To)), s.Quantity)
		sum.Add(sum, s.Quantity)
		subjects[s.Name] += s.Quantity.Int64()
	}
	require.Equal(t, v.Lines[0].Quantity, sum)
	require.Equal(t, map[string]int64{"one": 5_400_000_001, "two": 21_000_000}, subjects)
	require.Equal(t, b.segments(t, c, one), []metering.Interval{metering.Between(all.Items[0].From, all.Items[0].To)})

	var paged []app.LineSegment
	p := app.Page{Size: 3}
	for {
		page, err := b.InvoiceLineSegments(t.Context(), c.Caller, v.ID, 1, p)
		require.NoError(t, err)
		paged = append(paged, page.Items...)
		if p.Cursor = page.Next; p.Cursor == "" {
			break
		}
	}
	require.Equal(t, all.Items, paged)
	for code, ask := range map[string]func() error{
		"resource.not_found": func() error {
			_, err := b.InvoiceLineSegments(t.Context(), c.Caller, v.ID, 2, app.Page{Size: 1})
			return err
		},
		"page_token.invalid": func() error {
			_, err := b.InvoiceLineSegments(t.Context(), c.Caller, v.ID, 1, app.Page{Size: 1, Cursor: "x"})
			return err
		},
	} {
		require.Equal(t, code, fault.CodeOf(ask()))
	}
	_, err = b.InvoiceLineSegments(t.Context(), other.Caller, v.ID, 1, app.Page{Size: 1})
	require.Equal(t, "resource.not_found", fault.CodeOf(err), "of another organization")
}
