package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

func (a *app) financeRevenue() *cobra.Command {
	return a.ask("revenue PERIOD", "Show what a month earned, and the margin of each GPU model", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			period, err := monthOf(args[0])
			if err != nil {
				return err
			}
			got, err := sdk.Admin().RevenueReport(ctx, period)
			if err != nil {
				return err
			}
			return a.showRevenue(got)
		})
}

func (a *app) showRevenue(r client.RevenueReport) error {
	if a.output == "json" {
		return document(a.out, r)
	}
	fmt.Fprintf(a.out, "%s until %s\n\n", r.Period, r.Until)
	if err := list(a, r.Rows, []column[wire.RevenueRow]{
		{"ORGANIZATION", func(x wire.RevenueRow) string { return x.OrganizationName }},
		{"COMPONENT", func(x wire.RevenueRow) string { return string(x.Component) }},
		{"SKU", func(x wire.RevenueRow) string { return or(x.Sku, same) }},
		{"METER", func(x wire.RevenueRow) string { return or(x.Meter, same) }},
		{"NET", func(x wire.RevenueRow) string { return money(x.Net) }},
		{"INVOICED", func(x wire.RevenueRow) string { return fmt.Sprint(!x.Accrued) }},
	}); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	if err := list(a, r.Totals, []column[wire.RevenueTotal]{
		{"INVOICED", func(x wire.RevenueTotal) string { return money(x.Invoiced) }},
		{"ACCRUED", func(x wire.RevenueTotal) string { return money(x.Accrued) }},
		{"POSTED", func(x wire.RevenueTotal) string { return money(x.Posted) }},
	}); err != nil || len(r.Margins) == 0 {
		return err
	}
	fmt.Fprintln(a.out)
	return list(a, r.Margins, []column[wire.ModelMargin]{
		{"GPU", func(x wire.ModelMargin) string { return x.GpuModel }},
		{"REVENUE", func(x wire.ModelMargin) string { return money(x.Revenue) }},
		{"COST/H", func(x wire.ModelMargin) string { return price(x.CostPerHour) }},
		{"COST", func(x wire.ModelMargin) string { return price(x.Cost) }},
		{"MARGIN", func(x wire.ModelMargin) string { return price(x.Margin) }},
		{"SOLD H", func(x wire.ModelMargin) string { return x.SoldGpuHours }},
		{"IDLE H", func(x wire.ModelMargin) string { return x.IdleGpuHours }},
		{"ESTIMATED", func(x wire.ModelMargin) string { return fmt.Sprint(x.Estimated) }},
	})
}

func (a *app) financeUtilisation() *cobra.Command {
	return a.ask("utilisation PERIOD", "Show what was sold of the GPUs there were", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			period, err := monthOf(args[0])
			if err != nil {
				return err
			}
			got, err := sdk.Admin().UtilisationReport(ctx, period)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return document(a.out, got)
			}
			return list(a, got.Rows, []column[wire.UtilisationRow]{
				{"GPU", func(r wire.UtilisationRow) string { return r.GpuModel }},
				{"MODE", func(r wire.UtilisationRow) string { return r.Mode }},
				{"HOST", func(r wire.UtilisationRow) string { return or(r.HostName, same) }},
				{"GPUS", func(r wire.UtilisationRow) string { return fmt.Sprint(r.Gpus) }},
				{"SOLD H", func(r wire.UtilisationRow) string { return r.SoldGpuHours }},
				{"SELLABLE H", func(r wire.UtilisationRow) string { return r.SellableGpuHours }},
				{"IDLE H", func(r wire.UtilisationRow) string { return r.IdleGpuHours }},
				{"OBSERVED H", func(r wire.UtilisationRow) string { return r.ObservedGpuHours }},
				{"ESTIMATED", func(r wire.UtilisationRow) string { return fmt.Sprint(r.Estimated) }},
			})
		})
}

func (a *app) financeGPUCost() *cobra.Command {
	var of, from string
	c := a.ask("gpu-cost MODEL --price PRICE [--from TIME]", "Say what an hour of a GPU model costs us", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			m, err := amount("price", of)
			if err != nil {
				return err
			}
			at, err := optionalInstant("from", from)
			if err != nil {
				return err
			}
			return sdk.Admin().SetGPUCost(ctx, client.GPUCostCreate{GpuModel: args[0], PricePerHour: m.Amount, Currency: m.Currency, From: at})
		})
	c.Example = "  tranche finance gpu-cost H200-141 --price \"1.10 USD\""
	c.Flags().StringVar(&of, "price", "", "an hour with its currency")
	c.Flags().StringVar(&from, "from", "", "from this instant, RFC 3339 (default: now)")
	return c
}

func (a *app) paymentCandidates() *cobra.Command {
	return a.ask("candidates LINE", "List the documents that a transfer may be for (operators)", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			all, err := sdk.Admin().StatementCandidates(ctx, args[0])
			if err != nil {
				return err
			}
			return list(a, all, []column[client.StatementCandidate]{
				{"ORGANIZATION", func(x client.StatementCandidate) string { return x.Organization }},
				{"NAME", func(x client.StatementCandidate) string { return x.OrganizationName }},
				{"INVOICE", func(x client.StatementCandidate) string { return x.Invoice }},
				{"NUMBER", func(x client.StatementCandidate) string { return x.Number }},
				{"DUE", func(x client.StatementCandidate) string { return money(x.Due) }},
				{"WRITTEN OFF", func(x client.StatementCandidate) string { return money(x.WrittenOff) }},
			})
		})
}

var dunningColumns = []column[client.DunningStep]{
	{"DAYS OVERDUE", func(s client.DunningStep) string { return fmt.Sprint(s.Days) }},
	{"ACTION", func(s client.DunningStep) string { return string(s.Action) }},
}

func (a *app) issuerDunning() *cobra.Command {
	var file string
	c := a.ask("dunning ISSUER [-f FILE]", "Show, or set, what is done about overdue invoices", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			var got client.DunningSchedule
			var err error
			if file == "" {
				got, err = sdk.Admin().GetDunningSchedule(ctx, args[0])
			} else {
				var in wire.DunningSchedulePut
				if in, err = described[wire.DunningSchedulePut](a, file); err == nil {
					got, err = sdk.Admin().PutDunningSchedule(ctx, args[0], in.Steps)
				}
			}
			if err != nil {
				return err
			}
			return list(a, got.Steps, dunningColumns)
		})
	fileFlag(c, &file)
	return c
}
