package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Wallet is what an organization can spend, as of the last tick.
type Wallet struct {
	Org         id.Org
	Mode        wallet.Mode
	Prepaid     money.Amount // gross, not burned yet
	Promo       money.Amount // net, not on a document yet
	PromoHeld   money.Amount // of Promo: what running months take
	TaxPPM      int64        // that will be due on what is bought
	AutoTopUp   wallet.AutoTopUp
	TickedAt    time.Time // zero: never
	ExhaustedAt time.Time // zero: it is not
}

// Spendable is what can be bought, net.
func (w Wallet) Spendable() (money.Exact, error) {
	free, err := w.Promo.Sub(w.PromoHeld)
	if err != nil {
		return money.Exact{}, err
	}
	return wallet.Spendable(free, w.Prepaid, w.TaxPPM)
}

func walletFrom(r db.Wallet) (Wallet, error) {
	c, err := money.ParseCurrency(r.Currency)
	if err != nil {
		return Wallet{}, fmt.Errorf("reading the wallet of %s: %w", r.OrgID, err)
	}
	w := Wallet{
		Org: id.Org(r.OrgID), Mode: wallet.Mode(r.Mode), Prepaid: money.NewAmount(r.PrepaidMinor, c),
		Promo: money.NewAmount(r.PromoMinor, c), PromoHeld: money.NewAmount(r.PromoHeldMinor, c), TaxPPM: r.TaxPpm,
		TickedAt: timeOrZero(r.TickedAt), ExhaustedAt: timeOrZero(r.ExhaustedAt),
	}
	if r.TopupAmountMinor != nil {
		w.AutoTopUp = wallet.AutoTopUp{
			Threshold: money.NewAmount(*r.TopupThresholdMinor, c), Amount: money.NewAmount(*r.TopupAmountMinor, c),
			MonthlyMax: money.NewAmount(*r.TopupMonthlyMaxMinor, c),
		}
	}
	return w, nil
}

func timeOrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// LockWallet makes the wallet of an organization, if it has none, and keeps every
// other change of it out until the transaction ends. Take it after the billing
// account and the invoice, never before.
func (t *SystemTx) LockWallet(ctx context.Context, org id.Org) (Wallet, error) {
	if err := t.q.EnsureWallet(ctx, t.raw, uuid.UUID(org)); err != nil {
		return Wallet{}, mapError(err)
	}
	r, err := t.q.LockWallet(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return Wallet{}, mapError(err)
	}
	return walletFrom(r)
}

// LockOwnWallet is LockWallet for a tenant's start. It reports false if the
// organization never had a wallet: then nothing restrains it.
func (t *OrgTx) LockOwnWallet(ctx context.Context) (Wallet, bool, error) {
	r, err := t.q.LockWallet(ctx, t.raw, uuid.UUID(t.org))
	if errors.Is(err, pgx.ErrNoRows) {
		return Wallet{}, false, nil
	}
	if err != nil {
		return Wallet{}, false, mapError(err)
	}
	w, err := walletFrom(r)
	return w, true, err
}

// Wallet reads a wallet; an organization without one has an empty one.
func (t *tx) Wallet(ctx context.Context, org id.Org) (Wallet, error) {
	r, err := t.q.GetWallet(ctx, t.raw, uuid.UUID(org))
	if errors.Is(err, pgx.ErrNoRows) {
		o, err := t.Organization(ctx, org)
		zero := money.NewAmount(0, o.Currency)
		return Wallet{Org: org, Mode: wallet.Postpaid, Prepaid: zero, Promo: zero, PromoHeld: zero}, err
	}
	if err != nil {
		return Wallet{}, mapError(err)
	}
	return walletFrom(r)
}

// SetMoneyMode says how an organization pays; its wallet is looked at at once.
func (t *SystemTx) SetMoneyMode(ctx context.Context, org id.Org, m wallet.Mode) error {
	return mapError(t.q.SetMoneyMode(ctx, t.raw, string(m), uuid.UUID(org)))
}

// SetAutoTopUp stores a standing order; the zero value ends it.
func (t *SystemTx) SetAutoTopUp(ctx context.Context, org id.Org, order wallet.AutoTopUp) error {
	p := db.SetAutoTopUpParams{OrgID: uuid.UUID(org)}
	if order.Amount.Sign() > 0 {
		threshold, amount, most := order.Threshold.Minor(), order.Amount.Minor(), order.MonthlyMax.Minor()
		p.Threshold, p.Amount, p.MonthlyMax = &threshold, &amount, &most
	}
	return mapError(t.q.SetAutoTopUp(ctx, t.raw, p))
}

