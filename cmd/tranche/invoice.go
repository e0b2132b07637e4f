package main

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/client"
)

func (a *app) invoice() *cobra.Command {
	c := &cobra.Command{Use: "invoice", Aliases: []string{"invoices"}, Short: "Invoices and credit notes"}
	c.AddCommand(a.invoiceLs(), a.invoiceGet(), a.invoicePreview(), a.invoiceDownload(),
		a.invoiceCancel(), a.invoiceReissue(), a.invoiceWriteOff())
	return c
}

func (a *app) invoiceLs() *cobra.Command {
	var owner, kind, status, period string
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List invoices and credit notes, newest first", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			f := client.InvoiceFilter{Kind: client.InvoiceKind(kind), Status: client.InvoiceStatus(status), Period: period}
			found := sdk.Invoices(c.Context(), f)
			if owner != "" {
				found = sdk.Admin().Invoices(c.Context(), owner, f)
			}
			all, err := client.Collect(found)
			if err != nil {
				return err
			}
			return list(a, all, []column[client.InvoiceSummary]{
				{"ID", func(i client.InvoiceSummary) string { return i.Id }},
				{"NUMBER", func(i client.InvoiceSummary) string { return or(i.Number, same) }},
				{"KIND", func(i client.InvoiceSummary) string { return string(i.Kind) }},
				{"STATUS", func(i client.InvoiceSummary) string { return string(i.Status) }},
				{"FROM", func(i client.InvoiceSummary) string { return i.Period.From.Format(time.DateOnly) }},
				{"TOTAL", func(i client.InvoiceSummary) string { return money(i.Total) }},
				{"DUE", func(i client.InvoiceSummary) string { return money(i.Due) }},
				{"DUE ON", func(i client.InvoiceSummary) string { return or(i.DueOn, same) }},
			})
		},
	}
	ownerFlag(c, &owner, "of this organization (operators; default: one's own)")
	c.Flags().StringVar(&kind, "kind", "", "only usage, credit_note or advance")
	c.Flags().StringVar(&status, "status", "", "only open, paid, void or uncollectible")
	c.Flags().StringVar(&period, "period", "", "only of this month, YYYY-MM")
	return c
}

func (a *app) invoiceGet() *cobra.Command {
	var html, preview bool
	var owner, drill string
	c := &cobra.Command{
		Use: "get INVOICE [--drill LINE] | get --preview", Short: "Show an invoice, down to the seconds of its instances", Args: cobra.MaximumNArgs(1),
		Example: "  tranche invoice get inv_… --drill 1",
		RunE: func(c *cobra.Command, args []string) error {
			if preview == (len(args) == 1) || preview && (html || drill != "") || owner != "" && (preview || html || drill != "") {
				return usagef("get takes either an invoice id (and --html, --drill LINE or --organization) or --preview")
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			if owner != "" {
				return a.show(sdk.Admin().GetInvoice(c.Context(), owner, args[0]))
			}
			if html {
				return a.write(sdk.DownloadInvoice(c.Context(), args[0], client.InvoiceHTML))
			}
			if preview {
				return a.show(sdk.PreviewInvoice(c.Context(), ""))
			}
			inv, err := sdk.GetInvoice(c.Context(), args[0])
			if err != nil || drill == "" {
				return a.show(inv, err)
			}
			return a.drill(c.Context(), sdk, inv, drill)
		},
	}
	ownerFlag(c, &owner, "whose invoice it is (operators; default: one's own)")
	c.Flags().BoolVar(&html, "html", false, "the page for people, on standard output")
	c.Flags().BoolVar(&preview, "preview", false, "what the current month would cost if it ended now")
	c.Flags().StringVar(&drill, "drill", "", "show the instances and seconds that this line is the sum of")
	return c
}

func (a *app) invoicePreview() *cobra.Command {
	var period string
	c := &cobra.Command{
		Use: "preview", Short: "Show what a month would cost if it ended now", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			return a.show(sdk.PreviewInvoice(c.Context(), period))
		},
	}
	c.Flags().StringVar(&period, "period", "", "month, YYYY-MM (default: the running one)")
	return c
}

