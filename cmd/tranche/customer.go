package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

var profileFields = []column[client.BillingProfile]{
	{"NAME", func(p client.BillingProfile) string { return p.Name }},
	{"ADDRESS", func(p client.BillingProfile) string { return strings.Join(p.Address, ", ") }},
	{"COUNTRY", func(p client.BillingProfile) string { return or(p.Country, same) }},
	{"POSTCODE", func(p client.BillingProfile) string { return or(p.Postcode, same) }},
	{"TAX ID", func(p client.BillingProfile) string { return or(p.TaxId, same) }},
	{"STATUS", func(p client.BillingProfile) string { return string(p.Status) }},
	{"ISSUER", func(p client.BillingProfile) string { return p.Issuer }},
	{"E-INVOICE", func(p client.BillingProfile) string { return fmt.Sprint(p.EInvoice) }},
}

func (a *app) customer() *cobra.Command {
	c := &cobra.Command{Use: "customer", Aliases: []string{"customers"}, Short: "How an organization is invoiced and pays (operators)"}
	c.AddCommand(
		a.ask("get ORG", "Show the billing profile of an organization", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			p, err := sdk.Admin().GetBillingProfile(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, p, profileFields)
		}),
		a.customerPut(),
		a.ask("wallet ORG", "Show what an organization can spend", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			w, err := sdk.Admin().GetWallet(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, w, walletFields)
		}),
		a.ask("mode ORG prepaid|postpaid", "Let an organization pay from its wallet, or by invoice", cobra.ExactArgs(2), func(ctx context.Context, sdk *client.Client, args []string) error {
			mode := client.MoneyMode(args[1])
			if !mode.Valid() {
				return usagef("the mode is prepaid or postpaid, not %q", args[1])
			}
			w, err := sdk.Admin().PutMoneyMode(ctx, args[0], mode)
			if err != nil {
				return err
			}
			return one(a, w, walletFields)
		}),
		a.customerGrant(), a.customerPrepay(),
		a.ask("grants ORG", "List grants and payments in of an organization, newest first", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			all, err := client.Collect(sdk.Admin().Grants(ctx, args[0]))
			if err != nil {
				return err
			}
			return list(a, all, grantColumns)
		}),
	)
	return c
}

func (a *app) customerPut() *cobra.Command {
	var file string
	c := a.ask("put ORG -f FILE", "Replace the billing profile of an organization", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		in, err := described[client.OrganizationBillingProfilePut](a, file)
		if err != nil {
			return err
		}
		p, err := sdk.Admin().PutBillingProfile(ctx, args[0], in)
		if err != nil {
			return err
		}
		return one(a, p, profileFields)
	})
	c.Long = "Replace the profile from a YAML or JSON file with the fields of the API: name, address, country, postcode, tax_id, status,\n" +
		"locale, e_invoice, endpoint and issuer. What is left out is empty; without issuer the seller stays."
	fileFlag(c, &file)
	return c
}

func (a *app) customerGrant() *cobra.Command {
	var in client.GrantCreate
	var of, expires string
	c := a.ask("grant ORG --name TEXT --amount AMOUNT [--expires TIME]", "Give an organization promotional money", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if in.Name == "" {
				return usagef("grant needs --name")
			}
			var err error
			if in.Amount, err = amount("amount", of); err != nil {
				return err
			}
			if in.ExpiresAt, err = optionalInstant("expires", expires); err != nil {
				return err
			}
			g, err := sdk.Admin().CreateGrant(ctx, args[0], in)
			if err != nil {
				return err
			}
			return one(a, g, grantColumns)
		})
	c.Flags().StringVar(&in.Name, "name", "", "what it is for")
	c.Flags().StringVar(&of, "amount", "", "how much, with its currency")
	c.Flags().StringVar(&expires, "expires", "", "at this instant, RFC 3339 (default: never)")
	return c
}

func (a *app) customerPrepay() *cobra.Command {
	var in client.PrepaymentCreate
	var of string
	c := a.ask("prepay ORG --amount AMOUNT --reference TEXT", "Record money paid in outside of any provider, once a reference", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			if in.Reference == "" {
				return usagef("prepay needs --reference, which makes it count once")
			}
			var err error
			if in.Amount, err = amount("amount", of); err != nil {
				return err
			}
			w, err := sdk.Admin().RecordPrepayment(ctx, args[0], in)
			if err != nil {
				return err
			}
			return one(a, w, walletFields)
		})
	c.Flags().StringVar(&of, "amount", "", "how much, with its currency")
	c.Flags().StringVar(&in.Reference, "reference", "", "of the transfer")
	return c
}

func (a *app) coupon() *cobra.Command {
	c := &cobra.Command{Use: "coupon", Aliases: []string{"coupons"}, Short: "Codes that give each organization a grant once (operators)"}
	c.AddCommand(a.couponCreate())
	return c
}

func (a *app) couponCreate() *cobra.Command {
	var in client.CouponCreate
	var of, until string
	var days int32
	c := a.ask("create CODE --name TEXT --amount AMOUNT --uses N", "Make a coupon", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		if in.Name == "" || in.MaxUses < 1 {
			return usagef("create needs --name and --uses")
		}
		var err error
		if in.Amount, err = amount("amount", of); err != nil {
			return err
		}
		if in.ValidUntil, err = optionalInstant("until", until); err != nil {
			return err
		}
		if days > 0 {
			in.GrantDays = &days
		}
		in.Code = args[0]
		got, err := sdk.Admin().CreateCoupon(ctx, in)
		if err != nil {
			return err
		}
		return one(a, got, []column[client.Coupon]{
			{"CODE", func(x client.Coupon) string { return x.Code }},
			{"NAME", func(x client.Coupon) string { return x.Name }},
			{"AMOUNT", func(x client.Coupon) string { return money(x.Amount) }},
			{"USES", func(x client.Coupon) string { return fmt.Sprint(x.MaxUses) }},
			{"UNTIL", func(x client.Coupon) string { return or(x.ValidUntil, client.Timestamp.String) }},
		})
	})
	c.Flags().StringVar(&in.Name, "name", "", "what it is for")
	c.Flags().StringVar(&of, "amount", "", "of each grant, with its currency")
	c.Flags().Int32Var(&in.MaxUses, "uses", 0, "how many organizations may redeem it")
	c.Flags().Int32Var(&days, "days", 0, "life of a grant (default: the API's)")
	c.Flags().StringVar(&until, "until", "", "redeemable before this instant, RFC 3339")
	return c
}
