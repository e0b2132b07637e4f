package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// Reservation is capacity of a SKU family in a region that is paid for whether used
// or not, from During.From to During.To in business time.
type Reservation struct {
	ID          id.Reservation
	Org         id.Org
	Project     id.Project // who pays
	Name        string
	Offer       string
	SKU         [16]byte // whose price on the reservation meter it has
	Family      string
	Region      string
	Units       int64 // slices at once
	Book        id.PriceBook
	Locked      id.PriceVersion // its price is the ceiling; zero: a contract's price alone
	Price       *money.Price    // of Locked, per hour and unit
	Simulated   bool
	During      metering.Interval
	CreatedBy   string
	CreatedAt   time.Time
	CancelledAt *time.Time // before it began; nil: never
	EndedBy     string     // who ended or cancelled it early
}

// InsertReservation writes a reservation; its meter starts by ProgressReservations.
func (t *tx) InsertReservation(ctx context.Context, r Reservation) error {
	return mapError(t.q.InsertReservation(ctx, t.raw, db.InsertReservationParams{
		OrgID: uuid.UUID(r.Org), ReservationID: uuid.UUID(r.ID), ProjectID: uuid.UUID(r.Project), Name: r.Name, OfferID: r.Offer,
		SkuID: r.SKU, Family: r.Family, RegionID: r.Region, Units: r.Units, PriceBookID: uuid.UUID(r.Book),
		LockedPriceVersionID: nullable(r.Locked), Simulated: r.Simulated, FromAt: r.During.From, ToAt: r.During.To,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
	}))
}

// LockReservation reads a reservation and keeps others from ending it and its meter
// from moving. It fails with resource.not_found.
func (t *SystemTx) LockReservation(ctx context.Context, o id.Org, r id.Reservation) (Reservation, error) {
	if _, err := t.q.LockReservation(ctx, t.raw, uuid.UUID(o), uuid.UUID(r)); err != nil {
		return Reservation{}, mapError(err)
	}
	return t.Reservation(ctx, o, r)
}

// EndReservation ends a reservation at an instant that is not past and comes before
// its end.
func (t *SystemTx) EndReservation(ctx context.Context, o id.Org, r id.Reservation, at time.Time, by string) error {
	return mapError(t.q.EndReservation(ctx, t.raw, db.EndReservationParams{
		Until: at, EndedBy: by, OrgID: uuid.UUID(o), ReservationID: uuid.UUID(r),
	}))
}

// CancelReservation takes a reservation back that has not begun.
func (t *SystemTx) CancelReservation(ctx context.Context, o id.Org, r id.Reservation, at time.Time, by string) error {
	return mapError(t.q.CancelReservation(ctx, t.raw, db.CancelReservationParams{
		At: at, EndedBy: by, OrgID: uuid.UUID(o), ReservationID: uuid.UUID(r),
	}))
}

// Reservation reads one reservation. It fails with resource.not_found.
func (t *tx) Reservation(ctx context.Context, o id.Org, r id.Reservation) (Reservation, error) {
	found, err := t.reservations(ctx, db.ListReservationsParams{OrgID: uuid.UUID(o), ReservationID: nullable(r), Size: 1})
	if err != nil {
		return Reservation{}, err
	}
	if len(found) == 0 {
		return Reservation{}, NotFound()
	}
	return found[0], nil
}

// Reservations lists the reservations of an organization, newest first.
func (t *tx) Reservations(ctx context.Context, o id.Org, k Keyset) ([]Reservation, error) {
	return t.reservations(ctx, db.ListReservationsParams{OrgID: uuid.UUID(o), Before: k.before(), Size: int32(k.Size)})
}

