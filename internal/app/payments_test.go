package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/billing/payment/stripe"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// december is when the invoices of these tests are issued, by the business clock.
var december = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

// paying is a world with a payment provider and a customer.
type paying struct {
	world
	fake    *stripefake.Server
	stripe  *stripe.Provider
	acme    customer
	numbers int
}

func newPaying(t *testing.T) *paying {
	t.Helper()
	w := &paying{world: newWorld(t, clock.Real()), fake: stripefake.New(t)}
	var err error
	w.stripe, err = stripe.New(stripe.Config{
		Key: auth.NewSecret(w.fake.Key), WebhookSecret: auth.NewSecret(w.fake.Secret), BaseURL: w.fake.URL, Timeout: 400 * time.Millisecond,
	})
	require.NoError(t, err)
	w.Payments = []app.PaymentProvider{w.stripe}
	w.clock(t, december)
	w.acme = w.tenant(t, "acme", quota.Limits{})
	return w
}

func (w *paying) clock(t *testing.T, at time.Time) {
	t.Helper()
	w.exec(t, `update business_clock set base_real = clock_timestamp(), base_business = $1`, at)
}

func (w *paying) card(t *testing.T, method string) {
	t.Helper()
	require.NoError(t, w.SetPaymentMethod(t.Context(), w.operator, w.acme.Org, method))
}

// invoice writes an open invoice that is owed, as a finalize leaves it.
func (w *paying) invoice(t *testing.T, minor int64) id.Invoice { return w.invoiceIn(t, minor, "USD") }

func (w *paying) invoiceIn(t *testing.T, minor int64, currency string) id.Invoice {
	t.Helper()
	w.numbers++
	inv := id.New[id.Invoice]()
	w.exec(t, `insert into invoices (org_id, id, period, period_from, period_to, close_no, currency, subtotal_minor, tax_minor, total_minor,
		content_hash, engine_version, inputs_hash, created_at, status, series, number, finalized_at, due_on)
		values ($1, $2, '2026-11', '2026-11-01', '2026-12-01', $3, $4, $5, 0, $5, 'x', '1', 'x', $6, 'open', 'TR', $7, $6, $6::timestamptz::date + 14)`,
		uuid.UUID(w.acme.Org), uuid.UUID(inv), w.numbers, currency, minor, december, w.number())
	c := money.MustCurrency(currency)
	require.NoError(t, w.Store.InSystem(t.Context(), "test", func(x *store.SystemTx) error {
		return x.Post(t.Context(), ledger.Journal{
			Org: w.acme.Org, Kind: ledger.InvoiceFinalized, Reference: inv, Currency: c, EffectiveOn: december.Truncate(24 * time.Hour),
			Postings: []ledger.Posting{
				{Account: ledger.Receivable, Amount: money.NewAmount(minor, c), Document: inv},
				{Account: ledger.Revenue, Amount: money.NewAmount(-minor, c)},
			},
		})
	}))
	return inv
}

// number is that of the newest invoice.
func (w *paying) number() string { return fmt.Sprintf("TR-2026-%06d", w.numbers) }

func (w *paying) collect(t *testing.T) {
	t.Helper()
	require.NoError(t, w.CollectPayments(t.Context()))
}

// soon makes all that waits due now.
func (w *paying) soon(t *testing.T) {
	t.Helper()
	for _, table := range []string{"payment_attempts", "payment_refunds", "provider_events"} {
		w.exec(t, `update `+table+` set next_try_at = clock_timestamp() where next_try_at is not null`)
	}
}

