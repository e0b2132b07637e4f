package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/workflows/activities"
)

// Instance drives one instance to what its row wants. Its id is inst/<id>; key is
// the instance's id.
//
//	wake ──▶ AdvanceInstance ──┬─ again ───▶ AdvanceInstance
//	  ▲      (place, release,  ├─ wait ────▶ wake, or the row's time ──▶ AdvanceInstance
//	  │       retry, finish)   └─ nothing ─▶ complete
//	  └── every wake is SignalWithStart: of the outbox, a report, the sweeper
func Instance(ctx workflow.Context, key string) error {
	var a *activities.Activities
	return drive(ctx, Instance, a.AdvanceInstance, key)
}
