package main

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

// usageOptions select metered use.
type usageOptions struct {
	project, from, to, bucket string
	all                       bool
	groupBy                   []string
}

func (o *usageOptions) flags(c *cobra.Command, by string) {
	f := c.Flags()
	f.StringVar(&o.project, "project", client.OnlyProject, "project id; - is the key's only one")
	f.BoolVar(&o.all, "all-projects", false, "the whole organization")
	f.StringVar(&o.from, "from", "", "from this instant, RFC 3339 (default: start of the month)")
	f.StringVar(&o.to, "to", "", "before this instant, RFC 3339 (default: now)")
	f.StringSliceVar(&o.groupBy, by, nil, "instance, name, project, sku, meter, region, isolation, pricing, label:KEY")
}

func (a *app) collectUsage(c *cobra.Command, o usageOptions) ([]client.UsageItem, error) {
	q := client.UsageQuery{Bucket: client.Bucket(o.bucket), GroupBy: o.groupBy}
	if o.all && c.Flags().Changed("project") {
		return nil, usagef("--project and --all-projects exclude each other")
	}
	var err error
	if q.From, err = instant("from", o.from); err != nil {
		return nil, err
	}
	if q.To, err = instant("to", o.to); err != nil {
		return nil, err
	}
	sdk, err := a.connect()
	if err != nil {
		return nil, err
	}
	if o.all {
		return client.Collect(sdk.OrganizationUsage(c.Context(), q))
	}
	return client.Collect(sdk.Usage(c.Context(), o.project, q))
}

func (a *app) usage() *cobra.Command {
	var o usageOptions
	c := &cobra.Command{
		Use: "usage", Short: "Metered use with its exact price", Args: cobra.NoArgs,
		Example: "  tranche usage --from 2026-11-01T00:00:00Z --bucket day --group-by instance",
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.collectUsage(c, o)
			if err != nil {
				return err
			}
			return list(a, all, []column[client.UsageItem]{
				{"FROM", func(u client.UsageItem) string { return u.From.String() }},
				{"TO", func(u client.UsageItem) string { return u.To.String() }},
				{"GROUP", func(u client.UsageItem) string { return group(u.Group) }},
				{"QUANTITY", func(u client.UsageItem) string { return u.Quantity.Value + " " + u.Quantity.Unit }},
				{"EXACT", func(u client.UsageItem) string { return price(u.Exact) }},
			})
		},
	}
	o.flags(c, "group-by")
	c.Flags().StringVar(&o.bucket, "bucket", "day", "hour, day, month or none")
	return c
}

func (a *app) cost() *cobra.Command {
	o := usageOptions{bucket: "none"}
	c := &cobra.Command{
		Use: "cost", Short: "What use came to, exactly, before the rounding of an invoice", Args: cobra.NoArgs,
		Example: "  tranche cost --by instance,sku\n  tranche cost --all-projects --by project",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(o.groupBy) == 0 {
				o.groupBy = []string{"instance"}
			}
			all, err := a.collectUsage(c, o)
			if err != nil {
				return err
			}
			if err := list(a, all, []column[client.UsageItem]{
				{strings.ToUpper(strings.Join(o.groupBy, " ")), func(u client.UsageItem) string { return group(u.Group) }},
				{"QUANTITY", func(u client.UsageItem) string { return u.Quantity.Value + " " + u.Quantity.Unit }},
				{"COST", func(u client.UsageItem) string { return price(u.Exact) }},
			}); err != nil || a.output == "json" {
				return err
			}
			for _, total := range totals(all) {
				fmt.Fprintln(a.out, "Total", total)
			}
			return nil
		},
	}
	o.flags(c, "by")
	return c
}

// totals sums exact amounts, one a currency.
func totals(items []client.UsageItem) []string {
	sums := map[string]*big.Rat{}
	for _, u := range items {
		amount, ok := new(big.Rat).SetString(u.Exact.Amount)
		if !ok {
			continue
		}
		if sums[u.Exact.Currency] == nil {
			sums[u.Exact.Currency] = new(big.Rat)
		}
		sums[u.Exact.Currency].Add(sums[u.Exact.Currency], amount)
	}
	out := make([]string, 0, len(sums))
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, decimal(sums[currency], 12)+" "+currency)
	}
	return out
}

// decimal writes a number with at most so many decimals, without trailing zeros.
func decimal(r *big.Rat, places int) string {
	text := r.FloatString(places)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// group writes the values of a group in the order of their names.
func group(g map[string]string) string {
	if len(g) == 0 {
		return "-"
	}
	values := make([]string, 0, len(g))
	for _, k := range slices.Sorted(maps.Keys(g)) {
		value := g[k]
		if value == "" {
			value = "-"
		}
		values = append(values, value)
	}
	return strings.Join(values, " ")
}
