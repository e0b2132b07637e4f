package app_test

import (
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
)

const family = "H200-141/mig"

// everything is a contract with a term of each kind.
func everything() app.ContractTerms {
	all, mine := app.TermScope{}, app.TermScope{Meter: metering.GPU, Family: family}
	return app.ContractTerms{
		Prices:         []app.OfferPrice{{Offer: slice, Meter: metering.GPU, Tiers: graduated()}, {Offer: slice, Meter: metering.Reservation, PerHour: "0.30"}},
		Discounts:      []app.ContractDiscount{{Name: "partner", Scope: mine, Percent: "12.5"}, {Name: "early", Scope: mine, Percent: "0.0001"}},
		FreeQuotas:     []app.ContractQuota{{Name: "trial", Scope: mine, Quantity: "10.5"}},
		Minimums:       []app.ContractMinimum{{Scope: app.TermScope{Offer: slice}, Seconds: 600}},
		Caps:           []app.ContractCap{{Scope: mine, Hours: 672}, {Scope: all, Amount: "5000.00"}},
		Commitments:    []app.ContractAmount{{Name: "base", Scope: all, Amount: "1000.00"}},
		FixedDiscounts: []app.ContractAmount{{Name: "welcome", Scope: all, Amount: "50.00"}},
	}
}

func TestContractsBindFromTheirStart(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c, other := b.tenant(t, "acme", quota.Limits{}), b.tenant(t, "other", quota.Limits{})
	december := november.AddDate(0, 1, 0)
	made, err := b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: " frame ", Currency: "USD", From: december, ContractTerms: everything()})
	require.NoError(t, err)
	require.Equal(t, "frame", made.Name)
	require.Equal(t, everything(), made.ContractTerms, "it reads as it was written")
	read, err := b.GetContract(ctx, c.Caller, c.Org, made.ID)
	require.NoError(t, err)
	read.CreatedAt = made.CreatedAt
	require.Equal(t, made, read)
	list, err := b.ListContracts(ctx, c.Caller, c.Org, app.Page{Size: 10})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	_, err = b.GetContract(ctx, other.Caller, c.Org, made.ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = b.GetContract(ctx, other.Caller, other.Org, made.ID)
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	_, err = b.CreateContract(ctx, c.Caller, c.Org, app.NewContract{Name: "mine", ContractTerms: everything()})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))
	_, err = b.EndContract(ctx, c.Caller, c.Org, made.ID, time.Time{})
	require.Equal(t, "auth.forbidden", fault.CodeOf(err))

	require.Equal(t, billing.Terms{}, b.terms(t, c, november, december), "not in force yet")
	terms := b.terms(t, c, december, december.AddDate(0, 1, 0))
	during := metering.Interval{From: december}
	gpu := billing.Scope{Meter: metering.GPU, Family: family}
	require.Equal(t, []billing.ScopedDiscount{
		{Contract: made.ID, Discount: billing.Discount{Name: "partner", PPM: 125_000}, Scope: gpu, During: during},
		{Contract: made.ID, Discount: billing.Discount{Name: "early", PPM: 1}, Scope: gpu, During: during},
	}, terms.Discounts)
	require.Equal(t, []billing.FreeQuota{{Contract: made.ID, Name: "trial", Scope: gpu, Quantity: big.NewInt(37_800_000_000), During: during}}, terms.FreeQuotas)
	require.Equal(t, []billing.Minimum{{Scope: billing.Scope{SKU: b.sku}, Micros: 600_000_000, During: during}}, terms.Minimums)
	require.Equal(t, []billing.Cap{
		{Contract: made.ID, Scope: gpu, Hours: 672, During: during},
		{Contract: made.ID, Amount: money.NewAmount(500_000, usd), During: during},
	}, terms.Caps)
	require.Equal(t, []billing.CommittedAmount{{Contract: made.ID, Name: "base", Amount: money.NewAmount(100_000, usd), During: during}}, terms.Commitments)
	require.Equal(t, []billing.AmountOff{{Contract: made.ID, Name: "welcome", Amount: money.NewAmount(5_000, usd), During: during}}, terms.FixedDiscounts)
	require.Len(t, terms.Prices, 2)
	require.Equal(t, billing.Graduated, terms.Prices[0].Tiers.Kind)
	require.Equal(t, big.NewRat(100, 1), terms.Prices[0].Tiers.Steps[0].UpTo)
	require.Equal(t, "0.30", terms.Prices[1].Price.Decimal())
	require.Equal(t, billing.Terms{}, b.terms(t, other, december, december.AddDate(0, 1, 0)), "of nobody else")
}

