package billing

import (
	"math/big"
	"time"

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
	Open    State = "open"    // finalized: numbered and immutable
	Carried State = "carried" // immutable, never issued: too small, a line of a later invoice has its net
)

// Action moves a document between states.
type Action string

// The actions.
const (
	Finalize  Action = "finalize"   // numbers a draft and makes it immutable
	CarryNext Action = "carry_next" // makes it immutable without a number
)

var transitions = map[State]map[Action]State{
	Draft: {Finalize: Open, CarryNext: Carried},
}

// Next returns the state after an action; false where the action is not allowed.
func Next(s State, a Action) (State, bool) {
	next, ok := transitions[s][a]
	return next, ok
}

// Bank is where a payment goes.
type Bank struct {
	Holder string
	IBAN   string
	BIC    string
	Name   string
}

// Party is the seller or the buyer as printed on a document.
type Party struct {
	Name     string
	Address  []string // lines
	Country  string   // ISO 3166-1 alpha-2, "" unknown
	TaxID    string
	Bank     *Bank  // of a seller, nil for none
	Endpoint string // of a buyer: where e-invoices go, scheme:id, "" none
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
	Tier          int    // 1… of a tiered price, 0 flat
	Variant       string // tells apart what the rest does not: a digest of terms, or a name
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
	TaxRatePPM   int64      // of the line\'s tax group, with Key.TaxCategory; parts per million
	Packages     int64      // whole packages charged, of a package price
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

// OutsideScope is the tax category of every line of an issuer without a tax table:
// services outside the scope of tax, rate 0.
const OutsideScope = "O"

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

// Refund is what happens with money that was paid on a document that a credit note
// takes back.
type Refund string

// The refunds; "" is no decision.
const (
	RefundWallet   Refund = "wallet"   // becomes prepaid balance
	RefundProvider Refund = "provider" // goes back the way it came
	RefundNone     Refund = "none"     // stays, unapplied, for later documents
)

// Invoice is a document of one organization for one period. Subtotal is the
// sum of the lines, Total adds the taxes; all are whole minor units.
type Invoice struct {
	ID             id.Invoice // zero in a preview
	Kind           Kind
	Issuer         string       // slug of the issuer profile
	Locale         string       // of captions: en, de, zh
	Corrects       *DocumentRef // of a credit note
	Replaces       *DocumentRef // of a re-issue
	Reason         string       // of a credit note
	Refund         Refund       // of a credit note
	TaxPoint       time.Time    // end of the service period, or receipt of an advance
	DueOn          time.Time    // a date, midnight UTC; zero until open
	Settlement     Settlement
	Original       *Original // nil until rendered
	Notes          []string  // legal mentions, in the document's locale
	Org            id.Org
	State          State
	Cancelled      bool   // taken back by a full credit note
	Number         string // "" until open
	Period         metering.Interval
	CloseNo        int // 0: usage in time; n: usage accepted after the n-th close
	Currency       money.Currency
	Seller         Party
	Buyer          Party
	Lines          []Line
	Taxes          []Tax
	Subtotal       money.Amount
	TaxTotal       money.Amount
	Total          money.Amount
	Due            money.Amount
	ContentVersion int // of the content that ContentHash is of; 0 means the newest
	ContentHash    [32]byte
	CreatedAt      time.Time
	FinalizedAt    time.Time // zero until open
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
