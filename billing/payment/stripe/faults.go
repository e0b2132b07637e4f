package stripe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	stripe "github.com/stripe/stripe-go/v83"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
)

// tooMany is how long to leave Stripe alone after a 429.
const tooMany = 10 * time.Second

// faultOf types what went wrong with a call:
//   - no answer, or a 5xx: payment.unknown_outcome, the order may have been carried out;
//   - 429, or 409 while the same key is at work: rate.limited, it was not;
//   - the key was used with another body: idempotency.mismatch;
//   - 404: resource.not_found;
//   - 401 and 403: payment.misconfigured, the key is wrong;
//   - any other 4xx: payment.refused.
//
// The cause keeps the type, code and request id; it never holds a key.
func faultOf(doing string, err error) error {
	var e *stripe.Error
	if !errors.As(err, &e) || e.HTTPStatusCode >= http.StatusInternalServerError {
		return fault.New(fault.Unavailable, "payment.unknown_outcome",
			"The payment provider did not answer: what was ordered may or may not have happened.").
			Suggest("Nothing is needed: the outcome is looked up and the order repeated under the same key.").
			Because(fmt.Errorf("%s: %w", doing, short(err)))
	}
	cause := fmt.Errorf("%s: %w", doing, short(err))
	switch {
	case e.HTTPStatusCode == http.StatusTooManyRequests,
		e.HTTPStatusCode == http.StatusConflict && e.Code == stripe.ErrorCodeLockTimeout,
		e.HTTPStatusCode == http.StatusConflict && e.Type != stripe.ErrorTypeIdempotency:
		return fault.New(fault.RateLimited, "rate.limited", "The payment provider takes no more orders right now.").
			Suggest("Try again a little later.").After(tooMany).Because(cause)
	case e.Type == stripe.ErrorTypeIdempotency, e.Code == stripe.ErrorCodeIdempotencyKeyInUse:
		return fault.New(fault.Conflict, "idempotency.mismatch", "The payment provider knows this order with other contents.").
			Suggest("Compare the payment at the provider with the attempt here.").Because(cause)
	case e.HTTPStatusCode == http.StatusNotFound || e.Code == stripe.ErrorCodeResourceMissing:
		return fault.New(fault.NotFound, "resource.not_found", "The payment provider knows no such object.").
			Suggest("Check that the key belongs to the account that made it.").Because(cause)
	case e.HTTPStatusCode == http.StatusUnauthorized || e.HTTPStatusCode == http.StatusForbidden:
		return fault.New(fault.Unavailable, "payment.misconfigured", "The payment provider does not accept this system's key.").
			Suggest("Put a valid restricted key in place.").Because(cause)
	}
	return fault.New(fault.Unprocessable, "payment.refused", "The payment provider refused the order: "+oneLine(e.Msg)).
		Suggest("Correct what it names and try again.").Because(cause)
}

// declined turns the error of an order into what became of the charge: a card error
// carries the intent, and is an answer.
func declined(err error) (payment.Charged, error) {
	var e *stripe.Error
	if !errors.As(err, &e) || e.Type != stripe.ErrorTypeCard || e.PaymentIntent == nil {
		return payment.Charged{}, faultOf("charging", err)
	}
	out, readErr := charged(e.PaymentIntent)
	if readErr != nil {
		return payment.Charged{}, readErr
	}
	out.Reason, out.Detail = reasonOf(e), detailOf(e)
	return out, nil
}

// short is the error without the objects that Stripe's carries.
func short(err error) error {
	var e *stripe.Error
	if !errors.As(err, &e) {
		return err
	}
	return fmt.Errorf("stripe answered %d %s %s (request %s)", e.HTTPStatusCode, e.Type, e.Code, e.RequestID)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
