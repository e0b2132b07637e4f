// Package stripe speaks to Stripe for the use cases: customers, charges of stored
// cards, refunds, disputes and the verification of webhooks, by Stripe's own library.
// Every order carries an idempotency key, every call ends in time, and no call is
// repeated here: the use cases repeat, after they asked what became of the first.
//
// It does not own states, retries or postings (billing/payment, internal/app).
// Amounts are converted by billing/payment's table of provider exponents.
package stripe

import (
	"context"
	"net/http"
	"strings"
	"time"

	stripe "github.com/stripe/stripe-go/v83"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Name is the provider's name in rows and paths.
const Name = "stripe"

const (
	defaultTimeout   = 20 * time.Second
	defaultTolerance = 5 * time.Minute
)

// The keys of the metadata that our objects carry at Stripe.
const (
	metaOrg     = "tranche_organization"
	metaAttempt = "tranche_attempt"
	metaKey     = "tranche_key"
)

// Config is how to reach an account. Key and WebhookSecret print as [redacted].
type Config struct {
	Key           auth.Secret   // the restricted API key
	WebhookSecret auth.Secret   // of the endpoint that events are sent to
	BaseURL       string        // "" is Stripe's
	ReturnURL     string        // where a customer lands after confirming a charge
	Timeout       time.Duration // of a call; 0 is 20 s
	Tolerance     time.Duration // age of an event's signature; 0 is 5 min
	HTTP          *http.Client  // nil is one of its own
}

// Provider is one Stripe account. It is safe for concurrent use.
type Provider struct {
	client *stripe.Client
	config Config
}

// New returns the provider of an account. It fails with request.invalid without a key
// or a webhook secret.
func New(c Config) (*Provider, error) {
	if c.Key.IsZero() || c.WebhookSecret.IsZero() {
		return nil, fault.New(fault.Invalid, "request.invalid", "Stripe needs an API key and a webhook secret.").
			Suggest("Create both in the Stripe dashboard and pass them as files.")
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Tolerance == 0 {
		c.Tolerance = defaultTolerance
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Timeout: c.Timeout}
	}
	backend := &stripe.BackendConfig{
		HTTPClient: c.HTTP, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if c.BaseURL != "" {
		backend.URL = stripe.String(strings.TrimSuffix(c.BaseURL, "/"))
	}
	return &Provider{
		client: stripe.NewClient(c.Key.Reveal(), stripe.WithBackends(stripe.NewBackendsWithConfig(backend))), config: c,
	}, nil
}

// Name returns "stripe".
func (p *Provider) Name() string { return Name }

// bounded gives a call its time.
func (p *Provider) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.config.Timeout)
}

// CreateCustomer makes the organization a customer, once a key, and returns the
// reference. It fails as all calls do: see faultOf.
func (p *Provider) CreateCustomer(ctx context.Context, c payment.NewCustomer) (string, error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.CustomerCreateParams{Name: stripe.String(c.Name)}
	params.SetIdempotencyKey(c.Key)
	params.AddMetadata(metaOrg, c.Org.String())
	got, err := p.client.V1Customers.Create(ctx, params)
	if err != nil {
		return "", faultOf("creating a customer", err)
	}
	return got.ID, nil
}

// AttachMethod makes a payment method, which the customer gave to Stripe itself, the
// one to charge from now on.
func (p *Provider) AttachMethod(ctx context.Context, customer, method string) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	_, err := p.client.V1PaymentMethods.Attach(ctx, method, &stripe.PaymentMethodAttachParams{Customer: stripe.String(customer)})
	if err != nil {
		return faultOf("attaching a payment method", err)
	}
	params := &stripe.CustomerUpdateParams{InvoiceSettings: &stripe.CustomerUpdateInvoiceSettingsParams{
		DefaultPaymentMethod: stripe.String(method),
	}}
	if _, err = p.client.V1Customers.Update(ctx, customer, params); err != nil {
		return faultOf("choosing a payment method", err)
	}
	return nil
}

