package stripe_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/billing/payment/stripe"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

type account struct {
	*stripefake.Server
	*stripe.Provider
	customer string
}

func open(t *testing.T) account {
	t.Helper()
	s := stripefake.New(t)
	p, err := stripe.New(stripe.Config{
		Key: auth.NewSecret(s.Key), WebhookSecret: auth.NewSecret(s.Secret), BaseURL: s.URL, Timeout: 300 * time.Millisecond,
		ReturnURL: "https://console.test/paid",
	})
	require.NoError(t, err)
	c, err := p.CreateCustomer(t.Context(), payment.NewCustomer{Key: "customer", Org: id.New[id.Org](), Name: "Acme"})
	require.NoError(t, err)
	return account{s, p, c}
}

func usd(minor int64) money.Amount { return money.NewAmount(minor, money.MustCurrency("USD")) }

func (a account) order(key, method string, amount money.Amount) payment.Charge {
	return payment.Charge{
		Key: key, Org: id.Org{15: 1}, Attempt: id.PaymentAttempt{15: 2}, Customer: a.customer, Method: method, Amount: amount, Description: "test",
	}
}

func TestCharges(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	got, err := a.Charge(ctx, a.order("k1", stripefake.CardOK, usd(12_35)))
	require.NoError(t, err)
	require.Equal(t, payment.SaysSucceeded, got.State)
	require.Equal(t, usd(12_35), got.Received)
	require.Equal(t, usd(65), *got.Fee)
	require.Equal(t, id.Org{15: 1}, got.Org)
	require.Equal(t, id.PaymentAttempt{15: 2}, got.Attempt)

	got, err = a.Charge(ctx, a.order("k2", stripefake.CardInsufficient, usd(500)))
	require.NoError(t, err, "a decline is an answer")
	require.Equal(t, payment.SaysDeclined, got.State)
	require.Equal(t, "insufficient_funds", got.Reason)

	got, err = a.Charge(ctx, a.order("k3", stripefake.CardNeeds3DS, usd(500)))
	require.NoError(t, err)
	require.Equal(t, payment.SaysNeedsAction, got.State)
	require.NotEmpty(t, got.Action)
	a.Confirm(got.Ref, true)
	got, err = a.Payment(ctx, got.Ref)
	require.NoError(t, err)
	require.Equal(t, payment.SaysSucceeded, got.State)

	got, err = a.Charge(ctx, a.order("k4", stripefake.CardNeeds3DS, usd(500)))
	require.NoError(t, err)
	got, err = a.CancelCharge(ctx, got.Ref)
	require.NoError(t, err)
	require.Equal(t, payment.SaysCancelled, got.State)
	paid, err := a.FindChargeOf(t, "k1")
	require.NoError(t, err)
	got, err = a.CancelCharge(ctx, paid.Ref)
	require.NoError(t, err)
	require.Equal(t, payment.SaysSucceeded, got.State, "it tells what is true instead")
}

// FindChargeOf is FindCharge for one that must be there.
func (a account) FindChargeOf(t *testing.T, key string) (payment.Charged, error) {
	t.Helper()
	got, found, err := a.FindCharge(t.Context(), a.customer, key, time.Now())
	require.True(t, found)
	return got, err
}

func TestProviderExponents(t *testing.T) {
	a := open(t)
	ugx := money.NewAmount(2000, money.MustCurrency("UGX"))
	got, err := a.Charge(t.Context(), a.order("k", stripefake.CardOK, ugx))
	require.NoError(t, err)
	require.Equal(t, ugx, got.Received)
	_, units := a.Charged()
	require.Equal(t, int64(200000), units)
	kwd, err := money.ParseAmount("1.235", money.MustCurrency("KWD"))
	require.NoError(t, err)
	_, err = a.Charge(t.Context(), a.order("k2", stripefake.CardOK, kwd))
	require.Equal(t, "payment.refused", fault.CodeOf(err), "only what Chargeable returns can be charged")
}

func TestAKeyIsOneCharge(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	first, err := a.Charge(ctx, a.order("k", stripefake.CardOK, usd(100)))
	require.NoError(t, err)
	again, err := a.Charge(ctx, a.order("k", stripefake.CardOK, usd(100)))
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = a.Charge(ctx, a.order("k", stripefake.CardOK, usd(200)))
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
	refs, units := a.Charged()
	require.Len(t, refs, 1)
	require.Equal(t, int64(100), units)
}

