package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

var issuerColumns = []column[client.Issuer]{
	{"SLUG", func(i client.Issuer) string { return i.Slug }},
	{"LEGAL NAME", func(i client.Issuer) string { return i.LegalName }},
	{"COUNTRY", func(i client.Issuer) string { return i.Country }},
	{"TAX ID", func(i client.Issuer) string { return or(i.TaxId, same) }},
	{"PREFIX", func(i client.Issuer) string { return i.Prefix }},
	{"TIME ZONE", func(i client.Issuer) string { return i.TimeZone }},
	{"DUE IN", func(i client.Issuer) string { return fmt.Sprintf("%d days", i.PaymentDays) }},
	{"TAX POINT", func(i client.Issuer) string { return string(i.TaxPoint) }},
	{"ORIGINAL", func(i client.Issuer) string { return string(i.Original) }},
	{"FROM", func(i client.Issuer) string { return i.EffectiveFrom.String() }},
}

func (a *app) issuer() *cobra.Command {
	c := &cobra.Command{Use: "issuer", Aliases: []string{"issuers"}, Short: "Who sells (operators)"}
	c.AddCommand(
		a.ask("ls", "List issuers", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			all, err := sdk.Admin().Issuers(ctx)
			if err != nil {
				return err
			}
			return list(a, all, issuerColumns)
		}),
		a.ask("get ISSUER", "Show an issuer as in force", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			i, err := sdk.Admin().GetIssuer(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, i, issuerColumns)
		}),
		a.issuerPut(), a.issuerDunning(),
	)
	return c
}

func (a *app) issuerPut() *cobra.Command {
	var file string
	c := a.ask("put ISSUER -f FILE", "Write the next version of an issuer; the first one makes it", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			in, err := described[client.IssuerPut](a, file)
			if err != nil {
				return err
			}
			i, err := sdk.Admin().PutIssuer(ctx, args[0], in)
			if err != nil {
				return err
			}
			return one(a, i, issuerColumns)
		})
	c.Long = "Write a version of an issuer from a YAML or JSON file with the fields of the API: legal_name, address, country, prefix,\n" +
		"and tax_id, time_zone, bank, payment_days, locale, tax_point, small_amounts, retention_years, original, effective_from."
	fileFlag(c, &file)
	return c
}

func (a *app) tax() *cobra.Command {
	c := &cobra.Command{Use: "tax", Short: "Tax tables of issuers and tax ids of customers (operators)"}
	c.AddCommand(
		a.ask("get ISSUER", "Show the tax table of an issuer", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			t, err := sdk.Admin().GetTaxTable(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showTaxes(t)
		}),
		a.taxPut(),
		a.ask("starter", "Show a table to start from, for sellers in the EU; -o json is a file for put", cobra.NoArgs, func(ctx context.Context, sdk *client.Client, _ []string) error {
			t, err := sdk.Admin().StarterTaxTable(ctx)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return document(a.out, client.TaxTablePut{Rules: t.Rules, Rates: &t.Rates, Territories: &t.Territories})
			}
			return a.showTaxes(t)
		}),
		a.ask("check ORG", "Ask a register about an organization's tax id and keep the answer", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
			got, err := sdk.Admin().CheckTaxID(ctx, args[0])
			if err != nil {
				return err
			}
			return one(a, got, taxCheckColumns)
		}),
		a.taxRecord(),
	)
	return c
}

var taxCheckColumns = []column[client.TaxIDCheck]{
	{"OUTCOME", func(x client.TaxIDCheck) string { return string(x.Outcome) }},
	{"SOURCE", func(x client.TaxIDCheck) string { return x.Source }},
	{"CONSULTATION", func(x client.TaxIDCheck) string { return or(x.Consultation, same) }},
	{"CHECKED", func(x client.TaxIDCheck) string { return x.CheckedAt.String() }},
}

func (a *app) taxPut() *cobra.Command {
	var file string
	c := a.ask("put ISSUER -f FILE", "Write the next tax table of an issuer", cobra.ExactArgs(1), func(ctx context.Context, sdk *client.Client, args []string) error {
		in, err := described[client.TaxTablePut](a, file)
		if err != nil {
			return err
		}
		t, err := sdk.Admin().PutTaxTable(ctx, args[0], in)
		if err != nil {
			return err
		}
		return a.showTaxes(t)
	})
	fileFlag(c, &file)
	return c
}

func (a *app) taxRecord() *cobra.Command {
	var in client.TaxIDAnswer
	var outcome, consultation string
	c := a.ask("record ORG --outcome valid|invalid|unknown --source TEXT", "Keep an answer about a tax id that was got by hand", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			in.Outcome = wire.TaxIdOutcome(outcome)
			if !in.Outcome.Valid() || in.Source == "" {
				return usagef("record needs --outcome valid, invalid or unknown, and --source")
			}
			if consultation != "" {
				in.Consultation = &consultation
			}
			got, err := sdk.Admin().RecordTaxIDCheck(ctx, args[0], in)
			if err != nil {
				return err
			}
			return one(a, got, taxCheckColumns)
		})
	c.Flags().StringVar(&outcome, "outcome", "", "valid, invalid or unknown")
	c.Flags().StringVar(&in.Source, "source", "", "who answered")
	c.Flags().StringVar(&consultation, "consultation", "", "the number that the answer has there")
	return c
}

func (a *app) showTaxes(t client.TaxTable) error {
	if a.output == "json" {
		return document(a.out, t)
	}
	fmt.Fprintf(a.out, "Version %d: %d rules, %d rates, %d territories\n\n", t.Version, len(t.Rules), len(t.Rates), len(t.Territories))
	if err := list(a, t.Rules, []column[wire.TaxRule]{
		{"SELLER", func(r wire.TaxRule) string { return anyOf(r.Seller) }},
		{"BUYER", func(r wire.TaxRule) string { return anyOf(r.Buyer) }},
		{"STATUS", func(r wire.TaxRule) string { return anyOf(r.Status) }},
		{"TAX ID", func(r wire.TaxRule) string { return anyOf(r.Proof) }},
		{"CATEGORY", func(r wire.TaxRule) string { return string(r.Category) }},
		{"RATE OF", func(r wire.TaxRule) string {
			if r.RateOf == nil {
				return "-"
			}
			return string(*r.RateOf)
		}},
	}); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return list(a, t.Rates, []column[wire.TaxRate]{
		{"TERRITORY", func(r wire.TaxRate) string { return r.Territory }},
		{"RATE", func(r wire.TaxRate) string { return strings.TrimSpace(percent(r.Rate)) }},
	})
}

func anyOf[T ~string](v *T) string {
	if v == nil {
		return "any"
	}
	return string(*v)
}
