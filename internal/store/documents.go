package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// BillingProfile is an organization as a buyer.
type BillingProfile struct {
	Name     string // "": the organization's
	Address  []string
	Country  string
	Postcode string
	TaxID    tax.ID
	Status   tax.Status
	Locale   string // "": the issuer's
	Issuer   string
	EInvoice bool   // structured invoices are agreed
	Endpoint string // where they go, scheme:id
}

// Party is the buyer as printed.
func (p BillingProfile) Party() billing.Party {
	party := billing.Party{Name: p.Name, Address: p.Address, Country: p.Country, TaxID: string(p.TaxID)}
	if p.EInvoice {
		party.Endpoint = p.Endpoint
	}
	return party
}

// BillingProfile reads an organization as a buyer, with its name where it has no
// other, and its currency.
func (t *tx) BillingProfile(ctx context.Context, org id.Org) (BillingProfile, money.Currency, error) {
	r, err := t.q.BuyerOf(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return BillingProfile{}, money.Currency{}, mapError(err)
	}
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return BillingProfile{}, money.Currency{}, fmt.Errorf("reading organization %s: %w", org, err)
	}
	p := BillingProfile{
		Name: r.BillingName, Country: r.BillingCountry, Postcode: r.BillingPostcode, TaxID: tax.ID(r.TaxID),
		Status: tax.Status(r.TaxStatus), Locale: r.Locale, Issuer: r.Issuer, EInvoice: r.Einvoice, Endpoint: r.EinvoiceEndpoint,
	}
	if p.Name == "" {
		p.Name = r.Name
	}
	if r.BillingAddress != "" {
		p.Address = strings.Split(r.BillingAddress, "\n")
	}
	return p, currency, nil
}

// Buyer returns an organization as it is printed on documents, and its currency.
func (t *tx) Buyer(ctx context.Context, org id.Org) (billing.Party, money.Currency, error) {
	p, currency, err := t.BillingProfile(ctx, org)
	return p.Party(), currency, err
}

// SetBillingProfile writes an organization as a buyer. It fails with
// resource.not_found for an unknown organization and issuer.unknown.
func (t *SystemTx) SetBillingProfile(ctx context.Context, org id.Org, p BillingProfile) error {
	n, err := t.q.SetBillingProfile(ctx, t.raw, db.SetBillingProfileParams{
		BillingName: p.Name, BillingAddress: strings.Join(p.Address, "\n"), BillingCountry: p.Country, BillingPostcode: p.Postcode,
		TaxID: string(p.TaxID), TaxStatus: string(p.Status), Locale: p.Locale, Issuer: p.Issuer, Einvoice: p.EInvoice,
		EinvoiceEndpoint: p.Endpoint, OrgID: uuid.UUID(org),
	})
	if err == nil && n == 0 {
		return NotFound()
	}
	return mapError(err)
}

// TaxIDCheck is an answer about a tax id, and when it was given (business time).
type TaxIDCheck struct {
	Outcome      string // valid, invalid, unknown
	Source       string // who answered
	Consultation string // the number the answer has there
	At           time.Time
}

// InsertTaxIDCheck keeps an answer.
func (t *SystemTx) InsertTaxIDCheck(ctx context.Context, org id.Org, i tax.ID, c TaxIDCheck) (TaxIDCheck, error) {
	at, err := t.q.InsertTaxIDCheck(ctx, t.raw, db.InsertTaxIDCheckParams{
		OrgID: uuid.UUID(org), CheckID: uuid.New(), TaxID: string(i), Outcome: c.Outcome, Source: c.Source, Consultation: c.Consultation,
	})
	c.At = at.UTC()
	return c, mapError(err)
}

// TaxIDCheckAt returns the last answer about an id by an instant, the zero value for
// none.
func (t *tx) TaxIDCheckAt(ctx context.Context, org id.Org, i tax.ID, at time.Time) (TaxIDCheck, error) {
	r, err := t.q.TaxIDCheckAt(ctx, t.raw, db.TaxIDCheckAtParams{OrgID: uuid.UUID(org), TaxID: string(i), At: at})
	if errors.Is(err, pgx.ErrNoRows) {
		return TaxIDCheck{}, nil
	}
	return TaxIDCheck{Outcome: r.Outcome, Source: r.Source, Consultation: r.Consultation, At: r.CheckedAt.UTC()}, mapError(err)
}

// issuerRow is a version of an issuer as it is stored.
type issuerRow struct {
	LegalName    string           `json:"legal_name"`
	Address      []string         `json:"address"`
	Country      string           `json:"country"`
	TaxID        string           `json:"tax_id,omitempty"`
	TimeZone     string           `json:"time_zone"`
	Bank         bankRow          `json:"bank"`
	PaymentDays  int              `json:"payment_days"`
	Locale       string           `json:"locale"`
	TaxPoint     string           `json:"tax_point"`
	SmallAmounts map[string]int64 `json:"small_amounts,omitempty"` // minor units by currency
	Retention    int              `json:"retention_years"`
	Original     string           `json:"original"`
}