// Charge charges a stored card. A decline is an answer, not a failure. It fails with
// payment.unknown_outcome when Stripe may or may not have charged: ask FindCharge.
func (p *Provider) Charge(ctx context.Context, c payment.Charge) (payment.Charged, error) {
	units, err := payment.ProviderUnits(c.Amount)
	if err != nil {
		return payment.Charged{}, err
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(units), Currency: stripe.String(strings.ToLower(c.Amount.Currency().Code())),
		Customer: stripe.String(c.Customer), PaymentMethod: stripe.String(c.Method),
		Confirm: stripe.Bool(true), OffSession: stripe.Bool(true), Description: stripe.String(c.Description),
	}
	if p.config.ReturnURL != "" {
		params.ReturnURL = stripe.String(p.config.ReturnURL)
	}
	params.SetIdempotencyKey(c.Key)
	params.AddMetadata(metaOrg, c.Org.String())
	params.AddMetadata(metaAttempt, c.Attempt.String())
	params.AddMetadata(metaKey, c.Key)
	params.AddExpand(expandFee)
	got, err := p.client.V1PaymentIntents.Create(ctx, params)
	if err != nil {
		return declined(err)
	}
	return charged(got)
}

const expandFee = "latest_charge.balance_transaction"

// clockSkew is how much earlier than ours Stripe's clock may date a charge.
const clockSkew = time.Hour

// FindCharge looks for the charge that was ordered with a key, at an instant or later;
// found is false when Stripe knows none.
func (p *Provider) FindCharge(ctx context.Context, customer, key string, ordered time.Time) (c payment.Charged, found bool, err error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.PaymentIntentListParams{
		Customer: stripe.String(customer), CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: ordered.Add(-clockSkew).Unix()},
	}
	params.Limit = stripe.Int64(100)
	for got, err := range p.client.V1PaymentIntents.List(ctx, params) {
		if err != nil {
			return payment.Charged{}, false, faultOf("looking for a charge", err)
		}
		if got.Metadata[metaKey] == key {
			c, err = p.Payment(ctx, got.ID)
			return c, err == nil, err
		}
	}
	return payment.Charged{}, false, nil
}

// Payment reads a charge. It fails with resource.not_found.
func (p *Provider) Payment(ctx context.Context, ref string) (payment.Charged, error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.PaymentIntentRetrieveParams{}
	params.AddExpand(expandFee)
	got, err := p.client.V1PaymentIntents.Retrieve(ctx, ref, params)
	if err != nil {
		return payment.Charged{}, faultOf("reading a charge", err)
	}
	return charged(got)
}

// CancelCharge gives up a charge that the customer did not confirm, and returns what
// is true then: it may have succeeded meanwhile.
func (p *Provider) CancelCharge(ctx context.Context, ref string) (payment.Charged, error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	got, err := p.client.V1PaymentIntents.Cancel(ctx, ref, &stripe.PaymentIntentCancelParams{
		CancellationReason: stripe.String("abandoned"),
	})
	if err == nil {
		return charged(got)
	}
	if now, readErr := p.Payment(ctx, ref); readErr == nil {
		return now, nil
	}
	return payment.Charged{}, faultOf("cancelling a charge", err)
}

// Refund gives back a part of a charge, once a key.
func (p *Provider) Refund(ctx context.Context, r payment.Refund) (payment.Refunded, error) {
	units, err := payment.ProviderUnits(r.Amount)
	if err != nil {
		return payment.Refunded{}, err
	}
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.RefundCreateParams{PaymentIntent: stripe.String(r.Payment), Amount: stripe.Int64(units)}
	params.SetIdempotencyKey(r.Key)
	params.AddMetadata(metaKey, r.Key)
	got, err := p.client.V1Refunds.Create(ctx, params)
	if err != nil {
		return payment.Refunded{}, faultOf("refunding a charge", err)
	}
	return refunded(got, r.Payment)
}

