package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"github.com/tranche-cloud/tranche/openapi/wire"
)

// InvoiceFilter narrows a list; zero fields do not. Period is YYYY-MM.
type InvoiceFilter struct {
	Kind   InvoiceKind
	Status InvoiceStatus
	Period string
}

// Invoices lists the organization's documents, newest first.
func (c *Client) Invoices(ctx context.Context, f InvoiceFilter) iter.Seq2[InvoiceSummary, error] {
	return each[InvoiceSummary](func(token *string) (*http.Response, error) {
		return c.raw.ListInvoices(ctx, &wire.ListInvoicesParams{
			Kind: optional(f.Kind), Status: optional(f.Status), Period: optional(f.Period), PageSize: sized(), PageToken: token,
		})
	})
}

// GetInvoice reads one invoice with its lines.
func (c *Client) GetInvoice(ctx context.Context, invoice string) (Invoice, error) {
	return answer[Invoice](c.raw.GetInvoice(ctx, invoice))
}

// InvoiceFormat is a form of a document.
type InvoiceFormat string

// The forms. Original is the stored legal original, whatever its form; Subjects is CSV
// of the instances behind each line.
const (
	InvoicePDF      InvoiceFormat = "pdf"
	InvoiceHTML     InvoiceFormat = "html"
	InvoiceCSV      InvoiceFormat = "csv"
	InvoiceSubjects InvoiceFormat = "subjects"
	InvoiceJSON     InvoiceFormat = "json"
	InvoiceUBL      InvoiceFormat = "ubl"
	InvoiceOriginal InvoiceFormat = "original"
)

// DownloadInvoice reads a document as a file. UBL fails with document.not_en16931 where
// EN 16931 has no words for it; the original is not found until it is stored, seconds
// after the issue.
func (c *Client) DownloadInvoice(ctx context.Context, invoice string, format InvoiceFormat) ([]byte, error) {
	switch format {
	case InvoicePDF:
		return read(c.raw.GetInvoicePdf(ctx, invoice))
	case InvoiceHTML:
		return read(c.raw.GetInvoiceHtml(ctx, invoice))
	case InvoiceCSV:
		return read(c.raw.GetInvoiceCsv(ctx, invoice, &wire.GetInvoiceCsvParams{}))
	case InvoiceSubjects:
		table := wire.CsvTableSubjects
		return read(c.raw.GetInvoiceCsv(ctx, invoice, &wire.GetInvoiceCsvParams{Table: &table}))
	case InvoiceJSON:
		return read(c.raw.GetInvoiceJson(ctx, invoice))
	case InvoiceUBL:
		return read(c.raw.GetInvoiceUbl(ctx, invoice))
	case InvoiceOriginal:
		return read(c.raw.GetInvoiceOriginal(ctx, invoice))
	}
	return nil, fmt.Errorf("there is no invoice format %q", format)
}

// LineSegments lists what a line of an invoice is the sum of: the parts of segments, by
// instance and time.
func (c *Client) LineSegments(ctx context.Context, invoice, line string) iter.Seq2[LineSegment, error] {
	return each[LineSegment](func(token *string) (*http.Response, error) {
		return c.raw.ListLineSegments(ctx, invoice, line, &wire.ListLineSegmentsParams{PageSize: sized(), PageToken: token})
	})
}

// InvoicePayments lists the attempts to charge for an invoice, oldest first.
func (c *Client) InvoicePayments(ctx context.Context, invoice string) ([]PaymentAttempt, error) {
	got, err := answer[wire.PaymentAttempts](c.raw.ListInvoicePayments(ctx, invoice))
	return got.Items, err
}

// OrganizationUsage lists the metered quantities of all projects. It needs a key of the
// whole organization.
func (c *Client) OrganizationUsage(ctx context.Context, q UsageQuery) iter.Seq2[UsageItem, error] {
	p := wire.GetOrganizationUsageParams{Bucket: optional(q.Bucket), From: optional(q.From.UTC()), To: optional(q.To.UTC()), PageSize: sized()}
	if len(q.GroupBy) > 0 {
		p.GroupBy = &q.GroupBy
	}
	return each[UsageItem](func(token *string) (*http.Response, error) {
		p.PageToken = token
		return c.raw.GetOrganizationUsage(ctx, &p)
	})
}

// GetBillingProfile reads how the organization is invoiced.
func (c *Client) GetBillingProfile(ctx context.Context) (BillingProfile, error) {
	return answer[BillingProfile](c.raw.GetBillingProfile(ctx))
}

// PutBillingProfile replaces the profile; what is left out is empty.
func (c *Client) PutBillingProfile(ctx context.Context, in BillingProfilePut) (BillingProfile, error) {
	return answer[BillingProfile](c.raw.PutBillingProfile(ctx, in))
}

// GetWallet reads what the organization can spend, as of the last tick.
func (c *Client) GetWallet(ctx context.Context) (Wallet, error) {
	return answer[Wallet](c.raw.GetWallet(ctx))
}

// Grants lists the lots of the wallet, newest first.
func (c *Client) Grants(ctx context.Context) iter.Seq2[Grant, error] {
	return each[Grant](func(token *string) (*http.Response, error) {
		return c.raw.ListGrants(ctx, &wire.ListGrantsParams{PageSize: sized(), PageToken: token})
	})
}

// RedeemCoupon turns a code into a grant, once.
func (c *Client) RedeemCoupon(ctx context.Context, code string, opts ...CallOption) (Grant, error) {
	return answer[Grant](c.raw.RedeemCoupon(ctx, &wire.RedeemCouponParams{}, wire.CouponRedeem{Code: code}, editors(opts)...))
}

