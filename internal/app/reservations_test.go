package app_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// newReserving is a billed world whose offer has hardware and a price for reservations.
func newReserving(t *testing.T) (*billed, customer) {
	t.Helper()
	b := newBilled(t)
	b.simulateHost(t)
	_, err := b.CreatePriceVersion(t.Context(), b.operator, b.book.ID, app.NewPrices{Prices: []app.OfferPrice{
		{Offer: slice, PerHour: "0.49"}, {Offer: slice, Meter: metering.Reservation, PerHour: "0.30"}}})
	require.NoError(t, err)
	b.setClock(t, november.AddDate(0, 0, 8))
	return b, b.tenant(t, "acme", quota.Limits{})
}

// simulateHost gives the default pool a GPU that could hold the offer.
func (b *billed) simulateHost(t *testing.T) {
	t.Helper()
	f := fleet{owner: b.owner}
	f.host(t, "sim-1", 1, h200(), gpu.MIGMode())
}

func (b *billed) charged(t *testing.T, r id.Reservation) (out []metering.Interval) {
	t.Helper()
	rows, err := b.owner.Query(t.Context(), `select lower(during), coalesce(upper(during), 'epoch'), units, subject_kind, meter, billing_period
		from usage_segments where subject_id = $1 order by seq`, uuid.UUID(r))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var from, to time.Time
		var units int
		var kind, meter, period string
		require.NoError(t, rows.Scan(&from, &to, &units, &kind, &meter, &period))
		require.Equal(t, []any{3, "reservation", "reservation", metering.PeriodOf(from)}, []any{units, kind, meter, period})
		if to.Unix() == 0 {
			to = time.Time{}
		}
		out = append(out, metering.Between(from, to))
	}
	require.NoError(t, rows.Err())
	return out
}

func TestReservationsAreChargedFromStartToEnd(t *testing.T) {
	b, c := newReserving(t)
	ctx := t.Context()
	from, to := november.AddDate(0, 0, 20), november.AddDate(0, 1, 5)
	made, err := b.CreateReservation(ctx, c.Caller, c.Org, app.NewReservation{Project: c.project, Name: "base load", Offer: slice, Units: 3, From: from, To: to})
	require.NoError(t, err)
	require.Equal(t, []any{"H200-141/mig", "local", int64(3), "0.30"}, []any{made.Family, made.Region, made.Units, made.Price.Decimal()})
	require.Equal(t, metering.Between(from, to), made.During)
	read, err := b.GetReservation(ctx, b.operator, c.Org, made.ID)
	require.NoError(t, err)
	require.Equal(t, made, read)

	require.NoError(t, b.ProgressReservations(ctx))
	require.Empty(t, b.charged(t, made.ID), "it has not begun")
	b.setClock(t, from.Add(time.Hour))
	for range 3 {
		require.NoError(t, b.ProgressReservations(ctx))
		require.Equal(t, []metering.Interval{{From: from}}, b.charged(t, made.ID), "from its start, once")
	}
	b.setClock(t, to.Add(time.Hour))
	for range 3 {
		require.NoError(t, b.ProgressReservations(ctx))
		december := november.AddDate(0, 1, 0)
		require.Equal(t, []metering.Interval{metering.Between(from, december), metering.Between(december, to)}, b.charged(t, made.ID),
			"to its end, sealed at the month")
	}
	require.Equal(t, 1, b.count(t, `select count(distinct start_id) from usage_segments`))
	terms := b.terms(t, c, november, november.AddDate(0, 1, 0))
	require.Equal(t, []billing.ReservedCapacity{{
		ID: made.ID, Name: "base load", Family: "H200-141/mig", Region: "local", Units: 3, During: metering.Between(from, to)}}, terms.Reservations)
	require.Empty(t, b.terms(t, c, to, to.AddDate(0, 1, 0)).Reservations)
	require.NoError(t, b.Store.InOrg(ctx, c.Org, func(x *store.OrgTx) error {
		u, err := x.UsageOf(ctx, c.Org, store.UsageFilter{})
		require.NoError(t, err)
		require.Len(t, u.Segments, 2)
		require.Equal(t, "0.30", u.Segments[0].Lock.Price.Decimal(), "the price at acceptance is the ceiling")
		return err
	}))
}

