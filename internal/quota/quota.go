// Package quota answers one question: may this organization hold that much more?
//
// It counts instances and GPUs (whole or part, one a slice). It does not count:
// what is held comes from rows that a trigger sums up (I13). Rate limits and
// budgets are not quota.
package quota

import (
	"fmt"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Limits is how much an organization may hold at once; 0 is nothing.
type Limits struct{ Instances, GPUs int }

// Usage is how much it holds, or asks for.
type Usage struct{ Instances, GPUs int }

// Check returns nil when usage and ask together stay within the limits. It fails
// with quota.exceeded (fault.OverQuota), naming the dimension, the limit and what
// is held.
func Check(l Limits, held, ask Usage) error {
	for _, d := range []struct {
		name             string
		limit, held, ask int
	}{
		{"instances", l.Instances, held.Instances, ask.Instances},
		{"gpus", l.GPUs, held.GPUs, ask.GPUs},
	} {
		// Written as a difference: a huge ask must not overflow into a pass.
		if d.ask > 0 && d.ask > d.limit-d.held {
			return exceeded(d.name, d.limit, d.held, d.ask)
		}
	}
	return nil
}

func exceeded(name string, limit, held, ask int) error {
	return fault.New(fault.OverQuota, "quota.exceeded",
		fmt.Sprintf("The quota of %s is %d; %d are held and %d more were asked for.", name, limit, held, ask)).
		Suggest("Delete what is no longer needed, or ask the operator for more quota.")
}
