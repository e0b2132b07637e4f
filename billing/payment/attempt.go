package payment

import "time"

// AttemptState is where one intent to charge stands.
type AttemptState string

// The states of an attempt.
const (
	Planned     AttemptState = "planned"      // written down, not sent or its outcome unknown
	Processing  AttemptState = "processing"   // the provider works on it
	NeedsAction AttemptState = "needs_action" // the customer has to confirm, for example 3-D Secure
	Succeeded   AttemptState = "succeeded"
	Declined    AttemptState = "declined"
	Cancelled   AttemptState = "cancelled"
)

// Observed is what a provider says of an intent at one moment.
type Observed string

// What providers say.
const (
	SaysProcessing  Observed = "processing"
	SaysNeedsAction Observed = "needs_action"
	SaysSucceeded   Observed = "succeeded"
	SaysDeclined    Observed = "declined"
	SaysCancelled   Observed = "cancelled"
)

// attempts is the state machine. Success is final and reachable from everywhere, also
// from declined: a customer may pay an intent again at the provider, and money that
// came is never refused. Nothing else leaves declined or cancelled, so an older
// message that comes late changes nothing.
var attempts = map[AttemptState]map[Observed]AttemptState{
	Planned: {
		SaysProcessing: Processing, SaysNeedsAction: NeedsAction, SaysSucceeded: Succeeded,
		SaysDeclined: Declined, SaysCancelled: Cancelled,
	},
	Processing: {SaysNeedsAction: NeedsAction, SaysSucceeded: Succeeded, SaysDeclined: Declined, SaysCancelled: Cancelled},
	NeedsAction: {
		SaysProcessing: Processing, SaysSucceeded: Succeeded, SaysDeclined: Declined, SaysCancelled: Cancelled,
	},
	Declined:  {SaysSucceeded: Succeeded},
	Cancelled: {SaysSucceeded: Succeeded},
}

// AttemptStates lists every state; tests walk it.
var AttemptStates = []AttemptState{Planned, Processing, NeedsAction, Succeeded, Declined, Cancelled}

// NextAttempt returns the state after the provider was heard; false where nothing
// changes.
func NextAttempt(s AttemptState, o Observed) (AttemptState, bool) {
	next, ok := attempts[s][o]
	return next, ok
}

// Live reports whether an attempt may still move money by itself: while one is live
// the same invoice gets no other.
func (s AttemptState) Live() bool { return s == Planned || s == Processing || s == NeedsAction }

const (
	// maxAttempts bounds the automatic charges of one invoice.
	maxAttempts = 4
	// ActionWait is how long a customer may take to confirm a charge before it is
	// cancelled, in business time.
	ActionWait = 72 * time.Hour
)

// waits are the days between automatic charges.
var waits = [maxAttempts - 1]int{1, 3, 5}

// final lists reasons of a decline after which the same card is not tried again.
var final = map[string]bool{
	"stolen_card": true, "lost_card": true, "pickup_card": true, "fraudulent": true, "invalid_account": true,
	"expired_card": true, "incorrect_number": true, "do_not_honor_permanently": true, "no_payment_method": true,
}

// RetryAt returns when an invoice is charged again after its n-th attempt, counted
// from 1, was declined at an instant for a reason; false: never by itself.
func RetryAt(n int, reason string, at time.Time) (time.Time, bool) {
	if n < 1 || n >= maxAttempts || final[reason] {
		return time.Time{}, false
	}
	return at.AddDate(0, 0, waits[n-1]), true
}
