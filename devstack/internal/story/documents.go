package story

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/replay"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// seller says who sells to whom and what is taxed, as an example: the rates are a
// table to start from that an operator answers for.
func (t *teller) seller(ctx context.Context) (string, error) {
	admin := t.stack.Admin()
	taxID, germany, business := "DE123456789", "DE", wire.BuyerStatusBusiness
	_, err := admin.PutIssuer(ctx, "default", client.IssuerPut{
		LegalName: "Tranche Demo Cloud GmbH", Address: []string{"Beispielweg 1", "10115 Berlin"}, Country: germany, TaxId: &taxID, Prefix: "TR",
		Bank: &wire.BankAccount{Holder: "Tranche Demo Cloud GmbH", Iban: "DE02120300000000202051"},
	})
	if err != nil {
		return "", err
	}
	starter, err := admin.StarterTaxTable(ctx)
	if err != nil {
		return "", err
	}
	_, err = admin.PutTaxTable(ctx, "default", client.TaxTablePut{Rates: &starter.Rates, Rules: starter.Rules, Territories: &starter.Territories})
	if err != nil {
		return "", err
	}
	name, address := "Acme GmbH", []string{"Musterstraße 5", "80331 München"}
	_, err = admin.PutBillingProfile(ctx, t.buyer.ID, client.OrganizationBillingProfilePut{
		Name: &name, Address: &address, Country: &germany, Status: &business,
	})
	return "    Tranche Demo Cloud GmbH to Acme GmbH, taxes by the starter table\n", err
}

// apart takes every line of the invoice apart, down to the microseconds: the parts sum
// to their line, and over all lines to what each instance was billed for.
func (t *teller) apart(ctx context.Context) (string, error) {
	byInstance := map[string]*big.Int{}
	said := ""
	for _, line := range t.billed.Lines {
		number, err := line.Id.Get()
		if err != nil {
			return "", fmt.Errorf("a line has no number: %w", err)
		}
		segments, err := client.Collect(t.client.LineSegments(ctx, t.invoiceID, number))
		if err != nil {
			return "", err
		}
		sum := new(big.Int)
		for _, s := range segments {
			n, ok := new(big.Int).SetString(s.Quantity.Value, 10)
			if !ok || n.Int64() != s.To.Sub(s.From.Time).Microseconds()*int64(s.Units) {
				return "", fmt.Errorf("line %s: %s from %s to %s is not %s", number, s.Name, s.From, s.To, s.Quantity.Value)
			}
			sum.Add(sum, n)
			if byInstance[s.Subject] == nil {
				byInstance[s.Subject] = new(big.Int)
			}
			byInstance[s.Subject].Add(byInstance[s.Subject], n)
			said += fmt.Sprintf("    line %s  %-10s %s – %s  %s µs\n", number, s.Name,
				s.From.Format("Jan 2 15:04:05.000000"), s.To.Format("Jan 2 15:04:05.000000"), n)
		}
		if sum.String() != line.Quantity.Value {
			return "", fmt.Errorf("line %s has %s µs, its segments %s", number, line.Quantity.Value, sum)
		}
	}
	for _, i := range t.rented {
		want, err := replay.BilledMicros(i)
		if err != nil {
			return "", err
		}
		if got := byInstance[i.Id]; got == nil || got.Int64() != want {
			return "", fmt.Errorf("%s was billed for %d µs, the invoice has %v", i.Name, want, got)
		}
	}
	return said, nil
}

// papers writes the legal original and the page for people into the stack's folder.
func (t *teller) papers(ctx context.Context) (string, error) {
	stored, err := t.original(ctx)
	if err != nil {
		return "", err
	}
	number, err := t.billed.Number.Get()
	if err != nil {
		return "", fmt.Errorf("the invoice has no number: %w", err)
	}
	said := ""
	for _, format := range []client.InvoiceFormat{client.InvoiceOriginal, client.InvoiceHTML} {
		body, err := t.client.DownloadInvoice(ctx, t.invoiceID, format)
		if err != nil {
			return "", err
		}
		end := "html"
		if format == client.InvoiceOriginal {
			sum := sha256.Sum256(body)
			if end = "pdf"; hex.EncodeToString(sum[:]) != stored {
				return "", fmt.Errorf("the original has the hash %x, the invoice says %s", sum, stored)
			}
		}
		path := filepath.Join(t.stack.Dir, "invoice-"+number+"."+end)
		if err := os.WriteFile(path, body, 0o600); err != nil {
			return "", fmt.Errorf("write the invoice: %w", err)
		}
		said += fmt.Sprintf("    %s  %d bytes\n", path, len(body))
	}
	return said + "    SHA-256 of the original: " + stored + "\n", nil
}

// original waits until the legal original is stored, and returns its hash.
func (t *teller) original(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		v, err := t.client.GetInvoice(ctx, t.invoiceID)
		if err != nil {
			return "", fmt.Errorf("wait for the original: %w", err)
		}
		if original, err := v.Original.Get(); err == nil {
			return original.Sha256, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the original: %w", ctx.Err())
		}
	}
}

// table shows the invoice as the command line does: every amount of the document is there.
func (t *teller) table(ctx context.Context) (string, error) {
	text, err := t.cli(ctx, "invoice", "get", t.invoiceID, "-o", "table")
	if err != nil {
		return "", err
	}
	for _, line := range t.billed.Lines {
		if !strings.Contains(text, line.Amount.Amount) {
			return "", fmt.Errorf("the table lacks the %s of line %s", line.Amount.Amount, line.Description)
		}
	}
	if !strings.Contains(text, t.billed.Total.Amount) {
		return "", fmt.Errorf("the table lacks the total %s", t.billed.Total.Amount)
	}
	return indent(text), nil
}
