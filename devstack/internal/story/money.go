package story

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// preview shows the month so far. Instances still run, so its sums move.
func (t *teller) preview(ctx context.Context) (string, error) {
	invoice, err := t.client.PreviewInvoice(ctx, "")
	if err != nil {
		return "", err
	}
	if len(invoice.Lines) != len(t.rented) {
		return "", fmt.Errorf("the preview has %d lines, want one an offer: %d", len(invoice.Lines), len(t.rented))
	}
	return fmt.Sprintf("    %d lines, %s %s so far\n", len(invoice.Lines), invoice.Total.Amount, invoice.Total.Currency), nil
}

func (t *teller) usage(ctx context.Context) (string, error) {
	items, err := client.Collect(t.client.Usage(ctx, t.buyer.Project, client.UsageQuery{
		Bucket: wire.BucketNone, GroupBy: []client.UsageGroup{"sku"},
	}))
	if err != nil {
		return "", err
	}
	if len(items) == 0 {
		return "", fmt.Errorf("there is no usage")
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 4, 0, 2, ' ', 0)
	for _, i := range items {
		fmt.Fprintf(w, "    %s\t%s %s\t%s %s\n", i.Group["sku"], i.Quantity.Value, i.Quantity.Unit, i.Exact.Amount, i.Exact.Currency)
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return b.String(), nil
}

func (t *teller) invoice(ctx context.Context) (string, error) {
	var billed int64
	for _, i := range t.rented {
		n, err := replay.BilledMicros(i)
		if err != nil {
			return "", err
		}
		billed += n
	}
	if _, err := t.stack.CloseMonth(ctx); err != nil {
		return "", err
	}
	summaries, err := client.Collect(t.client.Invoices(ctx, client.InvoiceFilter{}))
	if err != nil {
		return "", err
	}
	if len(summaries) != 1 {
		return "", fmt.Errorf("there are %d invoices, want 1", len(summaries))
	}
	invoice, err := t.client.GetInvoice(ctx, summaries[0].Id)
	if err != nil {
		return "", err
	}
	if err := replay.CheckInvoice(invoice, billed); err != nil {
		return "", err
	}
	t.invoiceID, t.billed = summaries[0].Id, invoice
	return indent(Print(invoice)), nil
}

// Print is an invoice as text.
func Print(i client.Invoice) string {
	var b strings.Builder
	number, err := i.Number.Get()
	if err != nil {
		number = "(" + string(i.Status) + ")"
	}
	fmt.Fprintf(&b, "\nINVOICE %s\nfrom %s to %s\n%s to %s\n\n", number, i.Seller.Name, i.Buyer.Name,
		i.Period.From.Format("2006-01-02"), i.Period.To.Format("2006-01-02"))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, l := range i.Lines {
		fmt.Fprintf(w, "%s\t%s %s\tat %s\t%s\t%s\t\n", l.Sku, l.Quantity.Value, l.Quantity.Unit, l.UnitPrice.Amount,
			l.Amount.Amount, l.Amount.Currency)
	}
	fmt.Fprintf(w, "subtotal\t\t\t%s\t%s\t\n", i.Subtotal.Amount, i.Subtotal.Currency)
	for _, tax := range i.Taxes {
		fmt.Fprintf(w, "tax %s\t\t%s\t%s\t%s\t\n", tax.Category, tax.Rate, tax.Amount.Amount, tax.Amount.Currency)
	}
	fmt.Fprintf(w, "total\t\t\t%s\t%s\t\n", i.Total.Amount, i.Total.Currency)
	w.Flush() // a builder takes everything
	if i.Simulated {
		b.WriteString("\nSimulated hardware: usage of GPUs that do not exist.\n")
	}
	b.WriteString("\n")
	return b.String()
}

func indent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return "    " + strings.Join(lines, "\n    ") + "\n"
}
