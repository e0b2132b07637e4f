package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// TermsOf reads what an organization agreed beside its price book, as far as it
// touches a closed period: contracts, reservations, the starts that ended in it (if
// there is a minimum) and the spot series it used. What was cancelled by then is
// left out. It is one statement where nothing was agreed. Promos are not here (PromosOf), nor is a notice-free time.
func (t *tx) TermsOf(ctx context.Context, org id.Org, period metering.Interval, _ time.Time) (billing.Terms, error) {
	var out billing.Terms
	has, err := t.q.AgreedKinds(ctx, t.raw, db.AgreedKindsParams{OrgID: uuid.UUID(org), FromAt: period.From, ToAt: period.To})
	if err != nil {
		return out, mapError(err)
	}
	if has.Contracts {
		terms, err := t.contractTerms(ctx, db.ContractTermsParams{
			OrgID: uuid.UUID(org), ContractIds: []uuid.UUID{}, FromAt: &period.From, ToAt: &period.To,
		})
		if err != nil {
			return out, err
		}
		for _, term := range terms {
			addTerm(&out, term)
		}
	}
	if has.Reservations {
		if out.Reservations, err = t.reservedCapacity(ctx, org, period); err != nil {
			return out, err
		}
	}
	if has.Spot {
		if out.SpotSeries, err = t.spotOfUsage(ctx, org, period); err != nil {
			return out, err
		}
	}
	if len(out.Minimums) > 0 {
		out.Starts, err = t.endedStarts(ctx, org, period)
	}
	return out, err
}

func addTerm(out *billing.Terms, t boundTerm) {
	switch t.Kind {
	case PriceTerm:
		out.Prices = append(out.Prices, billing.ContractPrice{
			Contract: t.contract, Key: billing.PriceKey{SKU: t.Scope.SKU, Meter: t.Scope.Meter}, During: t.during, Price: t.Price, Tiers: t.Tiers,
		})
	case DiscountTerm:
		out.Discounts = append(out.Discounts, billing.ScopedDiscount{
			Contract: t.contract, Discount: billing.Discount{Name: t.Name, PPM: t.PPM}, Scope: t.Scope, During: t.during,
		})
	case FreeQuotaTerm:
		out.FreeQuotas = append(out.FreeQuotas, billing.FreeQuota{
			Contract: t.contract, Name: t.Name, Scope: t.Scope, Quantity: t.Quantity, During: t.during,
		})
	case MinimumTerm:
		out.Minimums = append(out.Minimums, billing.Minimum{Scope: t.Scope, Micros: t.Micros, During: t.during})
	case CapTerm:
		out.Caps = append(out.Caps, billing.Cap{Contract: t.contract, Scope: t.Scope, Hours: t.Hours, Amount: t.Amount, During: t.during})
	case CommitmentTerm:
		out.Commitments = append(out.Commitments, billing.CommittedAmount{
			Contract: t.contract, Name: t.Name, Scope: t.Scope, Amount: t.Amount, During: t.during,
		})
	case FixedDiscountTerm:
		out.FixedDiscounts = append(out.FixedDiscounts, billing.AmountOff{
			Contract: t.contract, Name: t.Name, Scope: t.Scope, Amount: t.Amount, During: t.during,
		})
	}
}

func (t *tx) reservedCapacity(ctx context.Context, org id.Org, period metering.Interval) ([]billing.ReservedCapacity, error) {
	rows, err := t.q.ReservationsTouching(ctx, t.raw, db.ReservationsTouchingParams{
		OrgID: uuid.UUID(org), FromAt: period.From, ToAt: period.To,
	})
	if err != nil || len(rows) == 0 {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.ReservationsTouchingRow) (billing.ReservedCapacity, error) {
		return billing.ReservedCapacity{
			ID: id.Reservation(r.ID), Name: r.Name, Family: r.Family, Region: r.RegionID, Units: r.Units,
			During: metering.Between(r.FromAt, r.ToAt),
		}, nil
	})
}

func (t *tx) spotOfUsage(ctx context.Context, org id.Org, period metering.Interval) ([]billing.SpotPrice, error) {
	rows, err := t.q.SpotPricesOfUsage(ctx, t.raw, db.SpotPricesOfUsageParams{
		OrgID: uuid.UUID(org), FromAt: period.From, ToAt: period.To,
	})
	if err != nil || len(rows) == 0 {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SpotPricesOfUsageRow) (billing.SpotPrice, error) {
		price, err := parsePrice(r.Amount, r.Currency)
		return billing.SpotPrice{Region: r.RegionID, SKU: r.SkuID, During: intervalOf(r.FromAt, r.ToAt, r.IsLast), Price: price}, err
	})
}

func (t *tx) endedStarts(ctx context.Context, org id.Org, period metering.Interval) ([]billing.Start, error) {
	rows, err := t.q.EndedStarts(ctx, t.raw, db.EndedStartsParams{FromAt: period.From, OrgID: uuid.UUID(org), ToAt: period.To})
	if err != nil || len(rows) == 0 {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.EndedStartsRow) (billing.Start, error) {
		return billing.Start{
			ID: r.StartID, Ended: r.EndedAt.UTC(), Party: r.Party, Preempted: r.CloseReason == string(metering.Preempted), Earlier: r.EarlierUs,
		}, nil
	})
}
