package health

import (
	"cmp"
	"slices"
	"time"

	"github.com/tranche-cloud/tranche/nodeagent"
)

// Level is how bad an ailment is.
type Level int

// The levels, rising.
const (
	Suspect Level = iota + 1 // runs go on, nothing new
	Failed                   // every run on the GPU ends
	Shut                     // as Failed, and the GPU is left alone
)

// Cure is what makes an ailment go.
type Cure int

// The cures, rising: each cures what the lower ones cure.
const (
	ByItself Cure = iota // a good reading
	ByReset
	ByReboot
	ByHands // somebody has to look: Clear
)

// Ailment is one thing that is wrong with a GPU.
type Ailment struct {
	Cause    string        `json:"cause"` // a code such as XID_79 or GPU_LOST
	Detail   string        `json:"detail"`
	Level    Level         `json:"level"`
	Cure     Cure          `json:"cure"`
	Credited bool          `json:"credited"`
	Cordon   bool          `json:"cordon,omitempty"` // the host takes no new work either
	Since    time.Duration `json:"since_ns"`         // uptime of the first symptom
}

// maxTries is how many resets and reboots may fail to cure a GPU before somebody has
// to look at it; a GPU that was well for curedAfter counts from none again.
const (
	maxTries   = 2
	curedAfter = 24 * time.Hour
)

// incurable is the cause of a GPU that keeps falling ill.
const incurable = "GPU_INCURABLE"

// Patient is what is known about the health of one GPU. It is plain data: every
// change is a method, and none of them reads a clock.
type Patient struct {
	// Ailments in the order of their first symptoms; each cause once.
	Ailments []Ailment `json:"ailments,omitempty"`
	// Tries are the resets and reboots since the GPU was last well for long.
	Tries int `json:"tries,omitempty"`
	// Healed is the wall time at which the last of them ended.
	Healed time.Time `json:"healed,omitzero"`
	// Recovering: it is being reset and tested now.
	Recovering bool `json:"-"`
}

// Take adds an ailment. One that is known stays as it began and gets worse at most.
// A GPU that fell ill again after enough tries is beyond resets.
func (p *Patient) Take(a Ailment, now time.Time) (news bool) {
	if !p.Healed.IsZero() && now.Sub(p.Healed) >= curedAfter {
		p.Tries, p.Healed = 0, time.Time{}
	}
	if a.Cure >= ByReset && a.Cure < ByHands && p.Tries >= maxTries {
		p.add(Ailment{
			Cause: incurable, Detail: "resets and reboots did not cure it: " + a.Cause, Level: Suspect, Cure: ByHands,
			Credited: a.Credited, Since: a.Since,
		})
	}
	return p.add(a)
}

func (p *Patient) add(a Ailment) (news bool) {
	for i := range p.Ailments {
		old := &p.Ailments[i]
		if old.Cause != a.Cause {
			continue
		}
		news = a.Level > old.Level || a.Cure > old.Cure
		old.Level, old.Cure = max(old.Level, a.Level), max(old.Cure, a.Cure)
		old.Credited, old.Cordon = old.Credited || a.Credited, old.Cordon || a.Cordon
		if news {
			old.Detail = a.Detail
		}
		return news
	}
	p.Ailments = append(p.Ailments, a)
	slices.SortStableFunc(p.Ailments, func(x, y Ailment) int { return cmp.Compare(x.Since, y.Since) })
	return true
}

// Has reports whether an ailment is there.
func (p *Patient) Has(cause string) bool {
	return slices.ContainsFunc(p.Ailments, func(a Ailment) bool { return a.Cause == cause })
}

// Eased drops ailments that go by themselves and are not among those just read.
func (p *Patient) Eased(read []Ailment) {
	p.drop(func(a Ailment) bool {
		return a.Cure == ByItself && !slices.ContainsFunc(read, func(r Ailment) bool { return r.Cause == a.Cause })
	})
}

// Cured drops what a cure that was done and proven cures. It counts as a try if
// there was anything that needed it.
func (p *Patient) Cured(by Cure, now time.Time) {
	if p.Need() >= ByReset {
		p.Tries++
		p.Healed = now
	}
	p.drop(func(a Ailment) bool { return a.Cure <= by })
}

// Tried counts a cure that did not work.
func (p *Patient) Tried(now time.Time) {
	p.Tries++
	p.Healed = now
}

// Cleared drops everything: somebody has looked at the GPU.
func (p *Patient) Cleared() { *p = Patient{} }

func (p *Patient) drop(which func(Ailment) bool) {
	p.Ailments = slices.DeleteFunc(p.Ailments, which)
}

// Need is the strongest cure that is needed.
func (p *Patient) Need() Cure {
	need := ByItself
	for _, a := range p.Ailments {
		need = max(need, a.Cure)
	}
	return need
}

// worst is the first of the worst ailments: the first cause is the one that is told.
func (p *Patient) worst() (Ailment, bool) {
	var out Ailment
	for _, a := range p.Ailments {
		if a.Level > out.Level {
			out = a
		}
	}
	return out, len(p.Ailments) > 0
}

// Ends is the ailment for which the runs on the GPU end; false if they go on.
func (p *Patient) Ends() (Ailment, bool) {
	for _, a := range p.Ailments {
		if a.Level >= Failed {
			return a, true
		}
	}
	return Ailment{}, false
}

// Health is the state that the host reports.
func (p *Patient) Health() nodeagent.GPUHealth {
	a, ill := p.worst()
	if !ill {
		return nodeagent.GPUHealth{State: nodeagent.Healthy}
	}
	h := nodeagent.GPUHealth{State: nodeagent.Degraded, Cause: a.Cause, Detail: a.Detail}
	need := p.Need()
	switch {
	case p.Recovering:
		h.State = nodeagent.Resetting
	case need == ByHands:
		h.State = nodeagent.Quarantined
		for _, x := range p.Ailments {
			if x.Cure == ByHands && x.Cause != a.Cause {
				h.Detail += "; " + x.Cause + ": " + x.Detail
			}
		}
	case a.Level == Shut:
		h.State = nodeagent.Quarantined
	case a.Level == Failed:
		h.State = nodeagent.Failing
	}
	return h
}