// LookAtWalletSoon has the next round of the loop look at the wallet.
func (t *tx) LookAtWalletSoon(ctx context.Context, org id.Org) error {
	return mapError(t.q.LookAtWalletSoon(ctx, t.raw, uuid.UUID(org)))
}

// WalletTick is what a round of the loop found.
type WalletTick struct {
	PromoHeld money.Amount
	TaxPPM    int64
	At, Next  time.Time
	Exhausted bool
}

// SaveWalletTick stores the outcome of a tick.
func (t *SystemTx) SaveWalletTick(ctx context.Context, org id.Org, k WalletTick) error {
	return mapError(t.q.SaveWalletTick(ctx, t.raw, db.SaveWalletTickParams{
		OrgID: uuid.UUID(org), PromoHeld: k.PromoHeld.Minor(), TaxPpm: k.TaxPPM, At: k.At, NextAt: k.Next, Exhausted: k.Exhausted,
	}))
}

// PostponeWallet looks at a wallet that failed after the wait again (business time),
// so that it is not first for ever.
func (t *SystemTx) PostponeWallet(ctx context.Context, org id.Org, wait time.Duration) error {
	return mapError(t.q.PostponeWallet(ctx, t.raw, wait.Seconds(), uuid.UUID(org)))
}

// WalletsDue lists up to size organizations whose wallet is to be looked at now.
func (t *SystemTx) WalletsDue(ctx context.Context, size int) ([]id.Org, error) {
	rows, err := t.q.WalletsDue(ctx, t.raw, int32(size))
	return orgIDs(rows), mapError(err)
}

func orgIDs(rows []uuid.UUID) []id.Org {
	out := make([]id.Org, len(rows))
	for i, r := range rows {
		out[i] = id.Org(r)
	}
	return out
}

// NewLot is a grant to be made; By names who made it.
type NewLot struct {
	wallet.Lot
	By string
}

// InsertGrant adds a lot to a wallet, once per source. It reports false if the
// source made its lot before. The wallet is locked.
func (t *SystemTx) InsertGrant(ctx context.Context, org id.Org, l NewLot) (bool, error) {
	scope, err := json.Marshal(scopeRow{Meter: string(l.Scope.Meter), Family: l.Scope.Family, SKU: l.Scope.SKU})
	if err != nil {
		return false, fmt.Errorf("encoding a scope: %w", err)
	}
	n, err := t.q.InsertGrant(ctx, t.raw, db.InsertGrantParams{
		OrgID: uuid.UUID(org), GrantID: uuid.UUID(l.Grant), Kind: string(l.Kind), Name: l.Name, Priority: int32(l.Priority),
		ExpiresAt: timeOrNil(l.Expires), Scope: scope, AmountMinor: l.Amount.Minor(), TaxMinor: l.Tax.Minor(),
		Currency: l.Amount.Currency().Code(), SourceID: l.Source, CreatedBy: l.By, At: l.CreatedAt,
	})
	return n == 1, mapError(err)
}

type scopeRow struct {
	Meter  string   `json:"meter,omitempty"`
	Family string   `json:"family,omitempty"`
	SKU    [16]byte `json:"sku"`
}

func scopeFrom(text []byte) (billing.Scope, error) {
	var s scopeRow
	if err := json.Unmarshal(text, &s); err != nil {
		return billing.Scope{}, fmt.Errorf("reading a scope: %w", err)
	}
	return billing.Scope{Meter: metering.Meter(s.Meter), Family: s.Family, SKU: s.SKU}, nil
}

func lotsFrom(rows []db.CreditGrant) ([]wallet.Lot, error) {
	out := make([]wallet.Lot, 0, len(rows))
	for _, r := range rows {
		c, err := money.ParseCurrency(r.Currency)
		if err != nil {
			return nil, fmt.Errorf("reading grant %s: %w", r.ID, err)
		}
		scope, err := scopeFrom(r.Scope)
		if err != nil {
			return nil, err
		}
		out = append(out, wallet.Lot{
			Grant: id.Grant(r.ID), Kind: wallet.Kind(r.Kind), Name: r.Name, Priority: int(r.Priority), Expires: timeOrZero(r.ExpiresAt),
			Scope: scope, Amount: money.NewAmount(r.AmountMinor, c), Remaining: money.NewAmount(r.RemainingMinor, c),
			Tax: money.NewAmount(r.TaxMinor, c), Source: r.SourceID, Lapsed: r.LapsedAt != nil, CreatedAt: r.CreatedAt.UTC(),
		})
	}
	return out, nil
}

