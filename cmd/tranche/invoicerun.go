package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// monthOf refuses what is no calendar month.
func monthOf(text string) (string, error) {
	if _, err := time.Parse("2006-01", text); err != nil {
		return "", usagef("a period is a month such as 2026-11, not %q", text)
	}
	return text, nil
}

func (a *app) invoiceRun() *cobra.Command {
	c := &cobra.Command{Use: "invoice-run", Aliases: []string{"invoice-runs"}, Short: "Invoice a month (operators)"}
	c.AddCommand(
		a.runVerb("start PERIOD", "Finalize the invoices of a month", "start", func(ctx context.Context, sdk *client.Client, period string) (client.InvoiceRun, error) {
			return sdk.Admin().RunInvoices(ctx, period)
		}),
		a.runVerb("get PERIOD", "Show the newest run of a month", "get", func(ctx context.Context, sdk *client.Client, period string) (client.InvoiceRun, error) {
			return sdk.Admin().GetInvoiceRun(ctx, period)
		}),
		a.ask("check PERIOD", "Rate all documents of a month again; fails if one comes out different", cobra.ExactArgs(1), a.runCheck),
	)
	return c
}

func (a *app) runVerb(use, short, verb string, do func(context.Context, *client.Client, string) (client.InvoiceRun, error)) *cobra.Command {
	var wait bool
	var timeout time.Duration
	c := a.ask(use, short, cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		period, err := monthOf(args[0])
		if err != nil {
			return err
		}
		run, err := do(ctx, sdk, period)
		if err == nil && wait && run.Status == wire.InvoiceRunStatusRunning {
			fmt.Fprintf(a.err, "waiting for the run of %s\n", period)
			waiting, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			run, err = sdk.Admin().WaitInvoiceRun(waiting, period)
			if err != nil && waiting.Err() != nil {
				return stillRunning{period, "tranche invoice-run get --wait"}
			}
		}
		if err != nil {
			return err
		}
		return a.showRun(run)
	})
	c.Flags().BoolVar(&wait, "wait", false, "wait until it ends")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Minute, "how long to wait; the work goes on after it")
	c.Example = "  tranche invoice-run " + verb + " 2026-11 --wait"
	return c
}

func (a *app) showRun(run client.InvoiceRun) error {
	if a.output == "json" {
		return document(a.out, run)
	}
	if err := one(a, run, []column[client.InvoiceRun]{
		{"PERIOD", func(r client.InvoiceRun) string { return r.Period }},
		{"STATUS", func(r client.InvoiceRun) string { return string(r.Status) }},
		{"BEGUN", func(r client.InvoiceRun) string { return r.CreatedAt.String() }},
		{"ENDED", func(r client.InvoiceRun) string { return or(r.FinishedAt, client.Timestamp.String) }},
		{"ORGANIZATIONS", func(r client.InvoiceRun) string {
			return fmt.Sprintf("%d done, %d pending, %d failed", r.Progress.Done, r.Progress.Pending, r.Progress.Failed)
		}},
		{"DOCUMENTS", func(r client.InvoiceRun) string { return fmt.Sprint(len(r.Invoices)) }},
		{"PROBLEM", func(r client.InvoiceRun) string {
			return or(r.Problem, func(p wire.Reason) string { return p.Code + ": " + p.Detail })
		}},
	}); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return list(a, run.Invoices, []column[wire.InvoiceRunItem]{
		{"NUMBER", func(i wire.InvoiceRunItem) string { return i.Number }},
		{"INVOICE", func(i wire.InvoiceRunItem) string { return i.Invoice }},
		{"ORGANIZATION", func(i wire.InvoiceRunItem) string { return i.Organization }},
		{"TOTAL", func(i wire.InvoiceRunItem) string { return money(i.Total) }},
	})
}

func (a *app) runCheck(ctx context.Context, sdk *client.Client, args []string) error {
	period, err := monthOf(args[0])
	if err != nil {
		return err
	}
	got, err := sdk.Admin().CheckInvoices(ctx, period)
	if err != nil {
		return err
	}
	if a.output == "json" {
		err = document(a.out, got)
	} else {
		err = list(a, got.Different, []column[wire.RerateProblem]{
			{"ORGANIZATION", func(p wire.RerateProblem) string { return p.Organization }},
			{"INVOICE", func(p wire.RerateProblem) string { return p.Invoice }},
			{"DIFFERENCE", func(p wire.RerateProblem) string { return p.Detail }},
		})
		fmt.Fprintf(a.err, "%d documents of %s rated again, %d different\n", got.Documents, got.Period, len(got.Different))
	}
	if err == nil && len(got.Different) > 0 {
		err = fmt.Errorf("%d documents of %s do not rate again to what they say", len(got.Different), got.Period)
	}
	return err
}
