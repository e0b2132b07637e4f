package payment

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// NewCustomer is an organization as a provider is told of it.
type NewCustomer struct {
	Key  string // idempotency key
	Org  id.Org
	Name string
}

// Charge orders one charge of a stored payment method, without the customer present.
// Key is derived from content and the same for every repetition; Amount is one that
// Chargeable returned.
type Charge struct {
	Key         string
	Org         id.Org
	Attempt     id.PaymentAttempt
	Customer    string // the provider's reference
	Method      string // the provider's reference
	Amount      money.Amount
	Description string // for the customer's statement of the card
}

// Charged is what a provider says of a charge now.
type Charged struct {
	Ref      string // the provider's reference of the intent
	Org      id.Org // zero: the intent is not ours, or was made by hand
	Attempt  id.PaymentAttempt
	Customer string
	State    Observed
	Received money.Amount  // what really came; zero value until succeeded
	Fee      *money.Amount // nil: not known yet; in the currency that the provider settles in
	Reason   string        // of a decline, stable
	Detail   string        // of a decline, for people
	Action   string        // https address where the customer confirms
}

// RefundState is where a refund stands.
type RefundState string

// The states of a refund.
const (
	RefundPlanned   RefundState = "planned" // written down, not sent or its outcome unknown
	RefundPending   RefundState = "pending"
	RefundSucceeded RefundState = "succeeded"
	RefundFailed    RefundState = "failed"
)

// refunds is the state machine. A bank may send back what was refunded: that is the
// one way out of success.
var refunds = map[RefundState]map[RefundState]bool{
	RefundPlanned:   {RefundPending: true, RefundSucceeded: true, RefundFailed: true},
	RefundPending:   {RefundSucceeded: true, RefundFailed: true},
	RefundSucceeded: {RefundFailed: true},
}

// RefundMoves reports whether a refund goes from one state to another.
func RefundMoves(from, to RefundState) bool { return refunds[from][to] }

// Refund orders one refund of a charge.
type Refund struct {
	Key     string
	Payment string // the provider's reference of the intent
	Amount  money.Amount
	Reason  string
}

// Refunded is what a provider says of one refund now: its own amount, never a sum of
// several.
type Refunded struct {
	Ref     string
	Key     string // of the order, "" when it was made by hand at the provider
	Payment string
	State   RefundState
	Amount  money.Amount
	Detail  string // why it failed
}

// Disputed is what a provider says of a dispute now.
type Disputed struct {
	Ref     string
	Payment string
	State   DisputeState // NoDispute: an inquiry, nothing was taken
	Amount  money.Amount
	Fee     money.Amount // in all, net of what was given back
	Reason  string
}

// Object is what an event is about.
type Object string

// What events are about; events about anything else are taken and left alone.
const (
	OfCharge  Object = "charge"
	OfRefund  Object = "refund"
	OfDispute Object = "dispute"
	OfNothing Object = ""
)

// Event is a verified message of a provider. It says only where to look: states and
// amounts are read from the provider.
type Event struct {
	ID     string
	Type   string
	Object Object
	Ref    string // of the object; for refunds of the charge
	At     time.Time
}
