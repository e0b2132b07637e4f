package agentlink

import "time"

// missedProofs is how long a stream that is still open may be silent before a new
// process of the same boot may take over: two proofs of ProofEvery.
const missedProofs = 2 * ProofEvery

// Intervals that the control plane asks agents to keep.
const (
	ProofEvery = 10 * time.Second
	FullEvery  = 60 * time.Second
)

// Incumbent is the stream that a host has, or had last.
type Incumbent struct {
	Session       int64 // 0: none ever
	BootID, Nonce string
	Counter       uint64
	Open          bool          // as far as the control plane knows
	Silence       time.Duration // since its last proof of life
}

// Admission is the answer to a Hello beside an incumbent.
type Admission int

// The answers.
const (
	Admitted   Admission = iota // a new session; the incumbent is fenced by it
	Outdated                    // an older stream of the incumbent's own process
	Occupied                    // another process of this boot still proves life: try again
	Contradict                  // another boot while the incumbent proves life: an alarm
)

// Admit decides whether a Hello supersedes the incumbent (30-workflows §3). A stream
// that is known to be closed, or missed two proofs, never stands in the way.
func Admit(old Incumbent, h Hello) Admission {
	switch {
	case old.Session == 0:
		return Admitted
	case h.Nonce == old.Nonce && h.Counter > old.Counter:
		return Admitted
	case h.Nonce == old.Nonce:
		return Outdated
	case !old.Open || old.Silence >= missedProofs:
		return Admitted
	case h.BootID == old.BootID:
		return Occupied
	}
	return Contradict
}