var invoiceFormats = []client.InvoiceFormat{
	client.InvoicePDF, client.InvoiceHTML, client.InvoiceCSV, client.InvoiceSubjects, client.InvoiceJSON, client.InvoiceUBL, client.InvoiceOriginal,
}

func (a *app) invoiceDownload() *cobra.Command {
	var owner, format, file string
	c := &cobra.Command{
		Use: "download INVOICE", Short: "Write a document as a file, to standard output or --file", Args: cobra.ExactArgs(1),
		Example: "  tranche invoice download inv_… --format pdf --file invoice.pdf",
		RunE: func(c *cobra.Command, args []string) error {
			if !slices.Contains(invoiceFormats, client.InvoiceFormat(format)) {
				return usagef("--format takes pdf, html, csv, subjects, json, ubl or original, not %q", format)
			}
			sdk, err := a.connect()
			if err != nil {
				return err
			}
			if owner == "" {
				body, err := sdk.DownloadInvoice(c.Context(), args[0], client.InvoiceFormat(format))
				return a.save(file, body, err)
			}
			if format != string(client.InvoicePDF) && format != string(client.InvoiceHTML) {
				return usagef("--format takes pdf or html with --organization, not %q", format)
			}
			body, err := sdk.Admin().DownloadInvoice(c.Context(), owner, args[0], client.InvoiceFormat(format))
			return a.save(file, body, err)
		},
	}
	ownerFlag(c, &owner, "whose invoice it is (operators; default: one's own)")
	c.Flags().StringVar(&format, "format", "pdf", "pdf, html, csv, subjects, json, ubl or original")
	c.Flags().StringVar(&file, "file", "", "write here (default: standard output)")
	return c
}

// write puts a file on standard output.
func (a *app) write(body []byte, err error) error {
	if err == nil {
		_, err = a.out.Write(body)
	}
	return err
}

func (a *app) show(inv client.Invoice, err error) error {
	if err != nil {
		return err
	}
	if a.output == "json" {
		return document(a.out, inv)
	}
	fmt.Fprintf(a.out, "%s %s (%s)  %s – %s\n%s → %s\n\n", title(inv), or(inv.Number, same), inv.Status,
		inv.Period.From.Format(time.DateOnly), inv.Period.To.Format(time.DateOnly), plain(inv.Seller.Name), plain(inv.Buyer.Name))
	for _, l := range [][2]string{{"Corrects", reference(inv)}, {"Reason", or(inv.Reason, same)}, {"Due on", or(inv.DueOn, same)}} {
		if l[1] != "-" {
			fmt.Fprintf(a.out, "%s: %s\n", l[0], plain(l[1]))
		}
	}
	if err := list(a, inv.Lines, lineColumns); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	printSums(a.out, inv)
	for _, note := range inv.Notes {
		fmt.Fprintln(a.out, plain(note))
	}
	if inv.Simulated {
		fmt.Fprintln(a.out, "\nSimulated hardware: usage of GPUs that do not exist.")
	}
	return nil
}

func title(inv client.Invoice) string {
	switch inv.Kind {
	case "credit_note":
		return "Credit note"
	case "advance":
		return "Advance invoice"
	default:
		return "Invoice"
	}
}

func reference(inv client.Invoice) string {
	if d, err := inv.Corrects.Get(); err == nil {
		return d.Number
	}
	return "-"
}

