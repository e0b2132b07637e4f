package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ownerFlag adds the flag that says whose something is.
func ownerFlag(c *cobra.Command, to *string, what string) {
	c.Flags().StringVar(to, "organization", "", what)
}

// refundOf reads --refund.
func refundOf(text string) (*wire.RefundChoice, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no decision is one of the answers
	}
	choice := wire.RefundChoice(text)
	if !choice.Valid() {
		return nil, usagef("--refund takes wallet, provider or none, not %q", text)
	}
	return &choice, nil
}

func (a *app) creditNote() *cobra.Command {
	c := &cobra.Command{Use: "credit-note", Aliases: []string{"credit-notes"}, Short: "Take a part of an invoice back (operators)"}
	c.AddCommand(a.creditNoteCreate())
	return c
}

func (a *app) creditNoteCreate() *cobra.Command {
	var owner, reason, refund, net string
	var lines []string
	c := a.ask("create INVOICE --organization ORG --reason TEXT", "Credit lines, a net amount, or all that is left", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			in := client.CreditNoteCreate{Reason: reason}
			var err error
			if in.Refund, err = refundOf(refund); err != nil {
				return err
			}
			if owner == "" || reason == "" || net != "" && len(lines) > 0 {
				return usagef("create needs --organization and --reason, and takes --line or --net, not both")
			}
			if net != "" {
				m, err := amount("net", net)
				if err != nil {
					return err
				}
				in.Net = &m
			}
			if in.Lines, err = creditLines(lines); err != nil {
				return err
			}
			return a.show(sdk.Admin().CreateCreditNote(ctx, owner, args[0], in))
		})
	c.Example = "  tranche credit-note create inv_… --organization org_… --reason \"late start\" --line \"1=10.00 USD\""
	ownerFlag(c, &owner, "whose invoice it is")
	c.Flags().StringVar(&reason, "reason", "", "why; it is printed on the document")
	c.Flags().StringArrayVar(&lines, "line", nil, "LINE, all that is left of it, or LINE=AMOUNT before tax; may be repeated")
	c.Flags().StringVar(&net, "net", "", "amount before tax, spread over all lines")
	c.Flags().StringVar(&refund, "refund", "", "of what was paid: wallet, provider or none")
	return c
}

// creditLines reads LINE or LINE=AMOUNT.
func creditLines(texts []string) (*[]wire.CreditLine, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // no lines: the whole document
	}
	out := make([]wire.CreditLine, len(texts))
	for i, text := range texts {
		number, of, some := strings.Cut(text, "=")
		no, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
		if err != nil || no < 1 {
			return nil, usagef("--line takes a line number, or LINE=AMOUNT such as \"1=10.00 USD\", not %q", text)
		}
		out[i].Line = int32(no)
		if some {
			m, err := amount("line", of)
			if err != nil {
				return nil, err
			}
			out[i].Net = &m
		}
	}
	return &out, nil
}

func (a *app) invoiceCancel() *cobra.Command {
	return a.takeBack("cancel", "Take an invoice back as a whole (operators)",
		func(ctx context.Context, sdk *client.Client, owner, invoice string, in client.InvoiceCancel) error {
			got, err := sdk.Admin().CancelInvoice(ctx, owner, invoice, in)
			if err != nil {
				return err
			}
			return one(a, got, []column[client.InvoiceCancelled]{
				{"NUMBER", func(r client.InvoiceCancelled) string { return or(r.Invoice.Number, same) }},
				{"STATUS", func(r client.InvoiceCancelled) string { return string(r.Invoice.Status) }},
				{"CREDIT NOTE", func(r client.InvoiceCancelled) string { return or(r.CreditNote, same) }},
			})
		})
}

func (a *app) invoiceReissue() *cobra.Command {
	return a.takeBack("reissue", "Cancel an invoice and make it again, as things are now (operators)",
		func(ctx context.Context, sdk *client.Client, owner, invoice string, in client.InvoiceCancel) error {
			got, err := sdk.Admin().ReissueInvoice(ctx, owner, invoice, in)
			if err != nil {
				return err
			}
			return one(a, got, []column[client.InvoiceReissued]{
				{"NUMBER", func(r client.InvoiceReissued) string { return or(r.Invoice.Number, same) }},
				{"INVOICE", func(r client.InvoiceReissued) string { return or(r.Invoice.Id, same) }},
				{"TOTAL", func(r client.InvoiceReissued) string { return money(r.Invoice.Total) }},
				{"CREDIT NOTE", func(r client.InvoiceReissued) string { return or(r.CreditNote, same) }},
			})
		})
}

func (a *app) takeBack(verb, short string, do func(context.Context, *client.Client, string, string, client.InvoiceCancel) error) *cobra.Command {
	var owner, reason, refund string
	c := a.ask(verb+" INVOICE --organization ORG --reason TEXT [--refund wallet|provider|none]", short, cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			choice, err := refundOf(refund)
			if err != nil {
				return err
			}
			if owner == "" || reason == "" {
				return usagef("%s needs --organization and --reason", verb)
			}
			return do(ctx, sdk, owner, args[0], client.InvoiceCancel{Reason: reason, Refund: choice})
		})
	ownerFlag(c, &owner, "whose invoice it is")
	c.Flags().StringVar(&reason, "reason", "", "why; it is printed on the credit note")
	c.Flags().StringVar(&refund, "refund", "", "of what was paid: wallet, provider or none")
	return c
}

func (a *app) invoiceWriteOff() *cobra.Command {
	var owner, reason, of string
	c := a.ask("write-off INVOICE --organization ORG --reason TEXT [--amount AMOUNT]", "Give up what an invoice is owed (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if owner == "" || reason == "" {
				return usagef("write-off needs --organization and --reason")
			}
			in := client.WriteOffCreate{Reason: reason}
			if of != "" {
				m, err := amount("amount", of)
				if err != nil {
					return err
				}
				in.Amount = &m
			}
			return a.show(sdk.Admin().WriteOff(ctx, owner, args[0], in))
		})
	ownerFlag(c, &owner, "whose invoice it is")
	c.Flags().StringVar(&reason, "reason", "", "why")
	c.Flags().StringVar(&of, "amount", "", "a part of what is owed (default: all)")
	return c
}
