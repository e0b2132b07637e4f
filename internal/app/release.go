package app

import (
	"context"

	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/metering"
)

// release ends the usage of a run, where it was not ended before, and orders the
// tombstone of its assignment. Capacity stays held until the agent acknowledges it.
func (p *progress) release(ctx context.Context, a instance.Assignment) error {
	now, err := p.tx.BusinessNow(ctx)
	if err != nil {
		return err
	}
	if _, err := p.tx.CloseByEvent(ctx, p.row.Org, p.row.ID, metering.StopRelease, metering.Facts{At: now}); err != nil {
		return err
	}
	if _, err := p.tx.ReleaseAssignment(ctx, a.ID); err != nil {
		return err
	}
	for i := range p.view.Assignments {
		if held := &p.view.Assignments[i]; held.ID == a.ID {
			held.State, held.Fence = instance.Releasing, held.Fence+1
			held.Seen = instance.RunNone
		}
	}
	return nil
}

// runProblem words the end of a run for the tenant; converged says that it was up
// before. A reason of the table has its own code; of any other, the agent's code and
// detail are in the sentence.
func runProblem(a instance.Assignment, converged bool) instance.Problem {
	if instance.BlameOf(a.Reason.Code) != instance.Unknown {
		return instance.Public(a.Reason)
	}
	why := a.Reason.Detail
	if why == "" {
		why = a.Reason.Code
	}
	if a.Seen == instance.RunExited || converged {
		if why == "" {
			why = "its main process ended"
		}
		return instance.Problem{Code: "run.exited", Detail: "The run ended: " + why + "."}
	}
	if why == "" {
		why = "no reason was given"
	}
	return instance.Problem{Code: "service.unavailable", Detail: "The host could not start the instance: " + why + "."}
}
