package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

var chargeColumns = []column[client.PriceRule]{
	{"STATE", func(r client.PriceRule) string { return string(r.State) }},
	{"METER", func(r client.PriceRule) string { return or(r.Meter, same) }},
	{"PRICE", func(r client.PriceRule) string {
		if p, err := r.Price.Get(); err == nil {
			return price(p) + "/" + or(r.PricedUnit, same)
		}
		return "free"
	}},
	{"AFTER DISCOUNTS", func(r client.PriceRule) string { return or(r.Net, price) }},
	{"SOURCE", func(r client.PriceRule) string {
		return or(r.Source, func(s wire.PriceSource) string { return string(s) })
	}},
	{"TIERS", func(r client.PriceRule) string {
		t, err := r.Tiers.Get()
		if err != nil {
			return "-"
		}
		return fmt.Sprintf("%s, %d steps", t.Kind, len(t.Steps))
	}},
	{"MINIMUM", func(r client.PriceRule) string { return positive(r.MinimumS, " s") }},
	{"CAP", func(r client.PriceRule) string { return positive(r.CapHours, " h a month") }},
}

func positive(n int32, unit string) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n, unit)
}

func (a *app) priceRules() *cobra.Command {
	var class string
	c := a.ask("rules OFFER", "Show what an offer costs in each state of an instance", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			got, err := sdk.PriceRules(ctx, args[0], client.PriorityClass(class))
			if err != nil {
				return err
			}
			if a.output == "json" {
				return document(a.out, got)
			}
			return list(a, got.Rules, chargeColumns)
		})
	c.Flags().StringVar(&class, "class", "", "standard, reserved or spot")
	return c
}

func (a *app) pricePreview() *cobra.Command {
	var project, hours, class string
	var instances int32
	c := a.ask("preview OFFER", "Show what running an offer would cost; nothing is held", cobra.ExactArgs(1),
		func(ctx context.Context, sdk *client.Client, args []string) error {
			in := client.PricePreviewCreate{Offer: &args[0], Instances: &instances, Hours: &hours}
			if class != "" {
				priority := client.PriorityClass(class)
				in.PriorityClass = &priority
			}
			got, err := sdk.PreviewPrice(ctx, project, in)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return document(a.out, got)
			}
			if err := list(a, got.Rules, chargeColumns); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "\n%d × %s hours: %s before tax (exactly %s)\n", got.Estimate.Instances, plain(got.Estimate.Hours),
				money(got.Estimate.Amount), price(got.Estimate.Exact))
			return nil
		})
	c.Flags().StringVar(&project, "project", client.OnlyProject, "project id; - is the key's only one")
	c.Flags().StringVar(&hours, "hours", "1", "for so many hours")
	c.Flags().Int32Var(&instances, "instances", 1, "so many instances")
	c.Flags().StringVar(&class, "class", "", "standard, reserved or spot")
	return c
}