func (w *paying) owed(t *testing.T, inv id.Invoice) int64 {
	t.Helper()
	return int64(w.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings where document_id = $1 and account = 'receivable'`, uuid.UUID(inv)))
}

// books is the balance of an account, debit positive.
func (w *paying) books(t *testing.T, a ledger.Account) int64 {
	t.Helper()
	return int64(w.count(t, `select coalesce(sum(amount_minor), 0) from ledger_postings where account = $1`, string(a)))
}

func (w *paying) events(t *testing.T, kind string) int {
	t.Helper()
	return w.count(t, `select count(*) from events where type = $1`, kind)
}

func (w *paying) journals(t *testing.T) int {
	t.Helper()
	return w.count(t, `select count(*) from ledger_journals`)
}

// deliver sends an event as the provider does.
func (w *paying) deliver(t *testing.T, e stripefake.Event) (app.ProviderReceipt, error) {
	t.Helper()
	return w.ReceiveProviderEvent(t.Context(), "stripe", w.fake.Sign(e.Body, time.Now()), e.Body)
}

func (w *paying) deliverAll(t *testing.T) {
	t.Helper()
	for _, e := range w.fake.Take() {
		_, err := w.deliver(t, e)
		require.NoError(t, err)
	}
}

func (w *paying) payments(t *testing.T) []store.Payment {
	t.Helper()
	got, err := w.ListPayments(t.Context(), w.operator, w.acme.Org, app.Page{Size: 50})
	require.NoError(t, err)
	return got.Items
}

func (w *paying) attempts(t *testing.T, inv id.Invoice) []store.Attempt {
	t.Helper()
	got, err := w.InvoicePayments(t.Context(), w.operator, w.acme.Org, inv)
	require.NoError(t, err)
	return got
}

// fee is what the fake takes.
func fee(minor int64) int64 { return minor*29/1000 + 30 }

// Case B43 of public bug reports: the same intent twice is one charge; B51: one event
// for one transition.
func TestB43AnInvoiceIsChargedOnce(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv := w.invoice(t, 100_00)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() { _ = w.CollectPayments(t.Context()) })
	}
	group.Wait()
	w.soon(t)
	w.collect(t)
	w.deliverAll(t)

	refs, units := w.fake.Charged()
	require.Len(t, refs, 1)
	require.Equal(t, int64(100_00), units)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, 100_00-fee(100_00), w.books(t, ledger.Clearing))
	require.Equal(t, fee(100_00), w.books(t, ledger.Fees))
	require.Zero(t, w.books(t, ledger.UnappliedCash))
	require.Equal(t, 1, w.events(t, "invoice.paid"))
	require.Len(t, w.payments(t), 1)
}

// dying is a provider whose caller dies at a point of a charge.
type dying struct {
	app.PaymentProvider
	at  string
	die context.CancelFunc
}

func (d *dying) Charge(ctx context.Context, c payment.Charge) (payment.Charged, error) {
	switch d.at {
	case "before the call":
		d.die()
		return payment.Charged{}, ctx.Err()
	case "after the call":
		_, _ = d.PaymentProvider.Charge(ctx, c)
		d.die()
		return payment.Charged{}, errors.New("the process is gone")
	}
	out, err := d.PaymentProvider.Charge(ctx, c)
	d.die() // before the commit
	return out, err
}

func TestACrashAnywhereIsOneChargeAndBalancedBooks(t *testing.T) {
	for _, at := range []string{"before the call", "after the call", "before the commit"} {
		for _, retry := range []string{"collection", "webhook first"} {
			t.Run(at+", then "+retry, func(t *testing.T) {
				w := newPaying(t)
				w.card(t, stripefake.CardOK)
				inv := w.invoice(t, 55_00)
				ctx, cancel := context.WithCancel(t.Context())
				w.Payments = []app.PaymentProvider{&dying{PaymentProvider: w.stripe, at: at, die: cancel}}
				require.Error(t, w.CollectPayments(ctx))
				require.Equal(t, int64(55_00), w.owed(t, inv), "nothing is in the books yet")

				w.Payments = []app.PaymentProvider{w.stripe}
				if retry == "webhook first" {
					w.deliverAll(t)
				}
				for range 3 {
					w.soon(t)
					w.collect(t)
				}
				w.deliverAll(t)
				refs, units := w.fake.Charged()
				require.Len(t, refs, 1)
				require.Equal(t, int64(55_00), units)
				require.Zero(t, w.owed(t, inv))
				require.Equal(t, 55_00-fee(55_00), w.books(t, ledger.Clearing))
				require.Equal(t, 1, w.events(t, "invoice.paid"))
			})
		}
	}
}

func TestFailuresOfTheProviderAreRetriedUnderTheSameKey(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv := w.invoice(t, 10_00)
	w.fake.Script(stripefake.OpCharge,
		stripefake.Fault{Status: http.StatusTooManyRequests}, stripefake.Fault{Status: http.StatusInternalServerError},
		stripefake.Fault{Status: http.StatusConflict}, stripefake.Fault{Silent: true, After: true})
	for range 4 {
		w.collect(t)
		require.Equal(t, int64(10_00), w.owed(t, inv))
		require.Equal(t, payment.Planned, w.attempts(t, inv)[0].State)
		w.soon(t)
	}
	w.collect(t)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, 4, w.fake.Requests(stripefake.OpCharge), "the charge that was not answered is found, not ordered again")
	refs, _ := w.fake.Charged()
	require.Len(t, refs, 1)
	require.Len(t, w.attempts(t, inv), 1)
}

func TestDeclinesAreRetriedAndEnd(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardInsufficient)
	inv := w.invoice(t, 10_00)
	w.collect(t)
	require.Equal(t, payment.Declined, w.attempts(t, inv)[0].State)
	require.Equal(t, "insufficient_funds", w.attempts(t, inv)[0].Reason)
	w.collect(t)
	require.Len(t, w.attempts(t, inv), 1, "not before its day")
	w.clock(t, december.AddDate(0, 0, 1).Add(time.Hour))
	w.card(t, stripefake.CardOK)
	w.collect(t)
	got := w.attempts(t, inv)
	require.Len(t, got, 2)
	require.Equal(t, payment.Succeeded, got[1].State)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, 1, w.events(t, "invoice.payment_failed"))

	w.card(t, stripefake.CardStolen)
	stolen := w.invoice(t, 10_00)
	for day := range 20 {
		w.clock(t, december.AddDate(0, 0, 2+day))
		w.collect(t)
	}
	require.Len(t, w.attempts(t, stolen), 1, "a stolen card is not tried again")
	w.card(t, stripefake.CardInsufficient)
	poor := w.invoice(t, 10_00)
	for day := range 30 {
		w.clock(t, december.AddDate(0, 0, 30+day))
		w.collect(t)
	}
	require.Len(t, w.attempts(t, poor), 4, "four attempts in all")
}

func TestWhatIsPaidOtherwiseIsNotCharged(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv := w.invoice(t, 10_00)
	w.fake.Script(stripefake.OpCharge, stripefake.Fault{Status: http.StatusTooManyRequests})
	w.collect(t)
	w.transfers(t, "1,2026-12-02,10.00,USD,"+w.number()+",Acme")
	w.soon(t)
	w.collect(t)
	require.Equal(t, payment.Cancelled, w.attempts(t, inv)[0].State)
	w.card(t, stripefake.CardNeeds3DS)
	waits := w.invoice(t, 20_00)
	w.collect(t)
	w.transfers(t, "2,2026-12-02,20.00,USD,"+w.number()+",Acme")
	w.soon(t)
	w.collect(t)
	require.Equal(t, payment.Cancelled, w.attempts(t, waits)[0].State)
	refs, _ := w.fake.Charged()
	require.Empty(t, refs)
}

func TestANewCardIsTriedAtOnce(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardStolen)
	inv := w.invoice(t, 10_00)
	w.collect(t)
	w.clock(t, december.Add(time.Hour))
	w.collect(t)
	require.Len(t, w.attempts(t, inv), 1)
	w.card(t, stripefake.CardOK)
	w.collect(t)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, fault.NotFound, fault.KindOf(w.SetPaymentMethod(t.Context(), w.tenant(t, "other", quota.Limits{}).Caller, w.acme.Org, "pm_x")))
}

func TestTheCustomerConfirms(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardNeeds3DS)
	inv := w.invoice(t, 10_00)
	w.collect(t)
	got := w.attempts(t, inv)
	require.Equal(t, payment.NeedsAction, got[0].State)
	require.Contains(t, got[0].Action, "/3ds/")
	require.Equal(t, 1, w.events(t, "invoice.payment_action_required"))
	w.collect(t)
	require.Len(t, w.attempts(t, inv), 1, "no second charge while one waits")
	w.fake.Confirm(w.fake.Intents()[0], true)
	w.deliverAll(t)
	require.Zero(t, w.owed(t, inv))
	require.Empty(t, w.attempts(t, inv)[0].Action)

	abandoned := w.invoice(t, 20_00)
	w.collect(t)
	w.clock(t, december.Add(payment.ActionWait+time.Hour))
	w.soon(t)
	w.collect(t)
	require.Equal(t, payment.Cancelled, w.attempts(t, abandoned)[0].State)
	require.Equal(t, int64(20_00), w.owed(t, abandoned))
}

func TestWebhooksComeTwiceLateAndInAnyOrder(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardSlow)
	inv := w.invoice(t, 30_00)
	w.collect(t)
	require.Equal(t, payment.Processing, w.attempts(t, inv)[0].State)
	ref := w.fake.Intents()[0]
	w.fake.Settle(ref, false)
	w.fake.Settle(ref, true) // the customer paid the intent after all
	all := w.fake.Take()
	require.Len(t, all, 3)
	for range 2 {
		for i := range all {
			e := all[len(all)-1-i]
			got, err := w.deliver(t, e)
			require.NoError(t, err)
			require.Equal(t, e.ID, got.Event)
		}
	}
	again, err := w.deliver(t, all[0])
	require.NoError(t, err)
	require.False(t, again.Fresh)
	require.Zero(t, w.owed(t, inv))
	require.Equal(t, payment.Succeeded, w.attempts(t, inv)[0].State)
	require.Equal(t, 1, w.events(t, "invoice.paid"))
	require.Equal(t, 0, w.events(t, "invoice.payment_failed"), "the state is read, not told")
	require.Len(t, w.payments(t), 1)
}

func TestForgedAndReplayedWebhooksPostNothing(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardSlow)
	inv := w.invoice(t, 30_00)
	w.collect(t)
	w.fake.Settle(w.fake.Intents()[0], true)
	e := w.fake.Take()[1]
	before := w.journals(t)
	send := func(h http.Header, body []byte) string {
		_, err := w.ReceiveProviderEvent(t.Context(), "stripe", h, body)
		return fault.CodeOf(err)
	}
	require.Equal(t, "webhook.forged", send(stripefake.SignWith("whsec_guess", e.Body, time.Now()), e.Body))
	require.Equal(t, "webhook.forged", send(http.Header{}, e.Body))
	require.Equal(t, "webhook.forged", send(w.fake.Sign(e.Body, time.Now()), []byte(strings.Replace(string(e.Body), "3000", "9999", 1))))
	require.Equal(t, "webhook.stale", send(w.fake.Sign(e.Body, time.Now().Add(-time.Hour)), e.Body))
	_, err := w.ReceiveProviderEvent(t.Context(), "paypal", http.Header{}, e.Body)
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	require.Equal(t, before, w.journals(t))
	require.Zero(t, w.count(t, `select count(*) from provider_events`))

	_, err = w.deliver(t, e)
	require.NoError(t, err)
	require.Zero(t, w.owed(t, inv))
	after := w.journals(t)
	// Case B53 of public bug reports: a key with another meaning is refused, not replayed.
	other := []byte(strings.Replace(string(e.Body), w.fake.Intents()[0], "pi_other", 1))
	require.Equal(t, "webhook.mismatch", send(w.fake.Sign(other, time.Now()), other))
	again := []byte(strings.Replace(string(e.Body), `"livemode":false`, `"livemode":false,"pending_webhooks":3`, 1))
	require.NotEqual(t, string(e.Body), string(again))
	got, err := w.deliver(t, stripefake.Event{Body: again})
	require.NoError(t, err, "one that is sent again counts its deliveries")
	require.False(t, got.Fresh)
	require.Equal(t, after, w.journals(t))
}

func TestEventsOutliveTheProcessThatTookThem(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardSlow)
	inv := w.invoice(t, 30_00)
	w.collect(t)
	w.fake.Settle(w.fake.Intents()[0], true)
	w.fake.Script(stripefake.OpRead, stripefake.Fault{Status: 500}, stripefake.Fault{Status: 500}, stripefake.Fault{Status: 500})
	for _, e := range w.fake.Take() {
		_, err := w.deliver(t, e)
		require.NoError(t, err, "it is kept, so the provider need not send it again")
	}
	require.Equal(t, int64(30_00), w.owed(t, inv))
	for range 2 {
		w.soon(t)
		require.NoError(t, w.ProcessProviderEvents(t.Context()))
	}
	require.Zero(t, w.owed(t, inv))
	require.Zero(t, w.count(t, `select count(*) from provider_events where state = 'received'`))
}

// Case B44 of public bug reports: checkout and automatic charge both succeed; the
// second payment is recorded with its real amount, as unapplied cash.
func TestB44ASecondPaymentIsRecordedInFull(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	inv := w.invoice(t, 40_00)
	w.collect(t)
	meta := map[string]string{"tranche_organization": w.acme.Org.String()}
	w.fake.ChargeElsewhere("cus_of_checkout", 41_00, "usd", meta)
	w.deliverAll(t)
	require.Zero(t, w.owed(t, inv))
	require.Len(t, w.payments(t), 2)
	require.Equal(t, int64(-41_00), w.books(t, ledger.UnappliedCash))
	require.Equal(t, dollars(41_00), w.payments(t)[0].Free())

	next := w.invoice(t, 50_00)
	w.exec(t, `update payment_customers set method_ref = ''`)
	w.collect(t)
	require.Equal(t, int64(9_00), w.owed(t, next), "unapplied cash pays the next invoice")
	require.Zero(t, w.books(t, ledger.UnappliedCash))

	w.fake.ChargeElsewhere("cus_stranger", 1_00, "usd", nil)
	before := w.journals(t)
	w.deliverAll(t)
	require.Equal(t, before, w.journals(t), "a charge that is nobody's here is left alone")
}

func TestCurrenciesOfProviders(t *testing.T) {
	w := newPaying(t)
	w.card(t, stripefake.CardOK)
	kwd := w.invoiceIn(t, 1235, "KWD")
	ugx := w.invoiceIn(t, 2000, "UGX")
	w.collect(t)
	_, units := w.fake.Charged()
	require.Equal(t, int64(1230+200000), units)
	require.Equal(t, int64(5), w.owed(t, kwd), "what no card can pay stays owed")
	require.Zero(t, w.owed(t, ugx))
	w.collect(t)
	require.Len(t, w.attempts(t, kwd), 1)
}