// Refunds lists every refund of a charge, each with its own amount.
func (p *Provider) Refunds(ctx context.Context, ref string) (out []payment.Refunded, err error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	params := &stripe.RefundListParams{PaymentIntent: stripe.String(ref)}
	params.Limit = stripe.Int64(100)
	for got, err := range p.client.V1Refunds.List(ctx, params) {
		if err != nil {
			return nil, faultOf("listing refunds", err)
		}
		r, err := refunded(got, ref)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// Dispute reads a dispute. It fails with resource.not_found.
func (p *Provider) Dispute(ctx context.Context, ref string) (payment.Disputed, error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	got, err := p.client.V1Disputes.Retrieve(ctx, ref, nil)
	if err != nil {
		return payment.Disputed{}, faultOf("reading a dispute", err)
	}
	return disputed(got)
}

// charged reads an intent.
func charged(i *stripe.PaymentIntent) (payment.Charged, error) {
	out := payment.Charged{Ref: i.ID}
	out.Org, _ = id.Parse[id.Org](i.Metadata[metaOrg])
	out.Attempt, _ = id.Parse[id.PaymentAttempt](i.Metadata[metaAttempt])
	if i.Customer != nil {
		out.Customer = i.Customer.ID
	}
	code := strings.ToUpper(string(i.Currency))
	switch i.Status {
	case stripe.PaymentIntentStatusSucceeded:
		received, err := payment.FromProvider(i.AmountReceived, code)
		if err != nil {
			return payment.Charged{}, err
		}
		out.State, out.Received, out.Fee = payment.SaysSucceeded, received, feeOf(i)
	case stripe.PaymentIntentStatusRequiresAction:
		out.State = payment.SaysNeedsAction
		if a := i.NextAction; a != nil && a.RedirectToURL != nil {
			out.Action = a.RedirectToURL.URL
		}
	case stripe.PaymentIntentStatusCanceled:
		out.State = payment.SaysCancelled
	case stripe.PaymentIntentStatusRequiresPaymentMethod:
		out.State, out.Reason, out.Detail = payment.SaysDeclined, reasonOf(i.LastPaymentError), detailOf(i.LastPaymentError)
	default:
		out.State = payment.SaysProcessing
	}
	return out, nil
}

// feeOf is what Stripe kept, where it is known: in the currency that the account
// settles in, which need not be the charge's.
func feeOf(i *stripe.PaymentIntent) *money.Amount {
	if i.LatestCharge == nil || i.LatestCharge.BalanceTransaction == nil {
		return nil
	}
	b := i.LatestCharge.BalanceTransaction
	fee, err := payment.FromProvider(b.Fee, strings.ToUpper(string(b.Currency)))
	if err != nil || b.Currency == "" {
		return nil
	}
	return &fee
}

func reasonOf(e *stripe.Error) string {
	switch {
	case e == nil:
		return "declined"
	case e.DeclineCode != "":
		return string(e.DeclineCode)
	case e.Code != "":
		return string(e.Code)
	}
	return "declined"
}

func detailOf(e *stripe.Error) string {
	if e == nil || e.Msg == "" {
		return "The card was declined."
	}
	return e.Msg
}

func refunded(r *stripe.Refund, of string) (payment.Refunded, error) {
	amount, err := payment.FromProvider(r.Amount, strings.ToUpper(string(r.Currency)))
	if err != nil {
		return payment.Refunded{}, err
	}
	out := payment.Refunded{Ref: r.ID, Key: r.Metadata[metaKey], Payment: of, Amount: amount, State: payment.RefundPending}
	switch r.Status {
	case stripe.RefundStatusSucceeded:
		out.State = payment.RefundSucceeded
	case stripe.RefundStatusFailed, stripe.RefundStatusCanceled:
		out.State, out.Detail = payment.RefundFailed, string(r.FailureReason)
	default: // pending, or waiting for the bank
	}
	return out, nil
}

func disputed(d *stripe.Dispute) (payment.Disputed, error) {
	code := strings.ToUpper(string(d.Currency))
	amount, err := payment.FromProvider(d.Amount, code)
	if err != nil {
		return payment.Disputed{}, err
	}
	out := payment.Disputed{Ref: d.ID, Amount: amount, Reason: string(d.Reason), Fee: money.NewAmount(0, amount.Currency())}
	if d.PaymentIntent != nil {
		out.Payment = d.PaymentIntent.ID
	}
	for _, b := range d.BalanceTransactions {
		fee, err := payment.FromProvider(b.Fee, strings.ToUpper(string(b.Currency)))
		if err != nil || fee.Currency() != amount.Currency() {
			continue
		}
		if out.Fee, err = out.Fee.Add(fee); err != nil {
			return payment.Disputed{}, err
		}
	}
	switch d.Status {
	case stripe.DisputeStatusNeedsResponse, stripe.DisputeStatusUnderReview:
		out.State = payment.DisputeOpen
	case stripe.DisputeStatusWon:
		out.State = payment.DisputeWon
	case stripe.DisputeStatusLost:
		out.State = payment.DisputeLost
	default: // an inquiry, or one that was prevented: nothing was taken
	}
	return out, nil
}