func TestContractsOverlapInNothing(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	december, january := november.AddDate(0, 1, 0), november.AddDate(0, 2, 0)
	create := func(from, to time.Time, terms app.ContractTerms) (app.Contract, error) {
		return b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "frame", From: from, To: to, ContractTerms: terms})
	}
	first, err := create(december, january, everything())
	require.NoError(t, err)
	for name, terms := range map[string]app.ContractTerms{
		"price":          {Prices: everything().Prices[:1]},
		"discount":       {Discounts: everything().Discounts[:1]},
		"free quota":     {FreeQuotas: []app.ContractQuota{{Name: "another", Scope: app.TermScope{Meter: metering.GPU, Family: family}, Quantity: "1"}}},
		"minimum":        {Minimums: everything().Minimums},
		"cap":            {Caps: everything().Caps[1:]},
		"commitment":     {Commitments: []app.ContractAmount{{Name: "another", Amount: "1.00"}}},
		"fixed discount": {FixedDiscounts: everything().FixedDiscounts},
	} {
		_, err := create(january.Add(-time.Microsecond), time.Time{}, terms)
		require.Equal(t, "state.conflict", fault.CodeOf(err), name)
	}
	_, err = create(time.Time{}, time.Time{}, app.ContractTerms{Minimums: everything().Minimums})
	require.Equal(t, "state.conflict", fault.CodeOf(err), "without end it reaches into the other")
	_, err = create(time.Time{}, time.Time{}, app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "third", Scope: app.TermScope{Meter: metering.GPU, Family: family}, Percent: "5"}}})
	require.NoError(t, err, "discounts of other names stand beside each other")
	_, err = create(january, time.Time{}, everything())
	require.NoError(t, err, "the next one begins where the first ends")
	_, err = b.EndContract(ctx, b.operator, c.Org, first.ID, time.Time{})
	require.NoError(t, err, "not begun: cancelled")
	_, err = create(december, january, everything())
	require.NoError(t, err, "a cancelled one is not in the way")

	late := b.tenant(t, "late", quota.Limits{})
	var won, lost int
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			_, err := b.CreateContract(ctx, b.operator, late.Org, app.NewContract{Name: "race", ContractTerms: everything()})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if k := fault.KindOf(err); k == fault.Conflict || k == fault.Unavailable {
				lost++
			}
		})
	}
	group.Wait()
	require.Equal(t, []int{1, 7}, []int{won, lost}, "of two at once one is made")
}

