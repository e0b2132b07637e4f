package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

var statementColumns = []column[client.StatementLine]{
	{"ID", func(l client.StatementLine) string { return l.Id }},
	{"BOOKED", func(l client.StatementLine) string { return l.BookedOn }},
	{"AMOUNT", func(l client.StatementLine) string { return money(l.Amount) }},
	{"PAYER", func(l client.StatementLine) string { return l.Payer }},
	{"REFERENCE", func(l client.StatementLine) string { return l.Reference }},
	{"STATE", func(l client.StatementLine) string { return string(l.State) }},
	{"WHY", func(l client.StatementLine) string { return l.Why }},
	{"PAYMENT", func(l client.StatementLine) string { return or(l.Payment, same) }},
}

func (a *app) payment() *cobra.Command {
	c := &cobra.Command{Use: "payment", Aliases: []string{"payments"}, Short: "Payments, refunds and bank statements"}
	c.AddCommand(a.paymentLs(), a.paymentRefund(), a.paymentImport(), a.paymentLines(), a.paymentCandidates(), a.paymentMatch(), a.paymentReturn())
	return c
}

func (a *app) paymentLs() *cobra.Command {
	var owner string
	c := a.ask("ls", "List payments, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		found := sdk.Payments(ctx)
		if owner != "" {
			found = sdk.Admin().Payments(ctx, owner)
		}
		all, err := client.Collect(found)
		if err != nil {
			return err
		}
		return list(a, all, paymentColumns)
	})
	ownerFlag(c, &owner, "of this organization (operators; default: one's own)")
	return c
}

func (a *app) paymentRefund() *cobra.Command {
	var owner, of, reason string
	var reopen bool
	c := a.ask("refund PAYMENT --organization ORG --reason TEXT [--amount AMOUNT]", "Send money back (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if owner == "" || reason == "" {
				return usagef("refund needs --organization and --reason")
			}
			in := client.RefundCreate{Reason: reason}
			if reopen {
				in.Reopen = &reopen
			}
			if of != "" {
				m, err := amount("amount", of)
				if err != nil {
					return err
				}
				in.Amount = &m
			}
			p, err := sdk.Admin().RefundPayment(ctx, owner, args[0], in)
			if err != nil {
				return err
			}
			return one(a, p, paymentColumns)
		})
	ownerFlag(c, &owner, "whose payment it is")
	c.Flags().StringVar(&reason, "reason", "", "why")
	c.Flags().StringVar(&of, "amount", "", "a part (default: all that is unapplied)")
	c.Flags().BoolVar(&reopen, "reopen", false, "take it back from invoices that it paid; they are owed again")
	return c
}

func (a *app) paymentImport() *cobra.Command {
	var account string
	c := a.ask("import FILE --account IBAN", "Import a bank statement, each entry once (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if account == "" {
				return usagef("import needs --account, the account that the statement is of")
			}
			text, err := a.content(args[0])
			if err != nil {
				return err
			}
			got, err := sdk.Admin().ImportStatement(ctx, client.StatementCreate{Account: account, Csv: string(text)})
			if err != nil {
				return err
			}
			return one(a, got, []column[client.StatementImport]{
				{"CREDITS", func(s client.StatementImport) string { return fmt.Sprint(s.Lines) }},
				{"NEW", func(s client.StatementImport) string { return fmt.Sprint(s.New) }},
				{"MATCHED", func(s client.StatementImport) string { return fmt.Sprint(s.Matched) }},
				{"DEBITS LEFT OUT", func(s client.StatementImport) string { return fmt.Sprint(s.Debits) }},
			})
		})
	c.Long = "Import a CSV file with the columns bank_id, date, amount, currency, reference and payer; - is standard input."
	c.Flags().StringVar(&account, "account", "", "the account, for example its IBAN")
	return c
}

func (a *app) paymentLines() *cobra.Command {
	var state string
	c := a.ask("lines", "List lines of bank statements, newest first (operators)", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		if s := client.StatementLineState(state); state != "" && !s.Valid() {
			return usagef("--state takes queued, matched or returned, not %q", state)
		}
		all, err := client.Collect(sdk.Admin().StatementLines(ctx, client.StatementLineState(state)))
		if err != nil {
			return err
		}
		return list(a, all, statementColumns)
	})
	c.Flags().StringVar(&state, "state", "", "only queued, matched or returned")
	return c
}

func (a *app) paymentMatch() *cobra.Command {
	var owner string
	var parts []string
	c := a.ask("match LINE --organization ORG [--pays INVOICE=AMOUNT…]", "Say whose payment a transfer is (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if owner == "" {
				return usagef("match needs --organization")
			}
			in := client.StatementMatch{Organization: owner}
			var to []wire.StatementPart
			for _, text := range parts {
				invoice, of, ok := strings.Cut(text, "=")
				if !ok {
					return usagef("--pays takes INVOICE=AMOUNT such as \"inv_…=119.00 EUR\", not %q", text)
				}
				m, err := amount("pays", of)
				if err != nil {
					return err
				}
				to = append(to, wire.StatementPart{Invoice: invoice, Amount: m})
			}
			if len(to) > 0 {
				in.Parts = &to
			}
			l, err := sdk.Admin().MatchStatementLine(ctx, args[0], in)
			if err != nil {
				return err
			}
			return one(a, l, statementColumns)
		})
	ownerFlag(c, &owner, "who paid")
	c.Flags().StringArrayVar(&parts, "pays", nil, "INVOICE=AMOUNT; may be repeated, the rest stays unapplied")
	return c
}

func (a *app) paymentReturn() *cobra.Command {
	var reason string
	c := a.ask("return LINE --reason TEXT", "Send a transfer back by hand (operators)", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		if reason == "" {
			return usagef("return needs --reason")
		}
		l, err := sdk.Admin().ReturnStatementLine(ctx, args[0], reason)
		if err != nil {
			return err
		}
		return one(a, l, statementColumns)
	})
	c.Flags().StringVar(&reason, "reason", "", "why")
	return c
}
