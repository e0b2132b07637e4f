package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/units"
)

// wholeSpec is an offer of the GPUs that world.host makes.
func wholeSpec(name string) app.OfferSpec {
	return app.OfferSpec{
		ID: name, Kind: gpu.Whole, Enabled: true,
		Shape: offer.Shape{Model: "TEST-80", Count: 1, Memory: 81920, VCPU: 4, RAM: 32 * units.GiB},
	}
}

// host adds a ready host with whole GPUs.
func (w world) host(t *testing.T, name string, gpus int) {
	t.Helper()
	f := &fleet{store: w.Store, owner: w.db.OwnerPool(t)}
	f.host(t, name, gpus, gpu.Device{Model: "TEST-80", Memory: 81920, SMs: 132, Simulated: true}, gpu.WholeMode())
	f.exec(t, `update gpus set simulated = true`)
}

// sell puts an offer and prices it for everybody who has the default book.
func (w world) sell(t *testing.T, spec app.OfferSpec, price string) app.Offer {
	t.Helper()
	o, err := w.PutOffer(t.Context(), w.operator, spec)
	require.NoError(t, err)
	w.exec(t, `with b as (
			insert into price_books (id, name, currency, is_default) values (gen_random_uuid(), $1, 'USD', true)
			on conflict do nothing returning id),
		v as (insert into price_versions (id, price_book_id, version, effective_from)
			select gen_random_uuid(), id, 1, '2020-01-01' from b returning id),
		a as (insert into organization_price_books (org_id, price_book_id, during)
			select o.id, b.id, '[2020-01-01,)' from organizations o, b)
		insert into prices (price_version_id, sku_id, meter, amount) select id, $2, 'gpu', $3::text::numeric from v`,
		spec.ID, o.SKU.ID, price)
	return o
}

func TestOfferIsListedWithPriceAndAvailability(t *testing.T) {
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", quota.Limits{})
	w.host(t, "a", 2)
	w.host(t, "b", 3)
	_, err := w.PutOffer(t.Context(), w.operator, wholeSpec("unpriced"))
	require.NoError(t, err)
	spec := wholeSpec("pair")
	spec.Shape.Count = 2
	w.sell(t, spec, "3.5")

	list, err := w.ListOffers(t.Context(), acme.Caller, app.OfferFilter{}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "what has no price is not listed")
	got := list.Items[0]
	require.Equal(t, "pair", got.ID)
	require.Equal(t, "3.50 USD", got.Price.String())
	require.Equal(t, 2, got.Available, "one pair on each host; the third GPU of b is left over")
	require.True(t, got.Simulated)
	require.Equal(t, offer.Isolation{GPU: gpu.Dedicated, Host: offer.SingleOrgHost}, got.SKU.Isolation)

	all, err := w.ListAdminOffers(t.Context(), w.operator, app.Page{Size: 1})
	require.NoError(t, err)
	require.Equal(t, "pair", all.Items[0].ID)
	all, err = w.ListAdminOffers(t.Context(), w.operator, app.Page{Size: 1, Cursor: all.Next})
	require.NoError(t, err)
	require.Equal(t, "unpriced", all.Items[0].ID)
	require.Nil(t, all.Items[0].Price)
	require.Empty(t, all.Next)
	none, err := w.ListOffers(t.Context(), acme.Caller, app.OfferFilter{Mode: gpu.MIG}, app.Page{Size: 10})
	require.NoError(t, err)
	require.Empty(t, none.Items)
}

func TestPutOfferIsIdempotentAndKeepsSKUsImmutable(t *testing.T) {
	w := newWorld(t, clock.Real())
	first, err := w.PutOffer(t.Context(), w.operator, wholeSpec("big"))
	require.NoError(t, err)
	same, err := w.PutOffer(t.Context(), w.operator, wholeSpec("big"))
	require.NoError(t, err)
	require.Equal(t, first, same)
	twin, err := w.PutOffer(t.Context(), w.operator, wholeSpec("twin"))
	require.NoError(t, err)
	require.Equal(t, first.SKU, twin.SKU, "equal content is one SKU")

	changed := wholeSpec("big")
	changed.Shape.VCPU = 8
	second, err := w.PutOffer(t.Context(), w.operator, changed)
	require.NoError(t, err)
	require.Equal(t, int64(2), second.Generation)
	require.NotEqual(t, first.SKU.ID, second.SKU.ID)
	require.Regexp(t, `^big-[0-9a-f]{8}$`, second.SKU.Code)
	back, err := w.PutOffer(t.Context(), w.operator, wholeSpec("big"))
	require.NoError(t, err)
	require.Equal(t, first.SKU, back.SKU)
}

func TestPutOfferRefusesImpossibleShapes(t *testing.T) {
	w := newWorld(t, clock.Real())
	for name, change := range map[string]func(*app.OfferSpec){
		"whole with a profile": func(s *app.OfferSpec) { s.Shape.Profile = "1g.18gb" },
		"mig without one":      func(s *app.OfferSpec) { s.Kind = gpu.MIG },
		"mps grid":             func(s *app.OfferSpec) { s.Kind, s.Shape.Profile = gpu.MPS, "5x25" },
		"timeslice text":       func(s *app.OfferSpec) { s.Kind, s.Shape.Profile = gpu.TimeSlice, "two" },
		"unknown mode":         func(s *app.OfferSpec) { s.Kind = "vgpu" },
		"unknown pool":         func(s *app.OfferSpec) { s.Pool = "nowhere" },
		"other region":         func(s *app.OfferSpec) { s.Region = "mars" },
	} {
		spec := wholeSpec("x")
		change(&spec)
		_, err := w.PutOffer(t.Context(), w.operator, spec)
		require.Equal(t, "request.invalid", fault.CodeOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
	require.Zero(t, w.count(t, `select count(*) from offers`))
}

func TestMPSOfferIsSharedAndLimited(t *testing.T) {
	w := newWorld(t, clock.Real())
	o, err := w.PutOffer(t.Context(), w.operator, app.OfferSpec{ID: "q", Kind: gpu.MPS, Enabled: true, Shape: offer.Shape{
		Model: "TEST-80", Profile: "4x25", Memory: 20000, VCPU: 1, RAM: 1024,
	}})
	require.NoError(t, err)
	require.Equal(t, "mps:4x25", o.SKU.Shape.Mode.String())
	require.Equal(t, 25, o.SKU.Shape.SMPercent)
	require.Equal(t, 1, o.SKU.Shape.Count)
	require.Equal(t, gpu.Shared, o.SKU.Isolation.GPU)
}
