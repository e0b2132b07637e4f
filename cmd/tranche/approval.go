package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

var approvalColumns = []column[client.Approval]{
	{"ID", func(x client.Approval) string { return x.Id }},
	{"KIND", func(x client.Approval) string { return string(x.Kind) }},
	{"AMOUNT", func(x client.Approval) string { return or(x.Amount, money) }},
	{"STATE", func(x client.Approval) string { return string(x.State) }},
	{"REQUESTED BY", func(x client.Approval) string { return x.RequestedBy }},
	{"DECIDED BY", func(x client.Approval) string { return or(x.DecidedBy, same) }},
	{"EXPIRES", func(x client.Approval) string { return x.ExpiresAt.String() }},
	{"REQUEST", func(x client.Approval) string { return x.Request }},
}

var ruleColumns = []column[client.ApprovalRule]{
	{"KIND", func(r client.ApprovalRule) string { return string(r.Kind) }},
	{"ABOVE", func(r client.ApprovalRule) string { return or(r.Above, money) }},
	{"SET BY", func(r client.ApprovalRule) string { return r.UpdatedBy }},
	{"SET AT", func(r client.ApprovalRule) string { return r.UpdatedAt.String() }},
}

func (a *app) approval() *cobra.Command {
	c := &cobra.Command{Use: "approval", Aliases: []string{"approvals"}, Short: "What waits for a second operator (operators)"}
	c.AddCommand(
		a.ask("ls", "List requests, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := client.Collect(sdk.Admin().Approvals(ctx))
			if err != nil {
				return err
			}
			return list(a, all, approvalColumns)
		}),
		a.approvalVerb("get APPROVAL", "Show one request", func(ctx context.Context, sdk *client.Client, which string) (client.Approval, error) {
			return sdk.Admin().GetApproval(ctx, which)
		}),
		a.approvalVerb("approve APPROVAL", "Approve another operator's request, who then repeats it", func(ctx context.Context, sdk *client.Client, which string) (client.Approval, error) {
			return sdk.Admin().Approve(ctx, which)
		}),
		a.approvalVerb("reject APPROVAL", "Reject a request, or withdraw one's own", func(ctx context.Context, sdk *client.Client, which string) (client.Approval, error) {
			return sdk.Admin().Reject(ctx, which)
		}),
		a.ask("rules", "List what needs a second operator", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := sdk.Admin().ApprovalRules(ctx)
			if err != nil {
				return err
			}
			return list(a, all, ruleColumns)
		}),
		a.approvalRule(),
	)
	return c
}

func (a *app) approvalVerb(use, short string, do func(context.Context, *client.Client, string) (client.Approval, error)) *cobra.Command {
	return a.ask(use, short, cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		got, err := do(ctx, sdk, args[0])
		if err != nil {
			return err
		}
		return one(a, got, approvalColumns)
	})
}

func (a *app) approvalRule() *cobra.Command {
	var above string
	c := a.ask("rule KIND [--above AMOUNT]", "Ask for a second operator from now on", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			var limit *client.MoneyInput
			if above != "" {
				m, err := amount("above", above)
				if err != nil {
					return err
				}
				limit = &m
			}
			all, err := sdk.Admin().PutApprovalRule(ctx, client.ApprovalKind(args[0]), limit)
			if err != nil {
				return err
			}
			return list(a, all, ruleColumns)
		})
	c.Example = "  tranche approval rule credit_note --above \"100 USD\"\n  tranche approval rule tax_table"
	c.Flags().StringVar(&above, "above", "", "for credit_note, write_off and refund: what one operator may decide alone")
	return c
}