// IssuerAt returns the profile of an issuer in force at an instant; false for an
// issuer that has none yet, of which only slug and prefix are known. It fails with
// issuer.unknown.
func (t *tx) IssuerAt(ctx context.Context, slug string, at time.Time) (billing.Issuer, bool, error) {
	r, err := t.q.IssuerAt(ctx, t.raw, at, slug)
	if errors.Is(err, pgx.ErrNoRows) {
		return billing.Issuer{}, false, constraintFaults["organizations_issuer"]
	}
	if err != nil {
		return billing.Issuer{}, false, mapError(err)
	}
	i := billing.Issuer{Slug: r.Slug, Prefix: r.Prefix}
	if r.Profile == nil {
		return i, false, nil
	}
	var p issuerRow
	if err := json.Unmarshal(r.Profile, &p); err != nil {
		return billing.Issuer{}, false, fmt.Errorf("reading issuer %s: %w", slug, err)
	}
	i.EffectiveFrom, i.LegalName, i.Address, i.Country, i.TaxID = r.EffectiveFrom.UTC(), p.LegalName, p.Address, p.Country, p.TaxID
	i.TimeZone, i.Bank, i.PaymentDays, i.Locale = p.TimeZone, billing.Bank(p.Bank), p.PaymentDays, p.Locale
	i.TaxPoint, i.Retention, i.Original = billing.TaxPoint(p.TaxPoint), p.Retention, p.Original
	for code, minor := range p.SmallAmounts {
		c, err := money.ParseCurrency(code)
		if err != nil {
			return billing.Issuer{}, false, fmt.Errorf("reading issuer %s: %w", slug, err)
		}
		i.SmallAmounts = append(i.SmallAmounts, money.NewAmount(minor, c))
	}
	return i, true, nil
}

// IssuerSlugs lists all issuers by name.
func (t *tx) IssuerSlugs(ctx context.Context) ([]string, error) {
	slugs, err := t.q.ListIssuers(ctx, t.raw)
	return slugs, mapError(err)
}

// InsertIssuer writes a version of an issuer, and the issuer with its first. It fails
// with issuer.prefix_taken, and with state.conflict where a version starts at that
// instant.
func (t *SystemTx) InsertIssuer(ctx context.Context, i billing.Issuer, by string) error {
	p := issuerRow{
		LegalName: i.LegalName, Address: i.Address, Country: i.Country, TaxID: i.TaxID, TimeZone: i.TimeZone, Bank: bankRow(i.Bank),
		PaymentDays: i.PaymentDays, Locale: i.Locale, TaxPoint: string(i.TaxPoint), SmallAmounts: map[string]int64{},
		Retention: i.Retention, Original: i.Original,
	}
	for _, a := range i.SmallAmounts {
		p.SmallAmounts[a.Currency().Code()] = a.Minor()
	}
	profile, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding issuer %s: %w", i.Slug, err)
	}
	if err := t.q.InsertIssuer(ctx, t.raw, i.Slug, i.Prefix); err != nil {
		return mapError(err)
	}
	return mapError(t.q.InsertIssuerVersion(ctx, t.raw, db.InsertIssuerVersionParams{
		Issuer: i.Slug, EffectiveFrom: i.EffectiveFrom, Profile: profile, CreatedBy: by,
	}))
}

// TaxTable returns the newest tax table of an issuer, an empty one for none, and its
// version.
func (t *tx) TaxTable(ctx context.Context, issuer string) (tax.Table, int, error) {
	r, err := t.q.LatestTaxTable(ctx, t.raw, issuer)
	if errors.Is(err, pgx.ErrNoRows) {
		return tax.Table{}, 0, nil
	}
	if err != nil {
		return tax.Table{}, 0, mapError(err)
	}
	var table tax.Table
	if err := json.Unmarshal(r.Document, &table); err != nil {
		return tax.Table{}, 0, fmt.Errorf("reading the tax table of %s: %w", issuer, err)
	}
	return table, int(r.Version), nil
}

// InsertTaxTable writes the next version of an issuer's tax table.
func (t *SystemTx) InsertTaxTable(ctx context.Context, issuer string, table tax.Table, by string) (int, error) {
	document, err := json.Marshal(table)
	if err != nil {
		return 0, fmt.Errorf("encoding a tax table: %w", err)
	}
	n, err := t.q.InsertTaxTable(ctx, t.raw, db.InsertTaxTableParams{Issuer: issuer, Document: document, CreatedBy: by})
	return int(n), mapError(err)
}
