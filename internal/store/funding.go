package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/wallet"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Funding is what was accrued and burned for a month by telescoping. The revisions
// count its journals: what is written derives its key from them.
type Funding struct {
	FundedPeriod
	Accrued    int64 // minor units
	Burned     int64
	Excess     int64 // what no lot covers: owed
	Outage     int64 // of Excess: came about while nobody looked
	AccruedRev int
	BurnedRev  int
	Invoice    id.Invoice // zero: not invoiced
	AccruedAt  time.Time
}

// Funding reads what was accrued and burned; nothing, if nothing was. Change it
// under the wallet's lock only.
func (t *tx) Funding(ctx context.Context, org id.Org, f FundedPeriod) (Funding, error) {
	r, err := t.q.FundingOf(ctx, t.raw, db.FundingOfParams{OrgID: uuid.UUID(org), Period: f.Period, CloseNo: int32(f.CloseNo)})
	if errors.Is(err, pgx.ErrNoRows) {
		return Funding{FundedPeriod: f}, nil
	}
	return fundingFrom(r), mapError(err)
}

func fundingFrom(r db.PeriodFunding) Funding {
	return Funding{
		FundedPeriod: FundedPeriod{r.Period, int(r.CloseNo)}, Accrued: r.AccruedMinor, Burned: r.BurnedMinor, Excess: r.ExcessMinor,
		Outage: r.OutageMinor, AccruedRev: int(r.AccruedRev), BurnedRev: int(r.BurnedRev), Invoice: orZero[id.Invoice](r.InvoiceID),
		AccruedAt: timeOrZero(r.AccruedAt),
	}
}

// SaveFunding stores it.
func (t *SystemTx) SaveFunding(ctx context.Context, org id.Org, f Funding) error {
	return mapError(t.q.SaveFunding(ctx, t.raw, db.SaveFundingParams{
		OrgID: uuid.UUID(org), Period: f.Period, CloseNo: int32(f.CloseNo), AccruedMinor: f.Accrued, BurnedMinor: f.Burned,
		ExcessMinor: f.Excess, OutageMinor: f.Outage, AccruedRev: int32(f.AccruedRev), BurnedRev: int32(f.BurnedRev),
		InvoiceID: nullable(f.Invoice), AccruedAt: timeOrNil(f.AccruedAt),
	}))
}

// Overrun is what a month cost beyond what its wallet had.
type Overrun struct {
	Period string
	Excess money.Amount
	Outage money.Amount // of Excess: came about while the loop or the hosts were away
}

// Overruns lists the months whose bill the wallet did not cover.
func (t *tx) Overruns(ctx context.Context, org id.Org, c money.Currency) ([]Overrun, error) {
	rows, err := t.q.OverrunsOf(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Overrun, len(rows))
	for i, r := range rows {
		out[i] = Overrun{Period: r.Period, Excess: money.NewAmount(r.ExcessMinor, c), Outage: money.NewAmount(r.OutageMinor, c)}
	}
	return out, nil
}

// PromosOf lists what promotional grants have for a calendar month, without what
// earlier months that are not invoiced yet take of them. A grant that expired
// inside the month is there with what it covered until then.
func (t *tx) PromosOf(ctx context.Context, org id.Org, month metering.Interval) ([]billing.Promo, error) {
	rows, err := t.q.PromosOf(ctx, t.raw, db.PromosOfParams{
		Period: metering.PeriodOf(month.From), OrgID: uuid.UUID(org), FromAt: month.From, ToAt: month.To,
	})
	if err != nil {
		return nil, mapError(err)
	}
	var out []billing.Promo
	for _, r := range rows {
		if r.Available <= 0 {
			continue
		}
		scope, err := scopeFrom(r.Scope)
		if err != nil {
			return nil, err
		}
		left, err := amountIn(r.Available, r.Currency)
		if err != nil {
			return nil, err
		}
		out = append(out, billing.Promo{
			Grant: id.Grant(r.ID), Name: r.Name, Priority: int(r.Priority), Expires: timeOrZero(r.ExpiresAt), Scope: scope, Remaining: left,
		})
	}
	return out, nil
}

