package replay

import (
	"context"
	"fmt"
	"math/big"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

// Bill is the invoice of one organization, by its index.
type Bill struct {
	Organization int
	client.Invoice
}

// Invoices finalizes the month and returns the invoices in the order of the
// buyers, after checking that each adds up: lines to the total, and quantities
// to what its instances say was billed, to the microsecond.
func (r *Result) Invoices(ctx context.Context, s *stack.Stack) ([]Bill, error) {
	if _, err := s.CloseMonth(ctx); err != nil {
		return nil, err
	}
	invoices := make([]Bill, 0, len(r.Buyers))
	for i, b := range r.Buyers {
		c := s.Client(b.Key)
		summaries, err := client.Collect(c.Invoices(ctx, client.InvoiceFilter{}))
		if err != nil {
			return nil, fmt.Errorf("list the invoices of organization %d: %w", i+1, err)
		}
		billed, err := r.BilledMicros(i)
		if err != nil {
			return nil, err
		}
		if billed == 0 && len(summaries) == 0 {
			continue // nothing of it ever ran
		}
		if len(summaries) != 1 {
			return nil, fmt.Errorf("organization %d has %d invoices, want 1", i+1, len(summaries))
		}
		invoice, err := c.GetInvoice(ctx, summaries[0].Id)
		if err != nil {
			return nil, fmt.Errorf("get the invoice of organization %d: %w", i+1, err)
		}
		if err := CheckInvoice(invoice, billed); err != nil {
			return nil, fmt.Errorf("invoice of organization %d: %w", i+1, err)
		}
		invoices = append(invoices, Bill{i, invoice})
	}
	return invoices, nil
}

// CheckInvoice checks that the lines add up to the total, and their quantities
// to what was billed.
func CheckInvoice(invoice client.Invoice, billedMicros int64) error {
	lines, quantity := new(big.Rat), new(big.Rat)
	for _, line := range invoice.Lines {
		if err := add(lines, line.Amount.Amount); err != nil {
			return err
		}
		if err := add(quantity, line.Quantity.Value); err != nil {
			return err
		}
	}
	if err := same("subtotal", lines, invoice.Subtotal.Amount); err != nil {
		return err
	}
	for _, tax := range invoice.Taxes {
		if err := add(lines, tax.Amount.Amount); err != nil {
			return err
		}
	}
	if err := same("total", lines, invoice.Total.Amount); err != nil {
		return err
	}
	if want := new(big.Rat).SetInt64(billedMicros); quantity.Cmp(want) != 0 {
		return fmt.Errorf("quantities sum to %s µs, instances were billed for %s µs", quantity.RatString(), want.RatString())
	}
	return nil
}

func add(sum *big.Rat, decimal string) error {
	n, ok := new(big.Rat).SetString(decimal)
	if !ok {
		return fmt.Errorf("%q is not a decimal", decimal)
	}
	sum.Add(sum, n)
	return nil
}

func same(what string, sum *big.Rat, text string) error {
	n := new(big.Rat)
	if err := add(n, text); err != nil {
		return err
	}
	if n.Cmp(sum) != 0 {
		return fmt.Errorf("the lines sum to %s and the %s is %s", sum.FloatString(2), what, text)
	}
	return nil
}
