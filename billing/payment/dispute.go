package payment

// DisputeState is where a chargeback stands.
type DisputeState string

// The states of a dispute. The bank takes the money back when a dispute opens and
// gives it back when it is won.
const (
	NoDispute   DisputeState = ""
	DisputeOpen DisputeState = "open"
	DisputeWon  DisputeState = "won"
	DisputeLost DisputeState = "lost"
)

// disputes is the state machine. Won and lost are final: a message that comes late or
// out of order changes nothing.
var disputes = map[DisputeState]map[DisputeState]bool{
	NoDispute:   {DisputeOpen: true, DisputeWon: true, DisputeLost: true},
	DisputeOpen: {DisputeWon: true, DisputeLost: true},
}

// DisputeSteps returns the states to pass through, in order, from one to what the
// provider says now: a dispute that is first heard of when it is over was open
// before, and its postings are made for both. It is empty when nothing changes.
func DisputeSteps(from, says DisputeState) []DisputeState {
	if !disputes[from][says] {
		return nil
	}
	if from == NoDispute && says != DisputeOpen {
		return []DisputeState{DisputeOpen, says}
	}
	return []DisputeState{says}
}
