package stack

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// grace is how long after its end a month may be invoiced, in business time.
const grace = 24 * time.Hour

const periodLayout = "2006-01"

// OpenMonth moves business time to the morning of the next 2nd of a month and
// sets its scale. What is sold from then on for weeks lies in one month.
func (s *Stack) OpenMonth(ctx context.Context, scale int) (Clock, error) {
	clock, err := s.Clock(ctx)
	if err != nil {
		return clock, err
	}
	second := time.Date(clock.Now.Year(), clock.Now.Month(), 2, 9, 0, 0, 0, time.UTC)
	if !second.After(clock.Now) {
		second = second.AddDate(0, 1, 0)
	}
	if _, err := s.JumpTo(ctx, second); err != nil {
		return clock, err
	}
	return s.SetScale(ctx, scale)
}

// CloseMonth moves business time past the end of the month and its grace, and
// has every organization's invoice finalized. Nothing may run any more.
func (s *Stack) CloseMonth(ctx context.Context) (client.InvoiceRun, error) {
	clock, err := s.Clock(ctx)
	if err != nil {
		return client.InvoiceRun{}, err
	}
	period := clock.Now.Format(periodLayout)
	end := time.Date(clock.Now.Year(), clock.Now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.JumpTo(ctx, end.Add(grace+time.Hour)); err != nil {
		return client.InvoiceRun{}, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		// A second run of a month answers the first.
		run, err := s.Admin().RunInvoices(ctx, period)
		if err != nil {
			return run, fmt.Errorf("run the invoices of %s: %w", period, err)
		}
		switch run.Status {
		case wire.InvoiceRunStatusSucceeded:
			return run, nil
		case wire.InvoiceRunStatusFailed:
			problem, _ := run.Problem.Get() // empty when there is none
			return run, fmt.Errorf("the invoice run of %s failed: %s %s", period, problem.Code, problem.Detail)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return run, fmt.Errorf("wait for the invoices of %s: %w", period, ctx.Err())
		}
	}
}
