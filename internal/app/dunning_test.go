package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// overdue is the instant so many days after the invoices of these tests were due.
func overdue(days int) time.Time {
	return time.Date(2026, 12, 15, 0, 30, 0, 0, time.UTC).AddDate(0, 0, days)
}

func (w *paying) dun(t *testing.T, day int) {
	t.Helper()
	w.clock(t, overdue(day))
	require.NoError(t, w.RunDunning(t.Context()))
}

// newDunned is a world where instances can be started, too.
func newDunned(t *testing.T) (*paying, *billed) {
	t.Helper()
	b := newBilled(t)
	w := &paying{world: b.world, fake: stripefake.New(t)}
	w.clock(t, december)
	w.acme = w.tenant(t, "acme", quota.Limits{Instances: 4, GPUs: 4})
	return w, b
}

func TestDunningFromReminderToStop(t *testing.T) {
	w, b := newDunned(t)
	w.invoice(t, 80_00)
	b.instance(t, w.acme, "worker")
	w.dun(t, -2)
	require.Zero(t, w.events(t, "invoice.overdue"))
	for day := range 28 {
		w.dun(t, day)
		w.dun(t, day)
	}
	require.Equal(t, 1, w.events(t, "invoice.overdue"))
	require.Equal(t, 3, w.events(t, "invoice.reminded"))
	require.Equal(t, 1, w.events(t, "invoice.starts_suspended"))
	w.dun(t, 28)
	require.Equal(t, 1, w.events(t, "invoice.stop_announced"))
	w.dun(t, 34)
	require.Zero(t, w.events(t, "invoice.stopped"), "what runs goes on until the notice is over")
	w.dun(t, 35)
	require.Equal(t, 1, w.events(t, "invoice.stopped"))
	require.Equal(t, 1, w.count(t, `select count(*) from instances where name = 'worker' and desired = 'stopped'`))
	require.Equal(t, 1, w.count(t, `select count(*) from instances where deleted_at is null`), "nothing is deleted")
	for day := 36; day < 60; day++ {
		w.dun(t, day)
	}
	require.Equal(t, 1, w.events(t, "invoice.stopped"))
}

func TestAHoldNamesTheInvoice(t *testing.T) {
	w := newPaying(t)
	w.host(t, "a", 2)
	w.sell(t, wholeSpec("whole"), "3.5")
	w.exec(t, `update organizations set quota_instances = 4, quota_gpus = 4`)
	create := func() error {
		_, err := w.CreateInstance(t.Context(), w.acme.Caller, app.NewInstance{Project: w.acme.project, Offer: "whole", Image: "img"})
		return err
	}
	w.invoice(t, 80_00)
	for _, day := range []int{0, 3, 10, 20} {
		w.dun(t, day)
		require.NoError(t, create())
		w.exec(t, `delete from quota_claims`)
	}
	w.dun(t, 25)
	err := create()
	require.Equal(t, "billing.suspended", fault.CodeOf(err))
	require.Equal(t, fault.OverBudget, fault.KindOf(err))
	require.Contains(t, fault.From(err).Detail, w.number())
	w.transfers(t, "1,2027-02-10,80.00,USD,"+w.number()+",Acme")
	w.dun(t, 26)
	require.NoError(t, create(), "a payment lifts the hold")
	require.Equal(t, 1, w.events(t, "invoice.starts_resumed"))
}

func TestADisputeRestsDunningAndALostOneResumesIt(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv, _ := w.paid(t, 40_00)
	ref := w.fake.Dispute(w.fake.Intents()[0], 40_00)
	w.deliverAll(t)
	w.dun(t, 5)
	require.Zero(t, w.events(t, "invoice.overdue"), "it is not owed while the dispute lasts")
	w.fake.CloseDispute(ref, false)
	w.deliverAll(t)
	require.Equal(t, int64(40_00), w.owed(t, inv))
	w.dun(t, 6)
	require.Equal(t, 1, w.events(t, "invoice.overdue"))
	require.Equal(t, 1, w.events(t, "invoice.reminded"))
	w.dun(t, 12)
	w.dun(t, 13)
	require.Equal(t, 2, w.events(t, "invoice.reminded"))
}

func TestDunningEndsWithWriteOffAndPayment(t *testing.T) {
	w := newPaying(t)
	written, paid := w.invoice(t, 10_00), w.invoice(t, 20_00)
	w.dun(t, 3)
	require.Equal(t, 2, w.events(t, "invoice.reminded"))
	_, err := w.WriteOffInvoice(t.Context(), w.operator, w.acme.Org, written, app.WriteOffOrder{Reason: "small"})
	require.NoError(t, err)
	w.transfers(t, "1,2026-12-20,20.00,USD,"+w.number()+",Acme")
	require.Zero(t, w.owed(t, paid))
	for _, day := range []int{10, 20, 25, 28, 35} {
		w.dun(t, day)
	}
	require.Equal(t, 2, w.events(t, "invoice.reminded"))
	require.Zero(t, w.events(t, "invoice.starts_suspended"))
}

func TestSchedulesOfIssuers(t *testing.T) {
	w := newPaying(t)
	ctx := t.Context()
	got, err := w.DunningSchedule(ctx, w.operator, "default")
	require.NoError(t, err)
	require.Equal(t, payment.DefaultSchedule, got)
	own := payment.Schedule{{Days: 1, Action: payment.Remind}, {Days: 2, Action: payment.Suspend}}
	require.NoError(t, w.SetDunningSchedule(ctx, w.operator, "default", own))
	got, err = w.DunningSchedule(ctx, w.operator, "default")
	require.NoError(t, err)
	require.Equal(t, own, got)
	require.Equal(t, "request.invalid", fault.CodeOf(w.SetDunningSchedule(ctx, w.operator, "default", payment.Schedule{{Days: 1, Action: payment.Stop}})))
	w.invoice(t, 10_00)
	w.dun(t, 1)
	require.Equal(t, 1, w.events(t, "invoice.reminded"))
}
