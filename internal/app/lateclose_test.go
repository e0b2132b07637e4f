package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// invoiced invoices November and tells the gross of all of its documents.
func (l *late) invoiced(t *testing.T) string {
	t.Helper()
	_, err := l.SealDue(t.Context())
	require.NoError(t, err)
	_, err = l.InvoiceOrganization(t.Context(), l.customer.Org, "2026-11")
	require.NoError(t, err)
	list, err := l.ListInvoices(t.Context(), l.customer.Caller, app.InvoiceFilter{}, app.Page{Size: 20})
	require.NoError(t, err)
	sum := int64(0)
	for _, v := range list.Items {
		if metering.PeriodOf(v.Period.From) == "2026-11" {
			sum += v.Total.Minor()
		}
	}
	return fmt.Sprint(sum)
}

func (l *late) sound(t *testing.T) {
	t.Helper()
	found, _, err := l.Audit(t.Context(), app.AuditTolerance)
	require.NoError(t, err)
	for _, i := range found {
		if i.ID == "I4" || i.ID == "I5" {
			require.Empty(t, i.Offences, i.ID)
		}
	}
}

// A fault of ours that is known after the invoice takes its time off by a credit note;
// time that is proven after it comes on an invoice of its own. Usage, documents and
// ledger agree after each.
func TestLateForTheInvoice(t *testing.T) {
	l := newLate(t)
	december := november.AddDate(0, 1, 0)
	l.setClock(t, l.from[1].Add(time.Second))
	l.begins(t, 1)
	l.setClock(t, december.Add(25*time.Hour))
	l.proven(t, 1, december.Add(25*time.Hour), false)
	require.Equal(t, "98", l.invoiced(t), "two hours less 17 µs at 0.49")

	l.to[1] = december.Add(-time.Hour)
	l.ends(t, 1, metering.OurFault)
	require.Equal(t, []metering.Interval{metering.Between(l.from[1], l.to[1])}, l.segments(t, l.customer, l.inst))
	require.Equal(t, "49", l.invoiced(t), "an hour less")
	require.Equal(t, 1, l.count(t, `select count(*) from invoices where kind = 'credit_note' and status = 'open'`))
	l.sound(t)

	l.exec(t, `insert into run_proofs (org_id, assignment_id, instance_id, run, host_id, started_at, last_proof_at) values ($1, $2, $3, 1, $4, $5, $5)`,
		uuid.UUID(l.customer.Org), uuid.UUID(l.asg[0]), uuid.UUID(l.inst), uuid.UUID(l.host), l.from[0])
	require.NoError(t, l.TakeEvidence(t.Context(), []app.Evidence{{Assignment: l.asg[0], On: []metering.Interval{metering.Between(l.from[0], l.from[0].Add(time.Hour))}}}))
	require.Equal(t, 2, l.count(t, `select close_no from usage_segments where run = 1`), "after the second close")
	require.Equal(t, "98", l.invoiced(t), "an hour more")
	require.Equal(t, "98", l.invoiced(t), "once")
	l.sound(t)
	l.in(t, func(ctx context.Context, x *store.SystemTx) error {
		first := 0
		u, err := x.UsageOf(ctx, l.customer.Org, store.UsageFilter{AsOf: &first, Window: metering.Between(november, december)})
		require.NoError(t, err)
		require.Len(t, u.Segments, 1)
		require.Equal(t, metering.Between(l.from[1], december), u.Segments[0].During, "a closed period reads as it was")
		return nil
	})
}

// Evidence that is older than ninety days is not billed.
func TestOldEvidenceIsNotBilled(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[0].Add(time.Second))
	l.begins(t, 0)
	l.setClock(t, l.from[0].Add(2*time.Second))
	l.silent(t, 0)
	l.setClock(t, l.from[0].Add(metering.OldestEvidence+time.Hour))
	require.NoError(t, l.TakeEvidence(t.Context(), []app.Evidence{{Assignment: l.asg[0], On: []metering.Interval{metering.Between(l.from[0], l.from[0].Add(2*time.Hour))}}}))
	got := l.segments(t, l.customer, l.inst)
	require.Len(t, got, 1)
	require.WithinDuration(t, l.from[0].Add(time.Hour), got[0].From, time.Minute)
	require.Equal(t, l.from[0].Add(2*time.Hour), got[0].To)
}

// The ledger's accruals are what the usage comes to; another figure is found.
func TestAccrualsAreRatedAgain(t *testing.T) {
	l := newLate(t)
	l.setClock(t, l.from[0].Add(time.Second))
	l.begins(t, 0)
	l.to[0] = l.from[0].Add(time.Hour)
	l.setClock(t, l.to[0])
	l.ends(t, 0, metering.DeleteAccepted)
	l.setClock(t, november.AddDate(0, 1, 0).Add(time.Hour))
	require.NoError(t, l.AccrueAll(t.Context()))
	l.exec(t, `update usage_segments set recorded_at = clock_timestamp() - interval '1 day'`)
	require.Equal(t, 49, l.count(t, `select accrued_minor from period_funding where period = '2026-11'`))
	l.sound(t)
	l.exec(t, `update period_funding set accrued_minor = 50 where period = '2026-11'`)
	found, clean, err := l.Audit(t.Context(), app.AuditTolerance)
	require.NoError(t, err)
	require.False(t, clean)
	var names []string
	for _, i := range found {
		for _, o := range i.Offences {
			names = append(names, o.Check)
		}
	}
	require.Subset(t, names, []string{"accruals that are not what their usage comes to", "unbilled receivables that differ from the accruals"})
}