// Hold is what the bill of a running month takes of a promotional grant.
type Hold struct {
	Grant  id.Grant
	Period string
	Minor  int64
}

// SetHolds replaces what a month takes of grants; the wallet is locked.
func (t *SystemTx) SetHolds(ctx context.Context, org id.Org, period string, uses []wallet.Use) error {
	if err := t.q.ClearHolds(ctx, t.raw, uuid.UUID(org), period); err != nil {
		return mapError(err)
	}
	if len(uses) == 0 {
		return nil
	}
	p := db.InsertHoldsParams{OrgID: uuid.UUID(org), Period: period}
	for _, u := range uses {
		p.GrantIds = append(p.GrantIds, uuid.UUID(u.Grant))
		p.Amounts = append(p.Amounts, u.Amount.Minor())
	}
	return mapError(t.q.InsertHolds(ctx, t.raw, p))
}

// Holds lists what months that are not invoiced yet take of grants.
func (t *tx) Holds(ctx context.Context, org id.Org) ([]Hold, error) {
	rows, err := t.q.HoldsOf(ctx, t.raw, uuid.UUID(org))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]Hold, len(rows))
	for i, r := range rows {
		out[i] = Hold{Grant: id.Grant(r.GrantID), Period: r.Period, Minor: r.AmountMinor}
	}
	return out, nil
}

// ExpiredGrant names a grant whose time is over and that is not booked so.
type ExpiredGrant struct {
	Org   id.Org
	Grant id.Grant
}

// ExpiredGrants lists up to size grants to lapse, oldest first.
func (t *SystemTx) ExpiredGrants(ctx context.Context, size int) ([]ExpiredGrant, error) {
	rows, err := t.q.ExpiredGrants(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]ExpiredGrant, len(rows))
	for i, r := range rows {
		out[i] = ExpiredGrant{id.Org(r.OrgID), id.Grant(r.ID)}
	}
	return out, nil
}

// ExpiredGrantsOf lists the grants of one organization to lapse.
func (t *SystemTx) ExpiredGrantsOf(ctx context.Context, org id.Org) ([]id.Grant, error) {
	rows, err := t.q.ExpiredGrantsOf(ctx, t.raw, uuid.UUID(org))
	out := make([]id.Grant, len(rows))
	for i, r := range rows {
		out[i] = id.Grant(r)
	}
	return out, mapError(err)
}

// LapseGrant marks a grant as expired and booked.
func (t *SystemTx) LapseGrant(ctx context.Context, org id.Org, g id.Grant, at time.Time) error {
	return mapError(t.q.LapseGrant(ctx, t.raw, db.LapseGrantParams{At: at, OrgID: uuid.UUID(org), GrantID: uuid.UUID(g)}))
}

// BilledPeriod reports whether a month has its document.
func (t *tx) BilledPeriod(ctx context.Context, org id.Org, period string) (bool, error) {
	billed, err := t.q.BilledPeriod(ctx, t.raw, uuid.UUID(org), period)
	return billed, mapError(err)
}

// UnbilledMonths lists those of some months that an organization used something in and
// has no document of.
func (t *SystemTx) UnbilledMonths(ctx context.Context, org id.Org, periods []string) ([]string, error) {
	rows, err := t.q.UnbilledMonths(ctx, t.raw, periods, uuid.UUID(org))
	return rows, mapError(err)
}

// MonthDue is a month of an organization that is to be accrued.
type MonthDue struct {
	Org    id.Org
	Period string
}

// AccrualDue lists, oldest first, the months of some that somebody used something in,
// that have no document yet and were not accrued since an instant.
func (t *SystemTx) AccrualDue(ctx context.Context, periods []string, since time.Time) ([]MonthDue, error) {
	rows, err := t.q.AccrualDue(ctx, t.raw, periods, since)
	out := make([]MonthDue, len(rows))
	for i, r := range rows {
		out[i] = MonthDue{id.Org(r.OrgID), r.Period}
	}
	return out, mapError(err)
}
