package main

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

var contractColumns = []column[client.Contract]{
	{"ID", func(x client.Contract) string { return x.Id }},
	{"NAME", func(x client.Contract) string { return x.Name }},
	{"CURRENCY", func(x client.Contract) string { return x.Currency }},
	{"FROM", func(x client.Contract) string { return x.From.String() }},
	{"TO", func(x client.Contract) string { return or(x.To, client.Timestamp.String) }},
	{"CANCELLED", func(x client.Contract) string { return or(x.CancelledAt, client.Timestamp.String) }},
	{"TERMS", func(x client.Contract) string {
		return fmt.Sprintf("%d prices, %d discounts, %d free, %d minimums, %d caps, %d commitments, %d fixed", len(x.Prices), len(x.Discounts),
			len(x.FreeQuotas), len(x.Minimums), len(x.Caps), len(x.Commitments), len(x.FixedDiscounts))
	}},
}

func (a *app) contract() *cobra.Command {
	c := &cobra.Command{Use: "contract", Aliases: []string{"contracts"}, Short: "What was agreed beside the price list"}
	c.AddCommand(a.contractLs(), a.contractGet(), a.contractCreate(), a.contractEnd())
	return c
}

func (a *app) contractLs() *cobra.Command {
	var owner string
	c := a.ask("ls", "List contracts, newest first", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		var found iter.Seq2[client.Contract, error]
		if owner == "" {
			found = sdk.Contracts(ctx)
		} else {
			found = sdk.Admin().Contracts(ctx, owner)
		}
		all, err := client.Collect(found)
		if err != nil {
			return err
		}
		return list(a, all, contractColumns)
	})
	ownerFlag(c, &owner, "of this organization (operators; default: one's own)")
	return c
}

func (a *app) contractGet() *cobra.Command {
	var owner string
	c := a.ask("get CONTRACT", "Show one contract; -o json has all of its terms", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		var got client.Contract
		var err error
		if owner == "" {
			got, err = sdk.GetContract(ctx, args[0])
		} else {
			got, err = sdk.Admin().GetContract(ctx, owner, args[0])
		}
		if err != nil {
			return err
		}
		return one(a, got, contractColumns)
	})
	ownerFlag(c, &owner, "of this organization (operators; default: one's own)")
	return c
}

func (a *app) contractCreate() *cobra.Command {
	var owner, file string
	c := a.ask("create --organization ORG -f FILE", "Agree a contract (operators)", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
		if owner == "" {
			return usagef("create needs --organization")
		}
		in, err := described[client.ContractCreate](a, file)
		if err != nil {
			return err
		}
		got, err := sdk.Admin().CreateContract(ctx, owner, in)
		if err != nil {
			return err
		}
		return one(a, got, contractColumns)
	})
	c.Long = "Agree a contract from a YAML or JSON file with the fields of the API: name, currency, from, to, prices, discounts,\n" +
		"free_quotas, minimums, caps, commitments and fixed_discounts."
	ownerFlag(c, &owner, "with whom")
	fileFlag(c, &file)
	return c
}

func (a *app) contractEnd() *cobra.Command {
	var owner, at string
	c := a.ask("end CONTRACT --organization ORG [--at TIME]", "End a contract; one that has not begun is cancelled (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if owner == "" {
				return usagef("end needs --organization")
			}
			when, err := optionalInstant("at", at)
			if err != nil {
				return err
			}
			got, err := sdk.Admin().EndContract(ctx, owner, args[0], client.TermEnd{At: when})
			if err != nil {
				return err
			}
			return one(a, got, contractColumns)
		})
	ownerFlag(c, &owner, "whose contract it is")
	c.Flags().StringVar(&at, "at", "", "at this instant, RFC 3339 (default: now)")
	return c
}
