package store

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// TermKind says what a term of a contract is.
type TermKind string

// The kinds of terms.
const (
	PriceTerm         TermKind = "price"
	DiscountTerm      TermKind = "discount"
	FreeQuotaTerm     TermKind = "free_quota"
	MinimumTerm       TermKind = "minimum"
	CapTerm           TermKind = "cap"
	CommitmentTerm    TermKind = "commitment"
	FixedDiscountTerm TermKind = "fixed_discount"
)

// Contract is what an organization agreed beside its price book, for as long as
// During. Instants are business time.
type Contract struct {
	ID          id.Contract
	Org         id.Org
	Name        string
	Currency    money.Currency
	During      metering.Interval
	CreatedBy   string
	CreatedAt   time.Time
	CancelledAt *time.Time // before it began; nil: never
	EndedBy     string     // who ended or cancelled it early
	Terms       []ContractTerm
}

// ContractTerm is one term; Kind says which of the values it has.
type ContractTerm struct {
	Kind     TermKind
	Name     string
	Offer    string // as the scope was named
	Scope    billing.Scope
	Price    money.Price // of a tiered price: of its first unit
	Tiers    billing.Tiers
	PPM      int64        // of a discount
	Quantity *big.Int     // of a free quota, in units of the meter
	Micros   int64        // of a minimum
	Hours    int64        // of a cap by slot
	Amount   money.Amount // of a cap without Hours, a commitment, a fixed discount
}

// BillingTerms is the contract as rating reads it.
func (c Contract) BillingTerms() billing.Terms {
	var out billing.Terms
	for _, t := range c.Terms {
		addTerm(&out, boundTerm{ContractTerm: t, contract: c.ID, during: c.During})
	}
	return out
}

// InsertContract writes a contract with its terms. It fails with state.conflict
// if the organization has a term of that kind and scope at the same time.
func (t *SystemTx) InsertContract(ctx context.Context, c Contract) error {
	err := t.q.InsertContract(ctx, t.raw, db.InsertContractParams{
		OrgID: uuid.UUID(c.Org), ContractID: uuid.UUID(c.ID), Name: c.Name, Currency: c.Currency.Code(),
		FromAt: c.During.From, ToAt: timeOrNull(c.During.To), CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt,
	})
	if err != nil {
		return mapError(err)
	}
	for i, term := range c.Terms {
		if err := t.insertTerm(ctx, c, int32(i+1), term); err != nil {
			return mapError(err)
		}
	}
	return nil
}

func (t *SystemTx) insertTerm(ctx context.Context, c Contract, no int32, term ContractTerm) error {
	row := db.InsertContractTermParams{
		OrgID: uuid.UUID(c.Org), ContractID: uuid.UUID(c.ID), No: no, Kind: string(term.Kind), Name: term.Name, Offer: term.Offer,
		ScopeMeter: string(term.Scope.Meter), ScopeFamily: term.Scope.Family, Tiering: string(term.Tiers.Kind),
		PackageSize: ratText(term.Tiers.PackageSize), Ppm: positive(term.PPM), Micros: positive(term.Micros), Hours: positive(term.Hours),
		AmountMinor: positive(term.Amount.Minor()),
	}
	if term.Scope.SKU != ([16]byte{}) {
		sku := uuid.UUID(term.Scope.SKU)
		row.ScopeSku = &sku
	}
	if term.Kind == PriceTerm {
		row.Price = term.Price.Decimal()
	}
	if term.Quantity != nil {
		row.Quantity = term.Quantity.String()
	}
	if err := t.q.InsertContractTerm(ctx, t.raw, row); err != nil || len(term.Tiers.Steps) == 0 {
		return err
	}
	steps := db.InsertContractStepsParams{OrgID: uuid.UUID(c.Org), ContractID: uuid.UUID(c.ID), No: no}
	for i, s := range term.Tiers.Steps {
		steps.Steps = append(steps.Steps, int32(i+1))
		steps.UpTos = append(steps.UpTos, ratText(s.UpTo))
		steps.Amounts = append(steps.Amounts, s.Price.Decimal())
	}
	return t.q.InsertContractSteps(ctx, t.raw, steps)
}

// LockContract reads a contract and keeps others from ending it. It fails with
// resource.not_found.
func (t *SystemTx) LockContract(ctx context.Context, o id.Org, c id.Contract) (Contract, error) {
	if _, err := t.q.LockContract(ctx, t.raw, uuid.UUID(o), uuid.UUID(c)); err != nil {
		return Contract{}, mapError(err)
	}
	return t.Contract(ctx, o, c)
}

// EndContract ends a contract and its terms at an instant that is not past and
// comes before their end.
func (t *SystemTx) EndContract(ctx context.Context, o id.Org, c id.Contract, at time.Time, by string) error {
	err := t.q.EndContract(ctx, t.raw, db.EndContractParams{Until: at, EndedBy: by, OrgID: uuid.UUID(o), ContractID: uuid.UUID(c)})
	if err != nil {
		return mapError(err)
	}
	return mapError(t.q.EndContractTerms(ctx, t.raw, uuid.UUID(o), uuid.UUID(c)))
}

// CancelContract takes a contract back that has not begun.
func (t *SystemTx) CancelContract(ctx context.Context, o id.Org, c id.Contract, at time.Time, by string) error {
	err := t.q.CancelContract(ctx, t.raw, db.CancelContractParams{At: at, EndedBy: by, OrgID: uuid.UUID(o), ContractID: uuid.UUID(c)})
	if err != nil {
		return mapError(err)
	}
	return mapError(t.q.EndContractTerms(ctx, t.raw, uuid.UUID(o), uuid.UUID(c)))
}

