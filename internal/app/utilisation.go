package app

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Utilisation is what a month made of the GPUs there are. Times are GPU·microseconds of
// business time, exact; a slice counts as its share of the GPU by memory, cut to whole
// microseconds once a row.
type Utilisation struct {
	Period string
	Until  time.Time // the end of the month, or now
	Rows   []UtilisationRow
}

// UtilisationRow is one model in one mode on one host. A zero host gathers what no host
// is known for: reservations, and usage of bulk records.
type UtilisationRow struct {
	Model, Mode string
	Host        id.Host
	HostName    string
	GPUs        int
	Sold        int64
	Sellable    int64 // healthy, settled, not cordoned, on a ready and live host
	Idle        int64 // Sellable − Sold, at least 0
	// Observed is how much of the time was looked at; of the rest nothing is known, so
	// where it is less than the GPUs' whole time, Sellable and Idle are estimates from below.
	Observed  int64
	Estimated bool
	Revenue   []money.Exact // gross of the rated usage, one for each currency
}

type utilisationKey struct {
	model, mode string
	host        id.Host
}

type utilisation struct {
	rows map[utilisationKey]*UtilisationRow
	sold map[utilisationKey]*big.Rat
}

func (u *utilisation) row(k utilisationKey, name string) *UtilisationRow {
	if u.rows[k] == nil {
		u.rows[k] = &UtilisationRow{Model: k.model, Mode: k.mode, Host: k.host, HostName: name}
		u.sold[k] = new(big.Rat)
	}
	return u.rows[k]
}

// UtilisationReport tells, for a month up to now, what was sold of each model, mode and
// host, what could have been, and what the usage is worth before tax, promo and prepaid.
// For operators. It fails with request.invalid.
func (a *App) UtilisationReport(ctx context.Context, _ Caller, period string) (Utilisation, error) {
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return Utilisation{}, err
	}
	u := &utilisation{rows: map[utilisationKey]*UtilisationRow{}, sold: map[utilisationKey]*big.Rat{}}
	var orgs []store.UsingOrg
	until := window.To
	err = a.Store.InSystem(ctx, "report utilisation", func(t *store.SystemTx) (err error) {
		now, err := t.BusinessNow(ctx)
		if err != nil {
			return err
		}
		if now.Before(until) {
			until = metering.Instant(now)
		}
		if err := u.times(ctx, t, period, window); err != nil {
			return err
		}
		orgs, err = t.OrganizationsUsing(ctx, period)
		return err
	})
	if err != nil {
		return Utilisation{}, err
	}
	window.To = until
	for _, o := range orgs {
		if err := a.Store.InSystem(ctx, "report revenue", func(t *store.SystemTx) error {
			return u.revenue(ctx, t, o, period, window)
		}); err != nil {
			return Utilisation{}, err
		}
	}
	return Utilisation{Period: period, Until: until, Rows: u.finish(window)}, nil
}

func (u *utilisation) times(ctx context.Context, t *store.SystemTx, period string, window metering.Interval) error {
	gpus, err := t.GPUTimeOf(ctx, window)
	if err != nil {
		return err
	}
	for _, g := range gpus {
		r := u.row(utilisationKey{g.Model, offeredMode(g.Mode), g.Host}, g.HostName)
		r.GPUs += g.GPUs
		r.Observed += g.Observed
		r.Sellable += g.Sellable
	}
	sold, err := t.SoldOf(ctx, period, window)
	if err != nil {
		return err
	}
	for _, s := range sold {
		k := utilisationKey{s.Model, s.Mode, s.Host}
		u.row(k, s.HostName)
		u.sold[k].Add(u.sold[k], share(s))
	}
	return nil
}

// share is sold time as whole GPUs.
func share(s store.SoldTime) *big.Rat {
	out := new(big.Rat).SetInt64(s.Used)
	if s.Mode == "whole" || s.OfMemory <= 0 || s.Memory >= s.OfMemory {
		return out.Mul(out, new(big.Rat).SetInt64(int64(s.GPUs)))
	}
	return out.Mul(out, big.NewRat(s.Memory, s.OfMemory))
}

// offeredMode names the mode of a GPU as SKUs do: the modes of MPS and of time slices
// carry the number of their slots.
func offeredMode(mode string) string {
	for _, m := range []string{"mps", "timeslice"} {
		if strings.HasPrefix(mode, m) {
			return m
		}
	}
	return mode
}

// revenue rates what an organization used, as its invoice would.
func (u *utilisation) revenue(ctx context.Context, t *store.SystemTx, o store.UsingOrg, period string, window metering.Interval) error {
	usage, err := t.UsageOf(ctx, o.Org, store.UsageFilter{Window: window})
	if err != nil {
		return err
	}
	hosts, err := t.HostsOfUsage(ctx, o.Org, period)
	if err != nil {
		return err
	}
	in, err := priceUsage(ctx, t, o.Org, usage, window, window.To, o.Currency)
	if err != nil {
		return err
	}
	keys := map[string]utilisationKey{}
	views, err := rating.Views(in, []metering.Interval{window}, func(x rating.Usage) string {
		host := hosts[store.KeyOf(x)]
		name := x.SKU.Family + groupSeparator + host.String()
		if _, known := keys[name]; !known {
			keys[name] = onHost(x.SKU, host)
		}
		return name
	})
	if err != nil {
		return err
	}
	for _, v := range views {
		r := u.row(keys[v.Group], "")
		if r.Revenue, err = plus(r.Revenue, v.Exact); err != nil {
			return err
		}
	}
	return nil
}

// onHost names a family on a host.
func onHost(s billing.SKU, host id.Host) utilisationKey {
	cut := strings.LastIndexByte(s.Family, '/')
	if cut < 0 {
		return utilisationKey{s.Family, "", host}
	}
	return utilisationKey{s.Family[:cut], s.Family[cut+1:], host}
}

// plus adds an amount to the one of its currency.
func plus(list []money.Exact, e money.Exact) ([]money.Exact, error) {
	for i, have := range list {
		if have.Currency() != e.Currency() {
			continue
		}
		sum, err := have.Add(e)
		list[i] = sum
		return list, err
	}
	return append(list, e), nil
}

func (u *utilisation) finish(window metering.Interval) []UtilisationRow {
	out := make([]UtilisationRow, 0, len(u.rows))
	for k, r := range u.rows {
		r.Sold = new(big.Int).Quo(u.sold[k].Num(), u.sold[k].Denom()).Int64()
		r.Idle = max(0, r.Sellable-r.Sold)
		r.Estimated = r.Observed < int64(r.GPUs)*window.Micros() || r.Sold > r.Sellable
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b UtilisationRow) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.HostName, b.HostName), slices.Compare(a.Host[:], b.Host[:]))
	})
	return out
}
