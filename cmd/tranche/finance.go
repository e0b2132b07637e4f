package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

func (a *app) finance() *cobra.Command {
	c := &cobra.Command{Use: "finance", Short: "The books: closes, accounts and what a month earned (operators)"}
	c.AddCommand(
		a.closeVerb("close PERIOD", "Close a month of the ledger; nothing is posted into it any more", func(ctx context.Context, sdk *client.Client, period string) (client.FinanceClose, error) {
			return sdk.Admin().CloseMonth(ctx, period)
		}),
		a.closeVerb("get PERIOD", "Show the reports of a closed month", func(ctx context.Context, sdk *client.Client, period string) (client.FinanceClose, error) {
			return sdk.Admin().GetClose(ctx, period)
		}),
		a.financeJournal(), a.financeAccounts(), a.financeRevenue(), a.financeUtilisation(), a.financeGPUCost(), a.financeDiscrepancies(), a.financeResolve(),
	)
	return c
}

func (a *app) closeVerb(use, short string, do func(context.Context, *client.Client, string) (client.FinanceClose, error)) *cobra.Command {
	return a.ask(use, short, cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		period, err := monthOf(args[0])
		if err != nil {
			return err
		}
		got, err := do(ctx, sdk, period)
		if err != nil {
			return err
		}
		return a.showClose(got)
	})
}

// trialRow is what a table shows of a stored report.
type trialRow struct {
	Currency, Account, Opening, Debits, Credits, Closing string
}

func (a *app) showClose(m client.FinanceClose) error {
	if a.output == "json" {
		return document(a.out, m)
	}
	fmt.Fprintf(a.out, "%s closed at %s by %s\nSHA-256 %s\n\n", m.Period, m.ClosedAt, plain(m.ClosedBy), m.Sha256)
	text, err := json.Marshal(m.Report)
	if err != nil {
		return err
	}
	var report struct {
		TrialBalance []trialRow `json:"trial_balance"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	return list(a, report.TrialBalance, []column[trialRow]{
		{"CURRENCY", func(r trialRow) string { return r.Currency }},
		{"ACCOUNT", func(r trialRow) string { return r.Account }},
		{"OPENING", func(r trialRow) string { return r.Opening }},
		{"DEBITS", func(r trialRow) string { return r.Debits }},
		{"CREDITS", func(r trialRow) string { return r.Credits }},
		{"CLOSING", func(r trialRow) string { return r.Closing }},
	})
}

func (a *app) financeJournal() *cobra.Command {
	var file string
	c := a.ask("journal PERIOD", "Write the journal of a closed month as CSV, to standard output or --file", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			period, err := monthOf(args[0])
			if err != nil {
				return err
			}
			body, err := sdk.Admin().JournalCSV(ctx, period)
			return a.save(file, body, err)
		})
	c.Flags().StringVar(&file, "file", "", "write here (default: standard output)")
	return c
}

// save writes a document to a file that only its owner reads, or to standard output.
func (a *app) save(file string, body []byte, err error) error {
	if err != nil || file == "" || file == "-" {
		return a.write(body, err)
	}
	if err := os.WriteFile(file, body, 0o600); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	fmt.Fprintf(a.err, "%s: %d bytes\n", file, len(body))
	return nil
}

func (a *app) financeAccounts() *cobra.Command {
	var owner, day string
	c := a.ask("accounts", "Show what accounts stand at; debit is positive", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		var at time.Time
		if day != "" {
			var err error
			if at, err = time.Parse(time.DateOnly, day); err != nil {
				return usagef("--day takes a date such as 2026-11-30, not %q", day)
			}
		}
		all, err := sdk.Admin().LedgerAccounts(ctx, owner, at)
		if err != nil {
			return err
		}
		return list(a, all, []column[client.LedgerAccount]{
			{"ACCOUNT", func(x client.LedgerAccount) string { return x.Account }},
			{"BALANCE", func(x client.LedgerAccount) string { return money(x.Balance) }},
		})
	})
	ownerFlag(c, &owner, "only of this organization")
	c.Flags().StringVar(&day, "day", "", "up to and with this day, YYYY-MM-DD (default: today)")
	return c
}

func (a *app) financeDiscrepancies() *cobra.Command {
	var status string
	c := a.ask("discrepancies", "List usage beyond its proof, newest first; it is not billed while it is open", cobra.NoArgs,
		func(ctx context.Context, sdk *client.Client, _ []string) error {
			if s := client.DiscrepancyStatus(status); status != "" && !s.Valid() {
				return usagef("--status takes open or resolved, not %q", status)
			}
			all, err := client.Collect(sdk.Admin().Discrepancies(ctx, client.DiscrepancyStatus(status)))
			if err != nil {
				return err
			}
			return list(a, all, []column[client.Discrepancy]{
				{"ID", func(d client.Discrepancy) string { return d.Id }},
				{"ORGANIZATION", func(d client.Discrepancy) string { return d.Organization }},
				{"INSTANCE", func(d client.Discrepancy) string { return d.Instance }},
				{"FROM", func(d client.Discrepancy) string { return d.From.String() }},
				{"TO", func(d client.Discrepancy) string { return d.To.String() }},
				{"STATUS", func(d client.Discrepancy) string { return string(d.Status) }},
				{"REASON", func(d client.Discrepancy) string { return or(d.Reason, same) }},
			})
		})
	c.Flags().StringVar(&status, "status", "", "only open or resolved")
	return c
}

func (a *app) financeResolve() *cobra.Command {
	var in client.DiscrepancyResolve
	var verdict string
	c := a.ask("resolve DISCREPANCY --verdict billed|proven --reason TEXT", "Decide a discrepancy, for good", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if verdict != "billed" && verdict != "proven" || in.Reason == "" {
				return usagef("resolve needs --verdict billed (the meter was right) or proven (it stays off the bill), and --reason")
			}
			in.Verdict = wire.DiscrepancyVerdict(verdict)
			return sdk.Admin().ResolveDiscrepancy(ctx, args[0], in)
		})
	c.Flags().StringVar(&verdict, "verdict", "", "billed or proven")
	c.Flags().StringVar(&in.Reason, "reason", "", "why; it is kept")
	return c
}