func (t *tx) reservations(ctx context.Context, p db.ListReservationsParams) ([]Reservation, error) {
	rows, err := t.q.ListReservations(ctx, t.raw, p)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.ListReservationsRow) (Reservation, error) {
		out := Reservation{
			ID: id.Reservation(r.ID), Org: id.Org(r.OrgID), Project: id.Project(r.ProjectID), Name: r.Name, Offer: r.OfferID, SKU: r.SkuID,
			Family: r.Family, Region: r.RegionID, Units: r.Units, Book: id.PriceBook(r.PriceBookID),
			Locked: orZero[id.PriceVersion](r.LockedPriceVersionID), Simulated: r.Simulated, During: metering.Between(r.FromAt, r.ToAt),
			CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, CancelledAt: r.CancelledAt, EndedBy: r.EndedBy,
		}
		if r.LockedPrice == "" {
			return out, nil
		}
		price, err := parsePrice(r.LockedPrice, r.Currency)
		if err != nil {
			return Reservation{}, fmt.Errorf("reading the price of reservation %s: %w", out.ID, err)
		}
		out.Price = &price
		return out, nil
	})
}

// reservationBatch bounds the reservations that one transaction moves.
const reservationBatch = 100

// ProgressReservations starts and stops the meters of at most a batch of reservations
// that are due at a business instant, and returns how many it moved. A meter starts
// and stops at the reservation's own instants, however late this runs, and only once.
// One that fails keeps no other from moving; its failure is the error, beside which
// the count of the others is true.
func (t *SystemTx) ProgressReservations(ctx context.Context, at time.Time) (moved int, failed error, err error) {
	rows, err := t.q.DueReservations(ctx, t.raw, at, reservationBatch)
	if err != nil {
		return 0, nil, mapError(err)
	}
	for _, r := range rows {
		apart, err := t.raw.Begin(ctx) // a savepoint
		if err != nil {
			return 0, nil, mapError(err)
		}
		one := SystemTx{tx: tx{raw: apart, q: t.q}}
		if err := one.progressReservation(ctx, r, at); err != nil {
			failed = cmp.Or(failed, fmt.Errorf("metering reservation %s: %w", id.Reservation(r.ID), mapError(err)))
			if err := apart.Rollback(ctx); err != nil {
				return 0, nil, mapError(err)
			}
			continue
		}
		if err := apart.Commit(ctx); err != nil {
			return 0, nil, mapError(err)
		}
		moved++
	}
	return moved, failed, nil
}

func (t *SystemTx) progressReservation(ctx context.Context, r db.DueReservationsRow, at time.Time) error {
	if err := t.q.LockMeter(ctx, t.raw, r.ID, string(metering.Reservation)); err != nil {
		return err
	}
	if !r.Started {
		if err := t.startReservation(ctx, r); err != nil {
			return err
		}
	}
	if r.ToAt.After(at) {
		return t.q.WakeReservation(ctx, t.raw, db.WakeReservationParams{NextAt: &r.ToAt, OrgID: r.OrgID, ReservationID: r.ID})
	}
	party := "operator"
	if r.EndedBy == "" {
		party = "" // its term is over
	}
	_, err := t.q.CloseMeter(ctx, t.raw, db.CloseMeterParams{
		OrgID: r.OrgID, SubjectID: r.ID, Meter: string(metering.Reservation), At: r.ToAt, CloseReason: "reservation_ended", FaultParty: party,
	})
	if err != nil {
		return err
	}
	return t.q.WakeReservation(ctx, t.raw, db.WakeReservationParams{OrgID: r.OrgID, ReservationID: r.ID})
}

func (t *SystemTx) startReservation(ctx context.Context, r db.DueReservationsRow) error {
	start := uuid.UUID(id.New[id.Segment]())
	return t.q.OpenReservationSegment(ctx, t.raw, db.OpenReservationSegmentParams{
		SegmentID: uuid.UUID(id.New[id.Segment]()), StartID: start, BillingPeriod: metering.PeriodOf(r.FromAt), At: r.FromAt,
		OrgID: r.OrgID, ReservationID: r.ID,
	})
}