// A worker that slept through a whole term still charges all of it, and nothing else.
func TestALateWorkerChargesTheWholeTerm(t *testing.T) {
	b, c := newReserving(t)
	from, to := november.AddDate(0, 0, 20), november.AddDate(0, 2, 5)
	made, err := b.CreateReservation(t.Context(), b.operator, c.Org, app.NewReservation{Project: c.project, Offer: slice, Units: 3, From: from, To: to})
	require.NoError(t, err)
	require.Equal(t, slice, made.Name)
	b.setClock(t, to.AddDate(0, 1, 0))
	done := make(chan error)
	for range 4 {
		go func() { done <- b.ProgressReservations(t.Context()) }()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	require.Equal(t, to.Sub(from).Microseconds(), metering.Total(b.charged(t, made.ID)))
}

func TestAReservationInTroubleKeepsNoOtherFromItsMeter(t *testing.T) {
	b, c := newReserving(t)
	now := november.AddDate(0, 0, 8)
	var made [2]store.Reservation
	for i := range made {
		var err error
		made[i], err = b.CreateReservation(t.Context(), c.Caller, c.Org, app.NewReservation{Project: c.project, Offer: slice, Units: 3, To: now.AddDate(0, 0, 10)})
		require.NoError(t, err)
	}
	b.exec(t, `alter table usage_segments add constraint trouble check (subject_id <> '`+uuid.UUID(made[0].ID).String()+`')`)
	require.ErrorContains(t, b.ProgressReservations(t.Context()), "trouble")
	require.Empty(t, b.charged(t, made[0].ID))
	require.Equal(t, []metering.Interval{{From: made[1].During.From}}, b.charged(t, made[1].ID))
	b.exec(t, `alter table usage_segments drop constraint trouble`)
	require.NoError(t, b.ProgressReservations(t.Context()))
	require.Equal(t, []metering.Interval{{From: made[0].During.From}}, b.charged(t, made[0].ID))
}

func TestReservationsEndWithTheirTermOrByTheOperator(t *testing.T) {
	b, c := newReserving(t)
	ctx := t.Context()
	now := november.AddDate(0, 0, 8)
	reserve := func(from time.Time) store.Reservation {
		made, err := b.CreateReservation(ctx, c.Caller, c.Org, app.NewReservation{Project: c.project, Offer: slice, Units: 3, From: from, To: now.AddDate(0, 0, 10)})
		require.NoError(t, err)
		return made
	}
	running, later := reserve(time.Time{}), reserve(now.AddDate(0, 0, 1))
	require.NoError(t, b.ProgressReservations(ctx))
	_, err := b.EndReservation(ctx, c.Caller, c.Org, running.ID, time.Time{})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	_, err = b.EndReservation(ctx, b.operator, c.Org, running.ID, now.Add(-time.Hour))
	require.Equal(t, "/at", pointerOf(err))

	end := now.Add(36 * time.Hour)
	ended, err := b.EndReservation(ctx, b.operator, c.Org, running.ID, end)
	require.NoError(t, err)
	require.Equal(t, end, ended.During.To)
	cancelled, err := b.EndReservation(ctx, b.operator, c.Org, later.ID, time.Time{})
	require.NoError(t, err)
	require.NotNil(t, cancelled.CancelledAt)
	_, err = b.EndReservation(ctx, b.operator, c.Org, later.ID, time.Time{})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	b.setClock(t, now.AddDate(0, 0, 5))
	require.NoError(t, b.ProgressReservations(ctx))
	require.Equal(t, []metering.Interval{metering.Between(running.During.From, end)}, b.charged(t, running.ID))
	require.Empty(t, b.charged(t, later.ID))
	require.Len(t, b.terms(t, c, november, november.AddDate(0, 1, 0)).Reservations, 1)

	list, err := b.ListReservations(ctx, c.Caller, c.Org, app.Page{Size: 1})
	require.NoError(t, err)
	require.Equal(t, later.ID, list.Items[0].ID)
	require.NotEmpty(t, list.Next)
	other := b.tenant(t, "other", quota.Limits{})
	_, err = b.GetReservation(ctx, other.Caller, c.Org, running.ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	for _, sql := range []string{`update reservations set units = 1`, `update reservations set during = tstzrange(lower(during), null)`, `delete from reservations`} {
		_, err := b.owner.Exec(ctx, sql)
		require.Error(t, err, sql)
	}
}

func TestBadReservationsAreRefused(t *testing.T) {
	b, c := newReserving(t)
	now := november.AddDate(0, 0, 8)
	good := app.NewReservation{Project: c.project, Offer: slice, Units: 1, To: now.AddDate(0, 1, 0)}
	for name, bad := range map[string]struct {
		change        func(*app.NewReservation)
		code, pointer string
	}{
		"no units":          {func(r *app.NewReservation) { r.Units = 0 }, "request.invalid", "/units"},
		"negative units":    {func(r *app.NewReservation) { r.Units = -1 }, "request.invalid", "/units"},
		"absurd units":      {func(r *app.NewReservation) { r.Units = 1_000_001 }, "request.invalid", "/units"},
		"no end":            {func(r *app.NewReservation) { r.To = time.Time{} }, "request.invalid", "/to"},
		"the past":          {func(r *app.NewReservation) { r.From = now.AddDate(0, 0, -1) }, "request.invalid", "/from"},
		"an end before":     {func(r *app.NewReservation) { r.From = r.To }, "request.invalid", "/to"},
		"a hundred years":   {func(r *app.NewReservation) { r.To = now.AddDate(100, 0, 0) }, "request.invalid", "/to"},
		"an unknown offer":  {func(r *app.NewReservation) { r.Offer = "nothing" }, "offer.unknown", "/offer"},
		"a foreign project": {func(r *app.NewReservation) { r.Project = id.New[id.Project]() }, "resource.not_found", ""},
		"a bad name":        {func(r *app.NewReservation) { r.Name = "a\nb" }, "request.invalid", "/name"},
	} {
		in := good
		bad.change(&in)
		_, err := b.CreateReservation(t.Context(), c.Caller, c.Org, in)
		require.Equal(t, bad.code, fault.CodeOf(err), name)
		require.Equal(t, bad.pointer, pointerOf(err), name)
	}
	other := b.tenant(t, "other", quota.Limits{})
	_, err := b.CreateReservation(t.Context(), other.Caller, c.Org, good)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	require.Zero(t, b.count(t, `select count(*) from reservations`))
}

func TestWithoutAPriceNothingIsReserved(t *testing.T) {
	b := newBilled(t)
	b.simulateHost(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	in := app.NewReservation{Project: c.project, Offer: slice, Units: 3, From: november.AddDate(0, 0, 2), To: november.AddDate(0, 0, 20)}
	_, err := b.CreateReservation(ctx, c.Caller, c.Org, in)
	require.Equal(t, "offer.unavailable", fault.CodeOf(err))
	price := app.ContractTerms{Prices: []app.OfferPrice{{Offer: slice, Meter: metering.Reservation, PerHour: "0.20"}}}
	contract, err := b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "short", To: in.To.Add(-time.Hour), ContractTerms: price})
	require.NoError(t, err)
	_, err = b.CreateReservation(ctx, c.Caller, c.Org, in)
	require.Equal(t, "offer.unavailable", fault.CodeOf(err), "the contract ends before the term does")
	_, err = b.EndContract(ctx, b.operator, c.Org, contract.ID, november.AddDate(0, 0, 1))
	require.NoError(t, err)
	_, err = b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "long", From: november.AddDate(0, 0, 1), ContractTerms: price})
	require.NoError(t, err)
	made, err := b.CreateReservation(ctx, c.Caller, c.Org, in)
	require.NoError(t, err)
	require.Nil(t, made.Price, "no list price, no ceiling")
}
