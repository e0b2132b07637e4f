package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

func (a *app) offers() *cobra.Command {
	c := &cobra.Command{Use: "offers", Aliases: []string{"offer"}, Short: "What can be bought"}
	c.AddCommand(&cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List offers with prices and availability", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Offers(c.Context()))
			if err != nil {
				return err
			}
			return list(a, all, []column[client.Offer]{
				{"ID", func(o client.Offer) string { return o.Id }},
				{"GPU", func(o client.Offer) string { return o.GpuModel }},
				{"MODE", func(o client.Offer) string { return string(o.Mode) }},
				{"MEMORY", func(o client.Offer) string { return fmt.Sprintf("%d MiB", o.MemoryMib) }},
				{"ISOLATION", func(o client.Offer) string { return string(o.Isolation.Gpu) + "/" + string(o.Isolation.Host) }},
				{"VCPU", func(o client.Offer) string { return fmt.Sprint(o.Vcpu) }},
				{"RAM", func(o client.Offer) string { return fmt.Sprintf("%d MiB", o.RamMib) }},
				{"PRICE/H", func(o client.Offer) string { return price(o.PricePerHour) }},
				{"AVAILABLE", func(o client.Offer) string { return fmt.Sprint(o.Available) }},
				{"SIMULATED", func(o client.Offer) string { return fmt.Sprint(o.Simulated) }},
			})
		},
	})
	return c
}

func (a *app) op() *cobra.Command {
	c := &cobra.Command{Use: "op", Short: "Long-running operations"}
	var timeout time.Duration
	wait := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait until an operation ends", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			waiting, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			op, err := sdk.WaitOperation(waiting, args[0])
			if err != nil && waiting.Err() != nil {
				return stillRunning{args[0], "tranche op wait"}
			}
			if err != nil {
				return err
			}
			return one(a, op, []column[client.Operation]{
				{"ID", func(o client.Operation) string { return o.Id }},
				{"KIND", func(o client.Operation) string { return o.Kind }},
				{"RESOURCE", func(o client.Operation) string { return o.Resource }},
				{"STATUS", func(o client.Operation) string { return string(o.Status) }},
			})
		},
	}
	wait.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait; the work goes on after it")
	c.AddCommand(wait)
	return c
}

func (a *app) usage() *cobra.Command {
	var project, from, to, bucket string
	var groupBy []string
	c := &cobra.Command{
		Use: "usage", Short: "Metered use with its exact price", Args: cobra.NoArgs,
		Example: "  tranche usage --from 2026-11-01T00:00:00Z --bucket day --group-by instance",
		RunE: func(c *cobra.Command, _ []string) error {
			q := client.UsageQuery{Bucket: client.Bucket(bucket)}
			for _, g := range groupBy {
				q.GroupBy = append(q.GroupBy, client.UsageGroup(g))
			}
			var err error
			if q.From, err = instant("from", from); err != nil {
				return err
			}
			if q.To, err = instant("to", to); err != nil {
				return err
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Usage(c.Context(), project, q))
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
	f := c.Flags()
	f.StringVar(&project, "project", client.OnlyProject, "project id; - is the key's only one")
	f.StringVar(&from, "from", "", "from this instant, RFC 3339 (default: start of the month)")
	f.StringVar(&to, "to", "", "before this instant, RFC 3339 (default: now)")
	f.StringVar(&bucket, "bucket", "day", "hour, day, month or none")
	f.StringSliceVar(&groupBy, "group-by", nil, "instance, sku, meter, region")
	return c
}

func instant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, usagef("--%s takes an instant such as 2026-11-01T00:00:00Z, not %q", flag, text)
	}
	return t, nil
}

func group(g map[string]string) string {
	text := ""
	for _, k := range []string{"instance", "sku", "meter", "region"} {
		if v, ok := g[k]; ok {
			text += " " + v
		}
	}
	if text == "" {
		return "-"
	}
	return text[1:]
}

func (a *app) invoice() *cobra.Command {
	c := &cobra.Command{Use: "invoice", Aliases: []string{"invoices"}, Short: "Invoices"}
	c.AddCommand(a.invoiceLs(), a.invoiceGet())
	return c
}

func (a *app) invoiceLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List invoices, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			all, err := client.Collect(sdk.Invoices(c.Context()))
			if err != nil {
				return err
			}
			return list(a, all, []column[client.InvoiceSummary]{
				{"ID", func(i client.InvoiceSummary) string { return i.Id }},
				{"NUMBER", func(i client.InvoiceSummary) string { return or(i.Number, same) }},
				{"STATUS", func(i client.InvoiceSummary) string { return string(i.Status) }},
				{"FROM", func(i client.InvoiceSummary) string { return i.Period.From.Format(time.DateOnly) }},
				{"TOTAL", func(i client.InvoiceSummary) string { return money(i.Total) }},
				{"DUE", func(i client.InvoiceSummary) string { return money(i.Due) }},
			})
		},
	}
}

func (a *app) invoiceGet() *cobra.Command {
	var html, preview bool
	c := &cobra.Command{
		Use: "get INVOICE | get --preview", Short: "Show an invoice, or what this month would cost", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if preview == (len(args) == 1) || (html && preview) {
				return usagef("get takes either an invoice id (and --html) or --preview")
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			if html {
				page, err := sdk.InvoiceHTML(c.Context(), args[0])
				if err == nil {
					_, err = a.out.Write(page)
				}
				return err
			}
			var inv client.Invoice
			if preview {
				inv, err = sdk.PreviewInvoice(c.Context(), "")
			} else {
				inv, err = sdk.GetInvoice(c.Context(), args[0])
			}
			if err != nil {
				return err
			}
			return a.printInvoice(inv)
		},
	}
	c.Flags().BoolVar(&html, "html", false, "the page for people, on standard output")
	c.Flags().BoolVar(&preview, "preview", false, "what the current month would cost if it ended now")
	return c
}

func (a *app) printInvoice(inv client.Invoice) error {
	if a.output == "json" {
		return document(a.out, inv)
	}
	fmt.Fprintf(a.out, "Invoice %s (%s)  %s – %s\n%s → %s\n\n", or(inv.Number, same), inv.Status,
		inv.Period.From.Format(time.DateOnly), inv.Period.To.Format(time.DateOnly), plain(inv.Seller.Name), plain(inv.Buyer.Name))
	if err := list(a, inv.Lines, []column[client.InvoiceLine]{
		{"DESCRIPTION", func(l client.InvoiceLine) string { return l.Description }},
		{"ISOLATION", func(l client.InvoiceLine) string { return string(l.Isolation.Gpu) + "/" + string(l.Isolation.Host) }},
		{"QUANTITY", func(l client.InvoiceLine) string { return l.Quantity.Value + " " + l.Quantity.Unit }},
		{"PRICE/H", func(l client.InvoiceLine) string { return price(l.UnitPrice) }},
		{"AMOUNT", func(l client.InvoiceLine) string { return money(l.Amount) }},
	}); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "\nSubtotal  %s\n", money(inv.Subtotal))
	for _, t := range inv.Taxes {
		fmt.Fprintf(a.out, "Tax %s %s  %s\n", t.Category, t.Rate, money(t.Amount))
	}
	fmt.Fprintf(a.out, "Total     %s\nDue       %s\n", money(inv.Total), money(inv.Due))
	if inv.Simulated {
		fmt.Fprintln(a.out, "\nSimulated hardware: usage of GPUs that do not exist.")
	}
	return nil
}
