package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/workflows/activities"
)

// Host drives one host to what its row wants. Its id is host/<id>; key is the
// host's id.
//
//	wake ──▶ AdvanceHost ───┬─ wait ────▶ wake, or the row's time ──▶ AdvanceHost
//	  ▲      (validate,     └─ nothing ─▶ complete
//	  │       admit, finish)
//	  └── every wake is SignalWithStart: approval, hello, inventory, cordon, sweeper
func Host(ctx workflow.Context, key string) error {
	var a *activities.Activities
	return drive(ctx, Host, a.AdvanceHost, key)
}
