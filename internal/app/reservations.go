package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// NewReservation asks for capacity that is paid for whether used or not: Units
// slices of the offer's SKU family in its region, from From (zero: now) to To. What
// runs of that family is covered; the price is the offer's on the reservation meter.
type NewReservation struct {
	Project  id.Project
	Name     string // "": after the offer
	Offer    string
	Units    int64
	From, To time.Time
}

// maxUnits bounds the slices of one reservation.
const maxUnits = 1_000_000

// CreateReservation reserves for the caller's organization, for any if an operator
// asks. The price now is the ceiling for the whole term. It fails with
// resource.not_found, request.invalid, offer.unknown and offer.unavailable (no price
// on the reservation meter, or no hardware that could ever hold it).
func (a *App) CreateReservation(ctx context.Context, c Caller, o id.Org, in NewReservation) (out store.Reservation, err error) {
	if in.Units < 1 || in.Units > maxUnits {
		return out, refused("/units", "range", fmt.Sprintf("A reservation has 1 to %d units.", maxUnits))
	}
	if in.To.IsZero() {
		return out, refused("/to", "required", "A reservation has an end.")
	}
	if in.Name == "" {
		in.Name = in.Offer
	}
	if err := checkTermName(in.Name, "/name"); err != nil {
		return out, err
	}
	err = a.share(ctx, c, o, "reserve", func(ctx context.Context, t agreements) error {
		if _, err := t.Project(ctx, o, in.Project); err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		row := store.Reservation{
			ID: id.New[id.Reservation](), Org: o, Project: in.Project, Name: strings.TrimSpace(in.Name), Units: in.Units,
			CreatedBy: c.actor(), CreatedAt: now,
		}
		if row.During, err = termOf(in.From, in.To, now); err != nil {
			return err
		}
		if err := a.reservable(ctx, t, in.Offer, &row); err != nil {
			return err
		}
		if err := t.InsertReservation(ctx, row); err != nil {
			return err
		}
		if out, err = t.Reservation(ctx, o, row.ID); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "reservation.create", row.ID.String()))
	})
	return out, err
}

// share is agreed for use cases that call others in the same transaction.
func (a *App) share(ctx context.Context, c Caller, o id.Org, reason string, fn func(context.Context, agreements) error) error {
	if c.Kind == auth.Operator {
		return a.Store.ShareSystem(ctx, reason, func(ctx context.Context, t *store.SystemTx) error { return fn(ctx, t) })
	}
	if o != c.Org {
		return store.NotFound()
	}
	return a.Store.ShareOrg(ctx, o, func(ctx context.Context, t *store.OrgTx) error { return fn(ctx, t) })
}

// reservable fills in what the offer says: what is covered where, and the price.
func (a *App) reservable(ctx context.Context, t agreements, offerID string, r *store.Reservation) error {
	found, err := t.OffersOfOrg(ctx, r.Org, store.OfferFilter{ID: offerID, Size: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return whyNotOffered(ctx, t, offerID)
	}
	o := found[0]
	ok, simulated, err := a.sellable(ctx, o.Pool, o.SKU.Shape)
	if err != nil {
		return err
	}
	if !ok {
		return unavailableOffer("No host of this installation could hold this offer.")
	}
	r.Offer, r.SKU, r.Region, r.Book, r.Simulated = o.ID, o.SKU.ID, o.Region, o.Book, simulated
	r.Family = billing.FamilyOf(o.SKU.Shape.Model, string(o.SKU.Shape.Mode.Kind))
	book, err := t.PriceBook(ctx, o.Book)
	if err != nil {
		return err
	}
	key := billing.PriceKey{SKU: o.SKU.ID, Meter: metering.Reservation}
	if _, listed := book.Lock(o.Version, key); listed {
		r.Locked = o.Version
		return nil
	}
	terms, err := t.TermsOf(ctx, r.Org, r.During, r.CreatedAt)
	if err != nil {
		return err
	}
	for _, p := range terms.Prices {
		if p.Key == key && !p.During.From.After(r.During.From) && (p.During.Open() || !p.During.To.Before(r.During.To)) {
			return nil
		}
	}
	return unavailableOffer("The offer has no price for reservations over the whole term.")
}

// EndReservation ends a reservation before its term is over, at an instant that is
// not past, a zero one being now; one that has not begun by then is cancelled.
// Operators only. It fails with resource.not_found, request.invalid, and
// state.conflict if it ended already.
func (a *App) EndReservation(ctx context.Context, c Caller, o id.Org, reservation id.Reservation, at time.Time) (out store.Reservation, err error) {
	if err := operatorOnly(c); err != nil {
		return out, err
	}
	err = a.Store.InSystem(ctx, "end a reservation", func(t *store.SystemTx) error {
		row, err := t.LockReservation(ctx, o, reservation)
		if err != nil {
			return err
		}
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		end, cancel, err := earlyEnd(row.During, row.CancelledAt, at, now)
		if err != nil {
			return err
		}
		if cancel {
			err = t.CancelReservation(ctx, o, reservation, now, c.actor())
		} else {
			err = t.EndReservation(ctx, o, reservation, end, c.actor())
		}
		if err != nil {
			return err
		}
		if out, err = t.Reservation(ctx, o, reservation); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(o, "reservation.end", reservation.String()))
	})
	return out, err
}

// GetReservation reads a reservation of the caller's organization, of any for an
// operator. It fails with resource.not_found.
func (a *App) GetReservation(ctx context.Context, c Caller, o id.Org, reservation id.Reservation) (out store.Reservation, err error) {
	err = a.agreed(ctx, c, o, "read a reservation", func(t agreements) error {
		out, err = t.Reservation(ctx, o, reservation)
		return err
	})
	return out, err
}

// ListReservations lists the reservations of the caller's organization, of any for an
// operator, newest first.
func (a *App) ListReservations(ctx context.Context, c Caller, o id.Org, p Page) (List[store.Reservation], error) {
	k, err := keyset[id.Reservation](p)
	if err != nil {
		return List[store.Reservation]{}, err
	}
	var items []store.Reservation
	err = a.agreed(ctx, c, o, "list reservations", func(t agreements) error {
		if _, err := t.Organization(ctx, o); err != nil {
			return err
		}
		items, err = t.Reservations(ctx, o, k)
		return err
	})
	return paged(items, p.Size, func(r store.Reservation) string { return r.ID.String() }), err
}

// ProgressReservations starts the meters of reservations that have begun and stops
// those of reservations that have ended, each at its own instant and once, however
// often and late it runs. Several may run at once. It fails with the first failure of
// a reservation, which keeps no other from moving.
func (a *App) ProgressReservations(ctx context.Context) error {
	for {
		var moved int
		var failed error
		err := a.Store.InSystem(ctx, "meter reservations", func(t *store.SystemTx) error {
			now, err := t.BusinessNow(ctx)
			if err != nil {
				return err
			}
			moved, failed, err = t.ProgressReservations(ctx, now)
			return err
		})
		if err = cmp.Or(err, failed); err != nil || moved == 0 {
			return err
		}
	}
}
