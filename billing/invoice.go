package billing

import (
	"fmt"
	"math/big"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// State is where a document stands. What is paid, credited or written off is
// derived from postings and is no state.
type State string

// The states.
const (
	Preview State = "preview" // never stored
	Draft   State = "draft"
	Open    State = "open" // finalized: numbered and immutable
)

// Action moves a document between states.
type Action string

// Finalize numbers a draft and makes it immutable.
const Finalize Action = "finalize"

var transitions = map[State]map[Action]State{
	Draft: {Finalize: Open},
}

// Next returns the state after an action; false where the action is not allowed.
func Next(s State, a Action) (State, bool) {
	next, ok := transitions[s][a]
	return next, ok
}

// Party is the seller or the buyer as printed on a document.
type Party struct {
	Name    string
	Address []string // lines
	Country string   // ISO 3166-1 alpha-2, "" unknown
	TaxID   string
}

// LineKey is the identity of a line within an invoice: usage with equal keys is
// one line and is rounded once.
type LineKey struct {
	Component     Component
	Reference     string // what the line refers to: a reservation, contract, grant or start, "" none
	Project       id.Project
	Meter         metering.Meter
	SKU           [16]byte
	IsolationGPU  string
	IsolationHost string
	Pricing       PricingKind
	PriceVersion  id.PriceVersion
	Tier          int
	TaxCategory   string
}

// Line is one rounding: Amount is Exact rounded half away from zero, Exact is
// quantity × unit price × Π(1 − discount) / divisor.
type Line struct {
	No           int // 1… in the order of the document
	Key          LineKey
	SKUCode      string
	Description  string
	ProjectName  string
	Quantity     *big.Int
	QuantityUnit string // of Quantity, gpu_us
	PricedUnit   string // of UnitPrice, GPU-hour
	Divisor      int64
	UnitPrice    money.Price
	Discounts    []Discount // inside Exact
	Exact        money.Exact
	Amount       money.Amount
	Simulated    bool // some of it ran on simulated hardware
	Subjects     []Share
	During       metering.Interval // from the first instant of the line's usage to the last
	Corrects     *LineRef          // of a credit note or adjustment: the line it changes
}

// LineRef names a line of a document.
type LineRef struct {
	Invoice id.Invoice
	Number  string
	No      int
}

// Share is the part of a line that one subject used. Shares of a line sum to its
// quantity and, by largest remainder, to its amount.
type Share struct {
	Subject  metering.Subject
	Name     string
	Quantity *big.Int
	Segments int64
	Amount   money.Amount
	Hash     [32]byte // over the segments
}

// Tax is one group of lines with one category and rate.
type Tax struct {
	Category string // EN 16931: S, AE, O, E, Z
	RatePPM  int64  // parts per million of Base
	Base     money.Amount
	Amount   money.Amount
	Note     string
}

// OutsideScope is the tax category of every line as long as no tax table exists:
// services outside the scope of tax, rate 0.
const OutsideScope = "O"

const noTaxTable = "No tax was computed: the issuer has no tax table."

// Kind is what a document is.
type Kind string

// The kinds of documents; each has number series of its own.
const (
	UsageInvoice   Kind = "usage"
	CreditNote     Kind = "credit_note" // amounts are negative
	AdvanceInvoice Kind = "advance"     // for a prepayment whose tax point is its receipt
)

// DocumentRef names a document that another one refers to.
type DocumentRef struct {
	ID     id.Invoice
	Number string
	Issued time.Time
}

// Settlement is what happened to the total of an open document, derived from
// postings: Due = Total − Prepaid − Paid − Credited − WrittenOff.
type Settlement struct {
	Prepaid    money.Amount // from the wallet, at finalize
	Paid       money.Amount // net of refunds and chargebacks
	Credited   money.Amount // by credit notes, positive
	WrittenOff money.Amount
}

// Original is the stored legal original of a document.
type Original struct {
	MediaType string // application/pdf, or application/xml for UBL
	SHA256    [32]byte
	Size      int64 // bytes
}

// Invoice is a document of one organization for one period. Subtotal is the
// sum of the lines, Total adds the taxes; all are whole minor units.
type Invoice struct {
	ID          id.Invoice // zero in a preview
	Kind        Kind
	Issuer      string       // slug of the issuer profile
	Locale      string       // of captions: en, de, zh
	Corrects    *DocumentRef // of a credit note
	Replaces    *DocumentRef // of a re-issue
	TaxPoint    time.Time    // end of the service period, or receipt of an advance
	DueOn       time.Time    // a date, zero until open
	Settlement  Settlement
	Original    *Original // nil until rendered
	Notes       []string  // legal mentions, in the document's locale
	Org         id.Org
	State       State
	Number      string // "" until open
	Period      metering.Interval
	CloseNo     int
	Currency    money.Currency
	Seller      Party
	Buyer       Party
	Lines       []Line
	Taxes       []Tax
	Subtotal    money.Amount
	TaxTotal    money.Amount
	Total       money.Amount
	Due         money.Amount
	ContentHash [32]byte
	CreatedAt   time.Time
	FinalizedAt time.Time // zero until open
}

// Simulated reports whether a line ran on simulated hardware.
func (v Invoice) Simulated() bool {
	for _, l := range v.Lines {
		if l.Simulated {
			return true
		}
	}
	return false
}

// Compose fills taxes, sums and the content hash of an invoice from its lines and
// parties. It fails with money.ErrRange or money.ErrMismatch.
func (v Invoice) Compose() (Invoice, error) {
	v.Taxes = nil
	sub := money.NewAmount(0, v.Currency)
	bases := map[string]money.Amount{}
	var order []string
	for _, l := range v.Lines {
		var err error
		if sub, err = sub.Add(l.Amount); err != nil {
			return Invoice{}, fmt.Errorf("summing line %d: %w", l.No, err)
		}
		c := l.Key.TaxCategory
		if _, seen := bases[c]; !seen {
			bases[c] = money.NewAmount(0, v.Currency)
			order = append(order, c)
		}
		if bases[c], err = bases[c].Add(l.Amount); err != nil {
			return Invoice{}, fmt.Errorf("summing tax base %s: %w", c, err)
		}
	}
	if len(order) == 0 { // the tax line is printed on an empty document, too
		order, bases[OutsideScope] = []string{OutsideScope}, sub
	}
	for _, c := range order {
		v.Taxes = append(v.Taxes, Tax{Category: c, Base: bases[c], Amount: money.NewAmount(0, v.Currency), Note: noTaxTable})
	}
	v.Subtotal, v.TaxTotal = sub, money.NewAmount(0, v.Currency)
	v.Total, v.Due = sub, sub
	v.ContentHash = v.hash()
	return v, nil
}

// Finalized returns the draft with its number, open and immutable from at on. It
// fails with fault.Conflict unless it is a draft and with fault.Internal if the
// sums or the hash do not hold.
func (v Invoice) Finalized(number string, at time.Time) (Invoice, error) {
	next, ok := Next(v.State, Finalize)
	if !ok {
		return Invoice{}, fault.New(fault.Conflict, "state.conflict", fmt.Sprintf("An invoice in state %s cannot be finalized.", v.State))
	}
	if err := v.Check(); err != nil {
		return Invoice{}, err
	}
	v.State, v.Number, v.FinalizedAt = next, number, metering.Instant(at)
	return v, nil
}

// Check asserts that the document adds up: total = Σ lines + Σ taxes, shares sum
// to their line, each line is its exact value rounded once, and the content hash
// is the content's. It fails with fault.Internal, naming what does not hold.
func (v Invoice) Check() error {
	lines, taxes := money.NewAmount(0, v.Currency), money.NewAmount(0, v.Currency)
	for _, l := range v.Lines {
		if err := l.check(); err != nil {
			return err
		}
		sum, err := lines.Add(l.Amount)
		if err != nil {
			return fmt.Errorf("summing line %d: %w", l.No, err)
		}
		lines = sum
	}
	for _, t := range v.Taxes {
		sum, err := taxes.Add(t.Amount)
		if err != nil {
			return fmt.Errorf("summing tax %s: %w", t.Category, err)
		}
		taxes = sum
	}
	total, err := lines.Add(taxes)
	if err != nil {
		return fmt.Errorf("summing an invoice: %w", err)
	}
	if lines != v.Subtotal || taxes != v.TaxTotal || total != v.Total {
		return broken("the sums of invoice %s do not hold: lines %s, tax %s, total %s", v.ID, lines, taxes, v.Total)
	}
	if v.ContentHash != v.hash() {
		return broken("the content of invoice %s does not have its hash", v.ID)
	}
	return nil
}

func (l Line) check() error {
	rounded, err := l.Exact.Round()
	if err != nil {
		return fmt.Errorf("rounding line %d: %w", l.No, err)
	}
	if rounded != l.Amount {
		return broken("line %d is %s, its exact value %s", l.No, l.Amount, l.Exact)
	}
	quantity, amount := new(big.Int), money.NewAmount(0, l.Amount.Currency())
	for _, s := range l.Subjects {
		quantity.Add(quantity, s.Quantity)
		if amount, err = amount.Add(s.Amount); err != nil {
			return fmt.Errorf("summing the shares of line %d: %w", l.No, err)
		}
	}
	if quantity.Cmp(l.Quantity) != 0 || amount != l.Amount {
		return broken("the shares of line %d sum to %s and %s, the line is %s and %s", l.No, quantity, amount, l.Quantity, l.Amount)
	}
	return nil
}

func broken(format string, args ...any) error {
	return fault.New(fault.Internal, "internal", "An invoice does not add up.").Because(fmt.Errorf(format, args...))
}
