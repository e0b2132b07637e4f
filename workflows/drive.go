package workflows

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/tranche-cloud/tranche/workflows/activities"
)

// step is a local activity that takes a resource as far as it goes.
type step = func(ctx context.Context, key string) (activities.Result, error)

// drive is the loop of every resource's workflow: drain the wake-ups, do the next
// step, wait if there is something to wait for. It returns only if nothing is due
// and no wake-up is unread. Being wrong about a wake-up costs one more look.
func drive(ctx workflow.Context, self any, do step, key string) error {
	return driveAs(ctx, purposeDatabase, self, do, key)
}

// driveAs is drive with the timeouts and retries of a purpose.
func driveAs(ctx workflow.Context, purpose string, self any, do step, key string) error {
	wake := workflow.GetSignalChannel(ctx, wakeSignal)
	stepCtx := workflow.WithLocalActivityOptions(ctx, policies[purpose])
	began := workflow.Now(ctx)
	pause := pauseMin
	for range roundsAtMost {
		for wake.ReceiveAsync(nil) {
		}
		var r activities.Result
		err := workflow.ExecuteLocalActivity(stepCtx, do, key).Get(ctx, &r)
		var left time.Duration
		switch {
		case gaveUp(err):
			workflow.GetLogger(ctx).Warn("nothing can be done", "key", key, "error", err)
		case err != nil:
			workflow.GetLogger(ctx).Warn("step failed, pausing", "key", key, "error", err)
			left, pause = pause, min(2*pause, pauseMax)
		case r.Again:
			continue
		default:
			left, pause = time.Duration(r.WaitMS)*time.Millisecond, pauseMin
		}
		if wake.Len() > 0 {
			continue
		}
		if left == 0 {
			return nil
		}
		due, err := await(ctx, wake, left, began)
		if err != nil || !due {
			return err
		}
	}
	return workflow.NewContinueAsNewError(ctx, self, key)
}

// await waits for a wake-up or until the time is up, and reports false when the
// run has waited long enough and may complete.
func await(ctx workflow.Context, wake workflow.ReceiveChannel, left time.Duration, began time.Time) (bool, error) {
	budget := waitAtMost - workflow.Now(ctx).Sub(began)
	mayEnd := left > budget
	left = min(left, max(budget, pauseMin))
	woken, err := workflow.AwaitWithTimeout(ctx, left, func() bool { return wake.Len() > 0 })
	return woken || !mayEnd, err
}

func gaveUp(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == activities.GaveUp
}