func TestAContractEndsEarlyInTheFutureOnly(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	january := november.AddDate(0, 2, 0)
	made, err := b.CreateContract(ctx, b.operator, c.Org, app.NewContract{Name: "frame", To: january, ContractTerms: everything()})
	require.NoError(t, err)
	b.setClock(t, november.AddDate(0, 0, 10))
	end := func(at time.Time) error {
		_, err := b.EndContract(ctx, b.operator, c.Org, made.ID, at)
		return err
	}
	require.Equal(t, "/at", pointerOf(end(november.AddDate(0, 0, 9))), "what was in force stays")
	require.Equal(t, "/at", pointerOf(end(january.Add(time.Hour))))
	december := november.AddDate(0, 1, 0)
	require.NoError(t, end(december))
	got, err := b.GetContract(ctx, b.operator, c.Org, made.ID)
	require.NoError(t, err)
	require.Equal(t, december, got.During.To)
	require.NotEmpty(t, got.EndedBy)
	require.Equal(t, "/at", pointerOf(end(january)), "an end never moves away")
	require.Equal(t, billing.Terms{}, b.terms(t, c, december, january))
	require.Len(t, b.terms(t, c, november, december).Caps, 2)
	require.NoError(t, end(time.Time{}), "now")
	b.setClock(t, december)
	require.Equal(t, "state.conflict", fault.CodeOf(end(time.Time{})))
	_, err = b.EndContract(ctx, b.operator, c.Org, id.New[id.Contract](), time.Time{})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))

	for _, sql := range []string{
		`update contracts set name = 'x'`, `update contract_terms set ppm = 2 where ppm = 1`, `update contract_steps set amount = 0`,
		`update contracts set during = tstzrange(lower(during), null)`, `update contracts set during = tstzrange(lower(during), lower(during) + interval '1 hour')`,
		`update contract_terms set during = tstzrange(lower(during), biz_now() + interval '1 day')`,
		`update contracts set cancelled_at = biz_now()`, `delete from contract_terms`, `delete from contracts`, `truncate contracts cascade`,
	} {
		_, err := b.owner.Exec(ctx, sql)
		require.Error(t, err, sql)
	}
}

func TestBadContractsAreRefused(t *testing.T) {
	b := newBilled(t)
	ctx := t.Context()
	c := b.tenant(t, "acme", quota.Limits{})
	one := app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "5"}}}
	scope := app.TermScope{Meter: metering.GPU}
	for name, bad := range map[string]struct {
		in      app.NewContract
		pointer string
	}{
		"no name":             {app.NewContract{ContractTerms: one}, "/name"},
		"a name on two lines": {app.NewContract{Name: "a\nb", ContractTerms: one}, "/name"},
		"unknown currency":    {app.NewContract{Name: "x", Currency: "XTS", ContractTerms: one}, "/currency"},
		"another currency":    {app.NewContract{Name: "x", Currency: "EUR", ContractTerms: one}, "/currency"},
		"in the past":         {app.NewContract{Name: "x", From: november.Add(-time.Hour), ContractTerms: one}, "/from"},
		"ends before":         {app.NewContract{Name: "x", From: november.AddDate(0, 1, 0), To: november.AddDate(0, 0, 20), ContractTerms: one}, "/to"},
		"in a thousand years": {app.NewContract{Name: "x", From: november.AddDate(1000, 0, 0), ContractTerms: one}, "/to"},
		"nothing":             {app.NewContract{Name: "x"}, ""},
		"price negative":      {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Prices: []app.OfferPrice{{Offer: slice, PerHour: "-1"}}}}, "/prices/0/price_per_hour"},
		"price of nothing":    {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Prices: []app.OfferPrice{{Offer: "nothing", PerHour: "1"}}}}, "/prices/0/offer"},
		"discount of 101 %":   {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "101"}}}}, "/discounts/0/percent"},
		"discount of 0 %":     {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "0"}}}}, "/discounts/0/percent"},
		"discount below ppm":  {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "1.00001"}}}}, "/discounts/0/percent"},
		"negative discount":   {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "-1"}}}}, "/discounts/0/percent"},
		"unknown meter":       {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "1", Scope: app.TermScope{Meter: "steam"}}}}}, "/discounts/0/scope/meter"},
		"no family":           {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "1", Scope: app.TermScope{Family: "H200"}}}}}, "/discounts/0/scope/family"},
		"family and offer":    {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "1", Scope: app.TermScope{Family: family, Offer: slice}}}}}, "/discounts/0/scope/family"},
		"scope of no offer":   {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Discounts: []app.ContractDiscount{{Name: "d", Percent: "1", Scope: app.TermScope{Offer: "nothing"}}}}}, "/discounts/0/scope/offer"},
		"negative quota":      {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{FreeQuotas: []app.ContractQuota{{Name: "q", Scope: scope, Quantity: "-1"}}}}, "/free_quotas/0/quantity"},
		"absurd quota":        {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{FreeQuotas: []app.ContractQuota{{Name: "q", Scope: scope, Quantity: "1000000000000"}}}}, "/free_quotas/0/quantity"},
		"quota of a fraction": {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{FreeQuotas: []app.ContractQuota{{Name: "q", Scope: scope, Quantity: "0.000000000001"}}}}, "/free_quotas/0/quantity"},
		"no minimum":          {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Minimums: []app.ContractMinimum{{Seconds: 0}}}}, "/minimums/0/seconds"},
		"minimum of storage":  {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Minimums: []app.ContractMinimum{{Seconds: 1, Scope: app.TermScope{Meter: metering.Storage}}}}}, "/minimums/0/scope/meter"},
		"cap of 745 hours":    {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Caps: []app.ContractCap{{Hours: 745}}}}, "/caps/0/hours"},
		"cap of both":         {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Caps: []app.ContractCap{{Hours: 1, Amount: "1"}}}}, "/caps/0/hours"},
		"cap below commitment": {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{
			Caps: []app.ContractCap{{Amount: "999.99"}}, Commitments: []app.ContractAmount{{Name: "c", Amount: "1000.00"}}}}, "/caps/0/amount"},
		"no commitment":       {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Commitments: []app.ContractAmount{{Name: "c", Amount: "0"}}}}, "/commitments/0/amount"},
		"negative commitment": {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Commitments: []app.ContractAmount{{Name: "c", Amount: "-1.00"}}}}, "/commitments/0/amount"},
		"tenths of a cent":    {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{Commitments: []app.ContractAmount{{Name: "c", Amount: "1.001"}}}}, "/commitments/0/amount"},
		"absurd amount":       {app.NewContract{Name: "x", ContractTerms: app.ContractTerms{FixedDiscounts: []app.ContractAmount{{Name: "f", Amount: "99999999999999999999"}}}}, "/fixed_discounts/0/amount"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.CreateContract(ctx, b.operator, c.Org, bad.in)
			require.Contains(t, []fault.Kind{fault.Invalid, fault.Unprocessable}, fault.KindOf(err), "%v", err)
			require.Equal(t, bad.pointer, pointerOf(err), "%v", err)
		})
	}
	_, err := b.CreateContract(ctx, b.operator, id.New[id.Org](), app.NewContract{Name: "x", ContractTerms: one})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
	require.Zero(t, b.count(t, `select count(*) from contracts where org_id = $1`, uuid.UUID(c.Org)), "nothing was written")
}

