package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing/payment"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/store"
)

// maxEvent bounds the body of a webhook, in bytes.
const maxEvent = 1 << 20

// ProviderReceipt is the answer to a webhook: Fresh is false for an event that was
// received before, about which nothing is done.
type ProviderReceipt struct {
	Event string
	Fresh bool
}

// ReceiveProviderEvent takes a webhook of a payment provider in. An event only says
// where to look: states and amounts are read from the provider, so that events may
// come twice, late and in any order. When it returns without error the event is kept
// and will be worked on, also if this process dies.
//
// It fails with webhook.forged, webhook.stale for what was signed too long ago, as a
// replay is, webhook.mismatch for an id that came with another type or object, webhook.malformed
// and resource.not_found for an unknown provider; nothing is posted then.
func (a *App) ReceiveProviderEvent(ctx context.Context, provider string, headers http.Header, body []byte) (ProviderReceipt, error) {
	p, err := a.provider(provider)
	if err != nil {
		return ProviderReceipt{}, err
	}
	if len(body) > maxEvent {
		return ProviderReceipt{}, fault.New(fault.TooLarge, "request.too_large", "An event is at most 1 MiB.").
			Suggest("Subscribe the endpoint to payment events only.")
	}
	e, err := p.Event(headers, body)
	if err != nil {
		return ProviderReceipt{}, err
	}
	out := ProviderReceipt{Event: e.ID}
	err = a.Store.InSystem(ctx, "take an event of a provider in", func(t *store.SystemTx) error {
		out.Fresh, err = t.InsertProviderEvent(ctx, provider, e, meaning(e), callLease)
		return err
	})
	if err != nil || !out.Fresh {
		return out, err
	}
	if err := a.workEvent(ctx, store.ProviderEvent{Provider: provider, Event: e, Attempts: 1}); err != nil {
		a.Log.Warn("an event of a provider waits", "provider", provider, "event", e.ID, "error", err)
	}
	return out, nil
}

// meaning is what an event says, as a hash: a provider that sends one again changes
// other parts of its body, such as how often it was delivered.
func meaning(e payment.Event) [32]byte {
	return sha256.Sum256([]byte(strings.Join([]string{e.ID, e.Type, string(e.Object), e.Ref}, "\x00")))
}

// ProcessProviderEvents works on events that were received and not worked on: their
// process died, or the provider did not answer.
func (a *App) ProcessProviderEvents(ctx context.Context) error {
	var todo []store.ProviderEvent
	err := a.Store.InSystem(ctx, "take up events of providers", func(t *store.SystemTx) (err error) {
		todo, err = t.ClaimProviderEvents(ctx, collectSize, callLease)
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range todo {
		if err := a.workEvent(ctx, e); err != nil {
			a.Log.Warn("an event of a provider waits", "provider", e.Provider, "event", e.ID, "error", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// workEvent looks at what an event is about and notes the outcome. An event about
// something that is not ours is ignored.
func (a *App) workEvent(ctx context.Context, e store.ProviderEvent) error {
	state, problem, wait := "done", "", time.Duration(0)
	err := a.lookAt(ctx, e)
	switch {
	case e.Object == payment.OfNothing:
		state = "ignored"
	case fault.KindOf(err) == fault.NotFound, fault.CodeOf(err) == "payment.currency", fault.CodeOf(err) == "payment.amount":
		a.Log.Warn("an event of a provider is about nothing of ours", "provider", e.Provider, "event", e.ID, "error", err)
		state, problem, err = "ignored", fault.From(err).Detail, nil
	case err != nil:
		state, problem, wait = "received", fault.From(err).Detail, pauseAfter(err, e.Attempts)
	}
	if ctx.Err() != nil {
		return err
	}
	ended := a.Store.InSystem(ctx, "end an event of a provider", func(t *store.SystemTx) error {
		return t.EndProviderEvent(ctx, e.Provider, e.ID, state, problem, wait)
	})
	if err == nil {
		err = ended
	}
	return err
}

// lookAt reads what an event is about from the provider and takes it over.
func (a *App) lookAt(ctx context.Context, e store.ProviderEvent) error {
	if e.Object == payment.OfNothing {
		return nil
	}
	p, err := a.provider(e.Provider)
	if err != nil {
		return err
	}
	if e.Object == payment.OfCharge {
		return a.lookAtCharge(ctx, p, e.Ref)
	}
	if e.Object == payment.OfRefund {
		if err := a.lookAtCharge(ctx, p, e.Ref); err != nil {
			return err
		}
		all, err := p.Refunds(ctx, e.Ref)
		if err != nil {
			return err
		}
		for _, r := range all { // one in trouble keeps no other waiting
			err = errors.Join(err, a.observeRefund(ctx, p.Name(), e.Ref, r))
		}
		return err
	}
	d, err := p.Dispute(ctx, e.Ref)
	if err != nil || d.State == payment.NoDispute {
		return err
	}
	// It may come before the charge it is about.
	if err := a.lookAtCharge(ctx, p, d.Payment); err != nil {
		return err
	}
	return a.observeDispute(ctx, p.Name(), d)
}

func (a *App) lookAtCharge(ctx context.Context, p PaymentProvider, ref string) error {
	c, err := p.Payment(ctx, ref)
	if err != nil {
		return err
	}
	return a.observeCharge(ctx, p.Name(), c, store.Attempt{})
}
