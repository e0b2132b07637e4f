package stripefake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"time"
)

// disputeFee is what a dispute costs, in provider units.
const disputeFee = 1500

// Event is a webhook that waits to be delivered.
type Event struct {
	ID   string
	Type string
	Body []byte
}

// tell queues an event about an object as it is now; the lock is held.
func (s *Server) tell(kind string, about object) {
	e := Event{ID: s.id("evt"), Type: kind}
	e.Body = encoded(object{
		"id": e.ID, "object": "event", "api_version": "2025-10-29.clover", "type": kind, "created": now(), "livemode": false,
		"data": object{"object": copied(about)},
	})
	s.events = append(s.events, e)
}

// Take returns the events that wait, oldest first, and forgets them: to deliver them
// once, twice or in any order is the test's affair.
func (s *Server) Take() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.events
	s.events = nil
	return out
}

// Sign returns the headers of a delivery at an instant, by the endpoint's secret.
func (s *Server) Sign(body []byte, at time.Time) http.Header { return SignWith(s.Secret, body, at) }

// SignWith is Sign with another secret, as a forger has one.
func SignWith(secret string, body []byte, at time.Time) http.Header {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return http.Header{"Stripe-Signature": {fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))}}
}

// Confirm is the customer who confirms a charge, and whether the bank takes it.
func (s *Server) Confirm(ref string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.succeed(s.intents[ref])
		return
	}
	_ = s.decline(s.intents[ref], "authentication_failed", "The authentication failed.")
}

// Settle ends a charge that was processing.
func (s *Server) Settle(ref string, ok bool) { s.Confirm(ref, ok) }

// ChargeElsewhere makes a charge that did not come from the API: a customer who paid
// on a hosted page. It returns its reference.
func (s *Server) ChargeElsewhere(customer string, units int64, currency string, meta map[string]string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	intent := object{
		"id": s.id("pi"), "object": "payment_intent", "amount": units, "amount_received": int64(0), "currency": currency,
		"customer": customer, "metadata": meta, "created": now(),
	}
	ref := intent["id"].(string)
	s.intents[ref] = intent
	s.order = append(s.order, ref)
	s.succeed(intent)
	return ref
}

// RefundElsewhere refunds a charge as somebody does in the dashboard.
func (s *Server) RefundElsewhere(ref string, units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.refund(s.intents[ref], units, nil)
}

// FailRefunds lets the bank send every refund of a charge back.
func (s *Server) FailRefunds(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.refunds {
		if r["payment_intent"] == ref {
			r["status"], r["failure_reason"] = "failed", "lost_or_stolen_card"
			s.tell("refund.updated", r)
		}
	}
}

// Dispute opens a chargeback of a charge and returns its reference.
func (s *Server) Dispute(ref string, units int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	intent := s.intents[ref]
	d := object{
		"id": s.id("dp"), "object": "dispute", "amount": units, "currency": intent["currency"], "payment_intent": ref,
		"reason": "fraudulent", "status": "needs_response", "created": now(),
		"balance_transactions": []object{{"id": s.id("txn"), "object": "balance_transaction", "amount": -units, "fee": int64(disputeFee), "currency": intent["currency"]}},
	}
	s.disputes[d["id"].(string)] = d
	s.tell("charge.dispute.created", d)
	return d["id"].(string)
}

// CloseDispute ends one; one that is won gives the fee back, too.
func (s *Server) CloseDispute(dispute string, won bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disputes[dispute]
	d["status"] = "lost"
	if won {
		d["status"] = "won"
		d["balance_transactions"] = append(d["balance_transactions"].([]object),
			object{"id": s.id("txn"), "object": "balance_transaction", "amount": d["amount"], "fee": int64(-disputeFee), "currency": d["currency"]})
	}
	s.tell("charge.dispute.closed", d)
}

// Inquiry makes a dispute that took nothing: a question of the bank.
func (s *Server) Inquiry(ref string, units int64) string {
	dispute := s.Dispute(ref, units)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disputes[dispute]["status"] = "warning_needs_response"
	s.disputes[dispute]["balance_transactions"] = []object{}
	return dispute
}