func TestMinimumsKnowTheStartsThatEnded(t *testing.T) {
	b := newBilled(t)
	c := b.tenant(t, "acme", quota.Limits{})
	_, err := b.CreateContract(t.Context(), b.operator, c.Org, app.NewContract{Name: "frame", ContractTerms: app.ContractTerms{Minimums: everything().Minimums}})
	require.NoError(t, err)
	december := november.AddDate(0, 1, 0)
	over, in := b.instance(t, c, "over"), b.instance(t, c, "in")
	require.True(t, b.start(t, c, over, 1, december.Add(-time.Hour)))
	require.True(t, b.start(t, c, in, 1, november.Add(time.Hour)))
	require.True(t, b.stop(t, c, in, metering.OurFault, metering.Facts{FirstSymptom: november.Add(2 * time.Hour), LastProof: november.Add(3 * time.Hour)}))
	b.setClock(t, december.Add(2*time.Hour))
	require.True(t, b.stop(t, c, over, metering.DeleteAccepted, metering.Facts{At: december.Add(time.Hour)}))

	starts := b.terms(t, c, november, december).Starts
	require.Len(t, starts, 1, "the other one was not over")
	require.Equal(t, []any{november.Add(2 * time.Hour), "operator", int64(0)}, []any{starts[0].Ended, starts[0].Party, starts[0].Earlier})
	starts = b.terms(t, c, december, december.AddDate(0, 1, 0)).Starts
	require.Len(t, starts, 1)
	require.Equal(t, []any{december.Add(time.Hour), "tenant", time.Hour.Microseconds()}, []any{starts[0].Ended, starts[0].Party, starts[0].Earlier})
}
