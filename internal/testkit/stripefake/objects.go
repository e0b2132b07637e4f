package stripefake

import (
	"net/url"
	"strconv"
)

func (s *Server) createCustomer(_ string, form url.Values) (object, *refusal) {
	return object{"id": s.id("cus"), "object": "customer", "name": form.Get("name"), "metadata": metadata(form)}, nil
}

func (s *Server) updateCustomer(id string, _ url.Values) (object, *refusal) {
	return object{"id": id, "object": "customer"}, nil
}

func (s *Server) attach(id string, form url.Values) (object, *refusal) {
	if !known(id) {
		return nil, refuse(404, "invalid_request_error", "resource_missing", "No such PaymentMethod: '"+id+"'")
	}
	s.methods[id] = form.Get("customer")
	return object{"id": id, "object": "payment_method", "customer": form.Get("customer")}, nil
}

func known(method string) bool {
	switch method {
	case CardOK, CardInsufficient, CardStolen, CardNeeds3DS, CardSlow:
		return true
	}
	return false
}

// createIntent makes and confirms an intent, as the card says.
func (s *Server) createIntent(_ string, form url.Values) (object, *refusal) {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if err != nil || amount <= 0 {
		return nil, refuse(400, "invalid_request_error", "parameter_invalid_integer", "Invalid positive integer: amount")
	}
	currency := form.Get("currency")
	if currency == "isk" || currency == "ugx" {
		if amount%100 != 0 {
			return nil, refuse(400, "invalid_request_error", "amount_invalid", "The amount must be divisible by 100")
		}
	} else if currency == "kwd" && amount%10 != 0 {
		return nil, refuse(400, "invalid_request_error", "amount_invalid", "The last digit must be 0")
	}
	method := form.Get("payment_method")
	if !known(method) {
		return nil, refuse(404, "invalid_request_error", "resource_missing", "No such PaymentMethod: '"+method+"'")
	}
	intent := object{
		"id": s.id("pi"), "object": "payment_intent", "amount": amount, "amount_received": int64(0), "currency": currency,
		"customer": form.Get("customer"), "metadata": metadata(form), "payment_method": method, "status": "processing", "created": now(),
	}
	ref := intent["id"].(string)
	s.intents[ref] = intent
	s.order = append(s.order, ref)
	switch method {
	case CardOK:
		s.succeed(intent)
	case CardInsufficient:
		return nil, s.decline(intent, "insufficient_funds", "Your card has insufficient funds.")
	case CardStolen:
		return nil, s.decline(intent, "stolen_card", "Your card was declined.")
	case CardNeeds3DS:
		intent["status"] = "requires_action"
		intent["next_action"] = object{"type": "redirect_to_url", "redirect_to_url": object{"url": s.URL + "/3ds/" + ref}}
		s.tell("payment_intent.requires_action", intent)
	default:
		s.tell("payment_intent.processing", intent)
	}
	return intent, nil
}

// fee is what this account pays for a charge.
func fee(amount int64) int64 { return amount*29/1000 + 30 }

func (s *Server) succeed(intent object) {
	amount := intent["amount"].(int64)
	intent["status"], intent["amount_received"] = "succeeded", amount
	delete(intent, "next_action")
	delete(intent, "last_payment_error")
	intent["latest_charge"] = object{
		"id": s.id("ch"), "object": "charge", "amount": amount,
		"balance_transaction": object{"id": s.id("txn"), "object": "balance_transaction", "amount": amount, "fee": fee(amount), "currency": intent["currency"]},
	}
	s.tell("payment_intent.succeeded", intent)
}

func (s *Server) decline(intent object, code, message string) *refusal {
	failure := object{"type": "card_error", "code": "card_declined", "decline_code": code, "message": message}
	intent["status"], intent["last_payment_error"] = "requires_payment_method", failure
	s.tell("payment_intent.payment_failed", intent)
	return &refusal{402, object{
		"type": "card_error", "code": "card_declined", "decline_code": code, "message": message, "payment_intent": copied(intent),
	}}
}

func (s *Server) cancelIntent(id string, _ url.Values) (object, *refusal) {
	intent, ok := s.intents[id]
	if !ok {
		return nil, missing("payment_intent", id)
	}
	if intent["status"] == "succeeded" || intent["status"] == "canceled" {
		return nil, refuse(400, "invalid_request_error", "payment_intent_unexpected_state", "You cannot cancel this PaymentIntent")
	}
	intent["status"] = "canceled"
	s.tell("payment_intent.canceled", intent)
	return intent, nil
}

func (s *Server) readIntent(id string, _ url.Values) (object, *refusal) {
	if intent, ok := s.intents[id]; ok {
		return intent, nil
	}
	return nil, missing("payment_intent", id)
}

func (s *Server) listIntents(_ string, form url.Values) (object, *refusal) {
	since, _ := strconv.ParseInt(form.Get("created[gte]"), 10, 64) // absent: all
	var out []object
	for _, ref := range s.order {
		if s.intents[ref]["customer"] == form.Get("customer") && s.intents[ref]["created"].(int64) >= since {
			out = append(out, s.intents[ref])
		}
	}
	return list(out), nil
}

func (s *Server) createRefund(_ string, form url.Values) (object, *refusal) {
	intent, ok := s.intents[form.Get("payment_intent")]
	if !ok {
		return nil, missing("payment_intent", form.Get("payment_intent"))
	}
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if err != nil || amount <= 0 || intent["status"] != "succeeded" {
		return nil, refuse(400, "invalid_request_error", "", "The charge cannot be refunded")
	}
	return s.refund(intent, amount, metadata(form))
}

func (s *Server) refund(intent object, amount int64, meta map[string]string) (object, *refusal) {
	left := intent["amount_received"].(int64)
	for _, r := range s.refunds {
		if r["payment_intent"] == intent["id"] && r["status"] != "failed" {
			left -= r["amount"].(int64)
		}
	}
	if amount > left {
		return nil, refuse(400, "invalid_request_error", "charge_already_refunded", "Refund amount is greater than unrefunded amount on charge")
	}
	r := object{
		"id": s.id("re"), "object": "refund", "amount": amount, "currency": intent["currency"], "payment_intent": intent["id"],
		"status": "succeeded", "metadata": meta, "created": now(),
	}
	s.refunds = append(s.refunds, r)
	s.tell("refund.created", r)
	s.tell("charge.refunded", object{
		"id": "ch_of_" + intent["id"].(string), "object": "charge", "payment_intent": intent["id"],
		"amount_refunded": intent["amount_received"].(int64) - left + amount, // in all, as Stripe tells it
	})
	return r, nil
}

func (s *Server) listRefunds(_ string, form url.Values) (object, *refusal) {
	var out []object
	for _, r := range s.refunds {
		if r["payment_intent"] == form.Get("payment_intent") {
			out = append(out, r)
		}
	}
	return list(out), nil
}

func (s *Server) readDispute(id string, _ url.Values) (object, *refusal) {
	if d, ok := s.disputes[id]; ok {
		return d, nil
	}
	return nil, missing("dispute", id)
}

func missing(noun, id string) *refusal {
	return refuse(404, "invalid_request_error", "resource_missing", "No such "+noun+": '"+id+"'")
}

// copied is an object as it is now: events keep what was true.
func copied(o object) object {
	out := make(object, len(o))
	for k, v := range o {
		out[k] = v
	}
	return out
}
