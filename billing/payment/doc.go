// Package payment owns what money that comes in follows: the state machines of
// payment attempts, disputes and dunning, the amounts as payment providers count
// them, the rules that match bank statement lines to invoices, and the journals of
// all of these. Pure; amounts are whole minor units, instants are the business
// clock's.
//
// It does not own documents (billing), accounts (billing/ledger) or any provider's
// protocol (billing/payment/stripe).
package payment