// Contract reads one contract. It fails with resource.not_found.
func (t *tx) Contract(ctx context.Context, o id.Org, c id.Contract) (Contract, error) {
	found, err := t.contracts(ctx, db.ListContractsParams{OrgID: uuid.UUID(o), ContractID: nullable(c), Size: 1})
	if err != nil {
		return Contract{}, err
	}
	if len(found) == 0 {
		return Contract{}, NotFound()
	}
	return found[0], nil
}

// Contracts lists the contracts of an organization, newest first.
func (t *tx) Contracts(ctx context.Context, o id.Org, k Keyset) ([]Contract, error) {
	return t.contracts(ctx, db.ListContractsParams{OrgID: uuid.UUID(o), Before: k.before(), Size: int32(k.Size)})
}

func (t *tx) contracts(ctx context.Context, p db.ListContractsParams) ([]Contract, error) {
	rows, err := t.q.ListContracts(ctx, t.raw, p)
	if err != nil || len(rows) == 0 {
		return nil, mapError(err)
	}
	out, at, ids := make([]Contract, len(rows)), map[uuid.UUID]int{}, make([]uuid.UUID, len(rows))
	for i, r := range rows {
		currency, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading contract %s: %w", r.ID, err)
		}
		out[i] = Contract{
			ID: id.Contract(r.ID), Org: id.Org(r.OrgID), Name: r.Name, Currency: currency, During: intervalOf(r.FromAt, r.ToAt, r.IsOpen),
			CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, CancelledAt: r.CancelledAt, EndedBy: r.EndedBy,
		}
		at[r.ID], ids[i] = i, r.ID
	}
	terms, err := t.contractTerms(ctx, db.ContractTermsParams{OrgID: p.OrgID, ContractIds: ids})
	if err != nil {
		return nil, err
	}
	for _, term := range terms {
		c := &out[at[uuid.UUID(term.contract)]]
		c.Terms = append(c.Terms, term.ContractTerm)
	}
	return out, nil
}

// boundTerm is a term with its contract and the time it holds.
type boundTerm struct {
	ContractTerm
	contract id.Contract
	during   metering.Interval
}

type termKey struct {
	contract uuid.UUID
	no       int32
}

func (t *tx) contractTerms(ctx context.Context, p db.ContractTermsParams) ([]boundTerm, error) {
	rows, err := t.q.ContractTerms(ctx, t.raw, p)
	if err != nil {
		return nil, mapError(err)
	}
	steps := map[termKey][]db.ContractStepsRow{}
	var tiered []uuid.UUID
	for _, r := range rows {
		if r.Tiering != string(billing.Flat) {
			tiered = append(tiered, r.ContractID)
		}
	}
	if len(tiered) > 0 {
		found, err := t.q.ContractSteps(ctx, t.raw, p.OrgID, tiered)
		if err != nil {
			return nil, mapError(err)
		}
		for _, s := range found {
			k := termKey{s.ContractID, s.No}
			steps[k] = append(steps[k], s)
		}
	}
	return mapRows(rows, func(r db.ContractTermsRow) (boundTerm, error) {
		term, err := termFrom(r, steps[termKey{r.ContractID, r.No}])
		if err != nil {
			return boundTerm{}, fmt.Errorf("reading term %d of contract %s: %w", r.No, id.Contract(r.ContractID), err)
		}
		return boundTerm{ContractTerm: term, contract: id.Contract(r.ContractID), during: intervalOf(r.FromAt, r.ToAt, r.IsOpen)}, nil
	})
}

func termFrom(r db.ContractTermsRow, steps []db.ContractStepsRow) (ContractTerm, error) {
	currency, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return ContractTerm{}, err
	}
	term := ContractTerm{
		Kind: TermKind(r.Kind), Name: r.Name, Offer: r.Offer, PPM: r.Ppm, Micros: r.Micros, Hours: r.Hours,
		Scope: billing.Scope{Meter: metering.Meter(r.ScopeMeter), Family: r.ScopeFamily},
	}
	if r.ScopeSku != nil {
		term.Scope.SKU = *r.ScopeSku
	}
	if r.AmountMinor != 0 {
		term.Amount = money.NewAmount(r.AmountMinor, currency)
	}
	if r.Quantity != "" {
		quantity, ok := new(big.Int).SetString(r.Quantity, 10)
		if !ok {
			return ContractTerm{}, fmt.Errorf("the quantity %q is no integer", r.Quantity)
		}
		term.Quantity = quantity
	}
	if r.Price == "" {
		return term, nil
	}
	if term.Price, err = money.ParsePrice(r.Price, currency); err != nil {
		return ContractTerm{}, err
	}
	term.Tiers.Kind = billing.Tiering(r.Tiering)
	if term.Tiers.PackageSize, err = textRat(r.PackageSize); err != nil {
		return ContractTerm{}, err
	}
	for _, s := range steps {
		step, err := stepFrom(s.UpTo, s.Amount, currency)
		if err != nil {
			return ContractTerm{}, err
		}
		term.Tiers.Steps = append(term.Tiers.Steps, step)
	}
	return term, nil
}

// positive is null for 0: a value that the kind of a term does not have.
func positive(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