func TestFaultsOfCalls(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	for _, tc := range []struct {
		fault stripefake.Fault
		code  string
	}{
		{stripefake.Fault{Status: 429}, "rate.limited"},
		{stripefake.Fault{Status: 409}, "rate.limited"},
		{stripefake.Fault{Status: 500}, "payment.unknown_outcome"},
		{stripefake.Fault{Status: 503, After: true}, "payment.unknown_outcome"},
		{stripefake.Fault{Silent: true, After: true}, "payment.unknown_outcome"},
	} {
		a.Script(stripefake.OpCharge, tc.fault)
		key := fmt.Sprint("k", tc.fault)
		_, err := a.Charge(ctx, a.order(key, stripefake.CardOK, usd(100)))
		require.Equal(t, tc.code, fault.CodeOf(err), "%+v", tc.fault)
		_, found, err := a.FindCharge(ctx, a.customer, key, time.Now())
		require.NoError(t, err)
		require.Equal(t, tc.fault.After, found)
	}
	_, err := a.Payment(ctx, "pi_none")
	require.Equal(t, fault.NotFound, fault.KindOf(err))
	_, err = a.Charge(ctx, a.order("kx", "pm_unknown", usd(100)))
	require.Equal(t, fault.NotFound, fault.KindOf(err))
}

func TestSecretsAreNotShown(t *testing.T) {
	s := stripefake.New(t)
	config := stripe.Config{Key: auth.NewSecret("rk_live_verysecret"), WebhookSecret: auth.NewSecret("whsec_verysecret"), BaseURL: s.URL}
	p, err := stripe.New(config)
	require.NoError(t, err)
	_, err = p.Payment(t.Context(), "pi_1")
	require.Equal(t, "payment.misconfigured", fault.CodeOf(err))
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Error("x", "error", err, "config", config)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", config, config, config), err.Error(), logged.String()} {
		require.NotContains(t, text, "verysecret")
	}
	_, err = stripe.New(stripe.Config{})
	require.Equal(t, "request.invalid", fault.CodeOf(err))
}

func TestWebhooksAreVerified(t *testing.T) {
	a := open(t)
	got, err := a.Charge(t.Context(), a.order("k", stripefake.CardOK, usd(100)))
	require.NoError(t, err)
	events := a.Take()
	require.Len(t, events, 1)
	body := events[0].Body
	e, err := a.Event(a.Sign(body, time.Now()), body)
	require.NoError(t, err)
	require.Equal(t, payment.OfCharge, e.Object)
	require.Equal(t, got.Ref, e.Ref)
	require.Equal(t, events[0].ID, e.ID)

	code := func(h http.Header, body []byte) string {
		_, err := a.Event(h, body)
		return fault.CodeOf(err)
	}
	require.Equal(t, "webhook.forged", code(stripefake.SignWith("whsec_other", body, time.Now()), body))
	require.Equal(t, "webhook.forged", code(http.Header{}, body))
	require.Equal(t, "webhook.forged", code(a.Sign(body, time.Now()), append([]byte(" "), body...)))
	require.Equal(t, "webhook.stale", code(a.Sign(body, time.Now().Add(-6*time.Minute)), body))
	junk := []byte(`{"object":"event"}`)
	require.Equal(t, "webhook.malformed", code(a.Sign(junk, time.Now()), junk))

	a.Server.Dispute(got.Ref, 100)
	a.RefundElsewhere(got.Ref, 1)
	var objects []string
	for _, e := range a.Take() {
		read, err := a.Event(a.Sign(e.Body, time.Now()), e.Body)
		require.NoError(t, err)
		objects = append(objects, string(read.Object)+" "+strings.SplitN(read.Ref, "_", 2)[0])
	}
	require.Equal(t, []string{"dispute dp", "refund pi", "refund pi"}, objects)
}

func TestRefundsAndDisputes(t *testing.T) {
	a := open(t)
	ctx := t.Context()
	paid, err := a.Charge(ctx, a.order("k", stripefake.CardOK, usd(100_00)))
	require.NoError(t, err)
	for i, minor := range []int64{10_00, 5_00} {
		r, err := a.Refund(ctx, payment.Refund{Key: fmt.Sprint("r", i), Payment: paid.Ref, Amount: usd(minor)})
		require.NoError(t, err)
		require.Equal(t, usd(minor), r.Amount, "its own amount, not the sum")
		require.Equal(t, payment.RefundSucceeded, r.State)
	}
	all, err := a.Refunds(ctx, paid.Ref)
	require.NoError(t, err)
	require.Len(t, all, 2)
	_, err = a.Refund(ctx, payment.Refund{Key: "r3", Payment: paid.Ref, Amount: usd(90_00)})
	require.Equal(t, "payment.refused", fault.CodeOf(err))

	ref := a.Server.Dispute(paid.Ref, 85_00)
	d, err := a.Provider.Dispute(ctx, ref)
	require.NoError(t, err)
	require.Equal(t, payment.Disputed{Ref: ref, Payment: paid.Ref, State: payment.DisputeOpen, Amount: usd(85_00), Fee: usd(15_00), Reason: "fraudulent"}, d)
	a.CloseDispute(ref, true)
	d, err = a.Provider.Dispute(ctx, ref)
	require.NoError(t, err)
	require.Equal(t, payment.DisputeWon, d.State)
	require.True(t, d.Fee.IsZero(), "the fee came back")
	asked, err := a.Provider.Dispute(ctx, a.Inquiry(paid.Ref, 1_00))
	require.NoError(t, err)
	require.Equal(t, payment.NoDispute, asked.State)
}
