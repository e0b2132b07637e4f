package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/workflows/activities"
)

// GPU drives the change of one GPU's mode to its end. Its id is gpu/<id>; key is the
// GPU's id. The plan is the row: without an open change it completes at once.
//
//	wake ──▶ AdvanceGPU ───┬─ again ───▶ AdvanceGPU
//	  ▲      (drain, switch, ├─ wait ────▶ wake, or the row's time ──▶ AdvanceGPU
//	  │       end)           └─ nothing ─▶ complete
//	  └── every wake is SignalWithStart: set-mode, a freed slot, an inventory, the sweeper
func GPU(ctx workflow.Context, key string) error {
	var a *activities.Activities
	return drive(ctx, GPU, a.AdvanceGPU, key)
}