// LiveGrants lists the lots of a kind that have something left.
func (t *tx) LiveGrants(ctx context.Context, org id.Org, k wallet.Kind) ([]wallet.Lot, error) {
	rows, err := t.q.LiveGrants(ctx, t.raw, uuid.UUID(org), string(k))
	if err != nil {
		return nil, mapError(err)
	}
	return lotsFrom(rows)
}

// Grants reads lots by id.
func (t *tx) Grants(ctx context.Context, org id.Org, grants ...id.Grant) ([]wallet.Lot, error) {
	rows, err := t.q.GrantsByID(ctx, t.raw, uuid.UUID(org), uuids(grants))
	if err != nil {
		return nil, mapError(err)
	}
	return lotsFrom(rows)
}

// GrantOf reads the lot that a source made. It fails with resource.not_found.
func (t *tx) GrantOf(ctx context.Context, org id.Org, source [16]byte) (wallet.Lot, error) {
	r, err := t.q.GrantBySource(ctx, t.raw, uuid.UUID(org), source)
	if err != nil {
		return wallet.Lot{}, mapError(err)
	}
	lots, err := lotsFrom([]db.CreditGrant{r})
	if err != nil {
		return wallet.Lot{}, err
	}
	return lots[0], nil
}

// ListGrants lists lots, newest first.
func (t *tx) ListGrants(ctx context.Context, org id.Org, k Keyset) ([]wallet.Lot, error) {
	rows, err := t.q.ListGrants(ctx, t.raw, db.ListGrantsParams{OrgID: uuid.UUID(org), Before: k.before(), Size: int32(k.Size)})
	if err != nil {
		return nil, mapError(err)
	}
	return lotsFrom(rows)
}

func uuids[I ~[16]byte](ids []I) []uuid.UUID {
	out := make([]uuid.UUID, len(ids))
	for i, v := range ids {
		out[i] = uuid.UUID(v)
	}
	return out
}

// FundedPeriod names what is funded: a month and the close it was billed in.
type FundedPeriod struct {
	Period  string
	CloseNo int
}

// Reasons of movements. What was burned, invoiced or credited counts as used by the
// period; what was paid back or expired does not.
const (
	UseBurn     = "burn"
	UseInvoice  = "invoice"
	UseCredit   = "credit"
	UseReturned = "returned"
	UseExpired  = "expired"
)

// MoveGrants moves lots and the wallet, which is locked, and records the movements
// in their order. The database refuses a lot or wallet below 0.
func (t *SystemTx) MoveGrants(ctx context.Context, org id.Org, k wallet.Kind, f FundedPeriod, reason string, at time.Time, uses []wallet.Use) error {
	if len(uses) == 0 {
		return nil
	}
	grants, amounts := make([]uuid.UUID, len(uses)), make([]int64, len(uses))
	for i, u := range uses {
		grants[i], amounts[i] = uuid.UUID(u.Grant), u.Amount.Minor()
	}
	n, err := t.q.MoveGrants(ctx, t.raw, db.MoveGrantsParams{OrgID: uuid.UUID(org), GrantIds: grants, Amounts: amounts})
	if err != nil {
		return mapError(err)
	}
	if n != 1 {
		return fault.New(fault.Internal, "internal", "A wallet does not add up.").
			Because(fmt.Errorf("moving %d lots of %s changed no wallet", len(uses), org))
	}
	return mapError(t.q.InsertUses(ctx, t.raw, db.InsertUsesParams{
		OrgID: uuid.UUID(org), Kind: string(k), Period: f.Period, CloseNo: int32(f.CloseNo), Reason: reason, At: at,
		GrantIds: grants, Amounts: amounts,
	}))
}

// UsesOf lists what a funded period used of a kind of lots, in recorded order.
func (t *tx) UsesOf(ctx context.Context, org id.Org, k wallet.Kind, f FundedPeriod, c money.Currency) ([]wallet.Use, error) {
	rows, err := t.q.UsesOfPeriod(ctx, t.raw, db.UsesOfPeriodParams{
		OrgID: uuid.UUID(org), Kind: string(k), Period: f.Period, CloseNo: int32(f.CloseNo),
	})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]wallet.Use, len(rows))
	for i, r := range rows {
		out[i] = wallet.Use{Grant: id.Grant(r.GrantID), Amount: money.NewAmount(r.AmountMinor, c)}
	}
	return out, nil
}
