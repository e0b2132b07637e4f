package stripe

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v83/webhook"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
)

// signatureHeader carries time and signatures of an event.
const signatureHeader = "Stripe-Signature"

// Event verifies a webhook by the endpoint's secret and tells what it is about. It
// fails with webhook.forged when no signature fits, webhook.stale when it was signed
// longer ago than the tolerance, as a replay is, and webhook.malformed.
func (p *Provider) Event(headers http.Header, body []byte) (payment.Event, error) {
	e, err := webhook.ConstructEventWithOptions(body, headers.Get(signatureHeader), p.config.WebhookSecret.Reveal(),
		webhook.ConstructEventOptions{Tolerance: p.config.Tolerance, IgnoreAPIVersionMismatch: true})
	switch {
	case errors.Is(err, webhook.ErrTooOld):
		return payment.Event{}, fault.New(fault.Invalid, "webhook.stale", "The event was signed too long ago.").
			Suggest("Send it again from the provider's dashboard; check this machine's clock.").Because(err)
	case errors.Is(err, webhook.ErrNotSigned), errors.Is(err, webhook.ErrInvalidHeader), errors.Is(err, webhook.ErrNoValidSignature):
		return payment.Event{}, fault.New(fault.Forbidden, "webhook.forged", "The event carries no valid signature.").
			Suggest("Compare the endpoint's secret at the provider with the configured one.").Because(err)
	case err != nil || e.ID == "" || e.Data == nil:
		return payment.Event{}, fault.New(fault.Invalid, "webhook.malformed", "The event cannot be read.").
			Suggest("Subscribe this endpoint to snapshot events only.").Because(err)
	}
	out := payment.Event{ID: e.ID, Type: string(e.Type), At: time.Unix(e.Created, 0).UTC()}
	object := func(key string) string {
		s, _ := e.Data.Object[key].(string)
		return s
	}
	switch noun, _, _ := strings.Cut(out.Type, "."); {
	case noun == "payment_intent":
		out.Object, out.Ref = payment.OfCharge, object("id")
	case strings.HasPrefix(out.Type, "charge.dispute."):
		out.Object, out.Ref = payment.OfDispute, object("id")
	case noun == "refund", out.Type == "charge.refunded", strings.HasPrefix(out.Type, "charge.refund."):
		out.Object, out.Ref = payment.OfRefund, object("payment_intent")
	}
	if out.Ref == "" {
		out.Object = payment.OfNothing
	}
	return out, nil
}