var lineColumns = []column[client.InvoiceLine]{
	{"LINE", func(l client.InvoiceLine) string { return or(l.Id, same) }},
	{"COMPONENT", func(l client.InvoiceLine) string { return string(l.Component) }},
	{"DESCRIPTION", func(l client.InvoiceLine) string { return l.Description }},
	{"ISOLATION", func(l client.InvoiceLine) string {
		if l.Isolation == nil {
			return "-"
		}
		return string(l.Isolation.Gpu) + "/" + string(l.Isolation.Host)
	}},
	{"QUANTITY", func(l client.InvoiceLine) string {
		if l.Quantity.Unit == "" {
			return "-"
		}
		return l.Quantity.Value + " " + l.Quantity.Unit
	}},
	{"PRICE", func(l client.InvoiceLine) string {
		unit := or(l.PricedUnit, same)
		if unit == "-" {
			return "-"
		}
		return price(l.UnitPrice) + "/" + unit
	}},
	{"LESS", func(l client.InvoiceLine) string {
		out := make([]string, len(l.Discounts))
		for i, d := range l.Discounts {
			out[i] = percent(d.Rate)
		}
		if len(out) == 0 {
			return "-"
		}
		return strings.Join(out, " × ")
	}},
	{"TAX", func(l client.InvoiceLine) string { return l.TaxCategory + " " + percent(l.TaxRate) }},
	{"AMOUNT", func(l client.InvoiceLine) string { return money(l.Amount) }},
}

// percent writes a decimal fraction as a percentage.
func percent(fraction string) string {
	r, ok := new(big.Rat).SetString(fraction)
	if !ok {
		return fraction
	}
	return decimal(r.Mul(r, big.NewRat(100, 1)), 4) + " %"
}

func printSums(out io.Writer, inv client.Invoice) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Subtotal\t%s\n", money(inv.Subtotal))
	for _, t := range inv.Taxes {
		fmt.Fprintf(w, "Tax %s %s of %s\t%s\n", t.Category, percent(t.Rate), money(t.Base), money(t.Amount))
	}
	fmt.Fprintf(w, "Total\t%s\n", money(inv.Total))
	for _, s := range []struct {
		name   string
		amount client.Money
	}{
		{"Prepaid", inv.Settlement.Prepaid}, {"Paid", inv.Settlement.Paid},
		{"Credited", inv.Settlement.Credited}, {"Written off", inv.Settlement.WrittenOff},
	} {
		if strings.Trim(s.amount.Amount, "-0.") != "" {
			fmt.Fprintf(w, "%s\t%s\n", s.name, money(s.amount))
		}
	}
	fmt.Fprintf(w, "Due\t%s\n", money(inv.Due))
	_ = w.Flush() // to the same stream as everything before
}

// drill shows what a line is the sum of.
func (a *app) drill(ctx context.Context, sdk *client.Client, inv client.Invoice, line string) error {
	at := slices.IndexFunc(inv.Lines, func(l client.InvoiceLine) bool { return or(l.Id, same) == line })
	if at < 0 {
		return usagef("the invoice has no line %q", line)
	}
	all, err := client.Collect(sdk.LineSegments(ctx, inv.Id.MustGet(), line))
	if err != nil {
		return err
	}
	if a.output == "json" {
		return document(a.out, all)
	}
	l := inv.Lines[at]
	fmt.Fprintf(a.out, "%s %s, line %s: %s\n\n", title(inv), or(inv.Number, same), line, plain(l.Description))
	if err := list(a, all, []column[client.LineSegment]{
		{"SUBJECT", func(s client.LineSegment) string { return s.Subject }},
		{"NAME", func(s client.LineSegment) string { return s.Name }},
		{"FROM", func(s client.LineSegment) string { return s.From.String() }},
		{"TO", func(s client.LineSegment) string { return s.To.String() }},
		{"SECONDS", func(s client.LineSegment) string { return seconds(s.To.Sub(s.From.Time)) }},
		{"UNITS", func(s client.LineSegment) string { return fmt.Sprint(s.Units) }},
		{"QUANTITY", func(s client.LineSegment) string { return s.Quantity.Value + " " + s.Quantity.Unit }},
	}); err != nil {
		return err
	}
	sum := new(big.Rat)
	for _, s := range all {
		if q, ok := new(big.Rat).SetString(s.Quantity.Value); ok {
			sum.Add(sum, q)
		}
	}
	fmt.Fprintf(a.out, "\nSum   %s %s\nLine  %s %s at %s = %s\n", decimal(sum, 12), l.Quantity.Unit,
		l.Quantity.Value, l.Quantity.Unit, price(l.UnitPrice), money(l.Amount))
	return nil
}

// seconds writes a duration with all of its microseconds.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%d.%06d", d/time.Second, d%time.Second/time.Microsecond)
}