// PutAutoTopUp sets the standing order to pay in; the zero order ends it.
func (c *Client) PutAutoTopUp(ctx context.Context, in AutoTopUp) (AutoTopUp, error) {
	if !in.Order.IsSpecified() {
		in.Order.SetNull()
	}
	return answer[AutoTopUp](c.raw.PutAutoTopUp(ctx, in))
}

// CreateTopUp orders a payment into the wallet from the stored card.
func (c *Client) CreateTopUp(ctx context.Context, amount MoneyInput, opts ...CallOption) (PaymentAttempt, error) {
	return answer[PaymentAttempt](c.raw.CreateTopUp(ctx, &wire.CreateTopUpParams{}, wire.TopUpCreate{Amount: amount}, editors(opts)...))
}

// GetTopUp reads where a payment into the wallet stands, and where it is confirmed.
func (c *Client) GetTopUp(ctx context.Context, topUp string) (PaymentAttempt, error) {
	return answer[PaymentAttempt](c.raw.GetTopUp(ctx, topUp))
}

// CreateBudget watches what something costs in a calendar month.
func (c *Client) CreateBudget(ctx context.Context, in BudgetCreate, opts ...CallOption) (Budget, error) {
	return answer[Budget](c.raw.CreateBudget(ctx, &wire.CreateBudgetParams{}, in, editors(opts)...))
}

// Budgets lists all budgets.
func (c *Client) Budgets(ctx context.Context) ([]Budget, error) {
	got, err := answer[wire.BudgetList](c.raw.ListBudgets(ctx))
	return got.Items, err
}

// GetBudget reads one budget.
func (c *Client) GetBudget(ctx context.Context, budget string) (Budget, error) {
	return answer[Budget](c.raw.GetBudget(ctx, budget))
}

// UpdateBudget changes a budget; what is left out stays as it is.
func (c *Client) UpdateBudget(ctx context.Context, budget string, in BudgetPatch, opts ...CallOption) (Budget, error) {
	return answer[Budget](c.raw.UpdateBudget(ctx, budget, &wire.UpdateBudgetParams{}, in, editors(opts)...))
}

// DeleteBudget ends a budget.
func (c *Client) DeleteBudget(ctx context.Context, budget string, opts ...CallOption) error {
	_, err := read(c.raw.DeleteBudget(ctx, budget, &wire.DeleteBudgetParams{}, editors(opts)...))
	return err
}

// CreateReservation reserves capacity; it is paid for until its end.
func (c *Client) CreateReservation(ctx context.Context, in ReservationCreate, opts ...CallOption) (Reservation, error) {
	return answer[Reservation](c.raw.CreateReservation(ctx, &wire.CreateReservationParams{}, in, editors(opts)...))
}

// Reservations lists reservations, newest first.
func (c *Client) Reservations(ctx context.Context) iter.Seq2[Reservation, error] {
	return each[Reservation](func(token *string) (*http.Response, error) {
		return c.raw.ListReservations(ctx, &wire.ListReservationsParams{PageSize: sized(), PageToken: token})
	})
}

// GetReservation reads one reservation.
func (c *Client) GetReservation(ctx context.Context, reservation string) (Reservation, error) {
	return answer[Reservation](c.raw.GetReservation(ctx, reservation))
}

// Contracts lists what was agreed with the organization, newest first.
func (c *Client) Contracts(ctx context.Context) iter.Seq2[Contract, error] {
	return each[Contract](func(token *string) (*http.Response, error) {
		return c.raw.ListContracts(ctx, &wire.ListContractsParams{PageSize: sized(), PageToken: token})
	})
}

// GetContract reads one contract.
func (c *Client) GetContract(ctx context.Context, contract string) (Contract, error) {
	return answer[Contract](c.raw.GetContract(ctx, contract))
}

// SpotPrices lists an offer's spot series from now on; it is empty where the offer has
// no spot price.
func (c *Client) SpotPrices(ctx context.Context, offer string) ([]SpotPrice, error) {
	got, err := answer[wire.SpotPrices](c.raw.ListSpotPrices(ctx, &wire.ListSpotPricesParams{Offer: offer}))
	return got.Items, err
}

// Payments lists the money that came in, newest first.
func (c *Client) Payments(ctx context.Context) iter.Seq2[Payment, error] {
	return each[Payment](func(token *string) (*http.Response, error) {
		return c.raw.ListPayments(ctx, &wire.ListPaymentsParams{PageSize: sized(), PageToken: token})
	})
}

// SetPaymentMethod says what is charged from now on: the provider's reference of a card
// that was given to the provider itself.
func (c *Client) SetPaymentMethod(ctx context.Context, method string) error {
	_, err := read(c.raw.SetPaymentMethod(ctx, wire.PaymentMethodPut{Method: method}))
	return err
}

// PriceRules reads what an offer costs the organization in each state of an instance.
func (c *Client) PriceRules(ctx context.Context, offer string, class PriorityClass) (PriceRules, error) {
	return answer[PriceRules](c.raw.GetPriceRules(ctx, &wire.GetPriceRulesParams{Offer: offer, PriorityClass: optional(class)}))
}

// PreviewPrice tells what a request would cost; nothing is held or locked by it.
func (c *Client) PreviewPrice(ctx context.Context, project string, in PricePreviewCreate, opts ...CallOption) (PricePreview, error) {
	return answer[PricePreview](c.raw.CreatePricePreview(ctx, project, &wire.CreatePricePreviewParams{}, in, editors(opts)...))
}

// ExportFocus reads the costs of a month, YYYY-MM, by FOCUS 1.2: format csv or parquet.
func (c *Client) ExportFocus(ctx context.Context, period, format string) ([]byte, error) {
	f := wire.ExportFormat(format)
	return read(c.raw.ExportFocus(ctx, &wire.ExportFocusParams{Period: period, Format: &f}))
}
