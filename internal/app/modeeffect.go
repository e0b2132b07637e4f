package app

import (
	"context"
	"maps"
	"math/big"
	"slices"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/host"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store"
)

// ModeEffect is what a change of mode would do: to whom, and to what the GPU earns.
type ModeEffect struct {
	GPU          id.GPU
	From, To     gpu.Mode
	Instances    []store.GPUTenant
	Lost, Gained []GPUOffer
	Revenue      []ModeRevenue // one a currency, by its code
}

// GPUOffer is an offer that a GPU serves in a mode.
type GPUOffer struct {
	Offer string
	Slots int          // how many fit on the empty GPU
	Price *money.Price // an hour, of a default book; nil: none
}

// ModeRevenue is what a GPU earns an hour in one currency.
type ModeRevenue struct {
	Currency      string
	Instances     money.Exact // what the instances on it pay now
	Before, After money.Exact // the best list price of the whole GPU in either mode
}

// ModeEffect says what SetMode would do, and does nothing. It fails as SetMode does.
func (a *App) ModeEffect(ctx context.Context, _ Caller, g id.GPU, m Match, in NewModeChange) (ModeEffect, error) {
	var out ModeEffect
	err := a.Store.InSystem(ctx, "what a mode change would do", func(t *store.SystemTx) error {
		seen, err := t.GPU(ctx, g, store.Unlocked)
		if err != nil {
			return err
		}
		if err := m.require(seen.Generation); err != nil {
			return err
		}
		if err := a.maySwitch(ctx, t, seen, in.Mode); err != nil {
			return err
		}
		out = ModeEffect{GPU: g, From: seen.Mode, To: in.Mode}
		if out.Instances, err = t.GPUTenants(ctx, g); err != nil {
			return err
		}
		if out.Lost, err = gpuOffers(ctx, t, seen, seen.Mode); err != nil {
			return err
		}
		out.Gained, err = gpuOffers(ctx, t, seen, in.Mode)
		return err
	})
	if err != nil {
		return ModeEffect{}, err
	}
	out.Revenue, err = revenueOf(out)
	return out, err
}

// deviceOf returns the GPU as its driver describes it, and its host without what is
// held there.
func deviceOf(ctx context.Context, t *store.SystemTx, g GPU) (gpu.Device, placement.Host, error) {
	on, err := t.Host(ctx, g.Host)
	if err != nil {
		return gpu.Device{}, placement.Host{}, err
	}
	fleet, err := t.Fleet(ctx, on.Pool)
	if err != nil {
		return gpu.Device{}, placement.Host{}, err
	}
	for _, h := range fleet.Hosts {
		for _, x := range h.GPUs {
			if x.ID == g.ID {
				return x.Device, placement.Host{ID: h.ID, State: host.Ready, Liveness: host.Live, VCPU: h.VCPU, RAM: h.RAM}, nil
			}
		}
	}
	return gpu.Device{}, placement.Host{}, fault.New(fault.Conflict, "state.conflict", "The GPU is not in its pool now.").
		Suggest("Look at its host.")
}

// gpuOffers lists the enabled offers of a GPU's pool that it alone serves in a mode.
func gpuOffers(ctx context.Context, t *store.SystemTx, g GPU, mode gpu.Mode) ([]GPUOffer, error) {
	device, alone, err := deviceOf(ctx, t, g)
	if err != nil {
		return nil, err
	}
	on, err := t.Host(ctx, g.Host)
	if err != nil {
		return nil, err
	}
	alone.GPUs = []placement.GPU{{ID: g.ID, Device: device, Mode: mode, Settled: true, Healthy: true}}
	var out []GPUOffer
	f := store.OfferFilter{Model: g.Model, Mode: mode.Kind, Size: offersAtOnce}
	for {
		rows, err := t.AllOffers(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, o := range rows {
			f.After = o.ID
			if !o.Enabled || o.Pool != on.Pool || o.SKU.Shape.Mode != mode {
				continue
			}
			fit := placement.Room(placement.Snapshot{Tenancy: placement.SharedHosts, Hosts: []placement.Host{alone}}, o.SKU.Shape.Request(id.Org{}))
			if fit > 0 {
				out = append(out, GPUOffer{Offer: o.ID, Slots: fit, Price: o.Price})
			}
		}
		if len(rows) < offersAtOnce {
			return out, nil
		}
	}
}

// offersAtOnce is how many offers one statement reads.
const offersAtOnce = 200

func revenueOf(e ModeEffect) ([]ModeRevenue, error) {
	by := map[string]*ModeRevenue{}
	of := func(c money.Currency) *ModeRevenue {
		r, ok := by[c.Code()]
		if !ok {
			r = &ModeRevenue{Currency: c.Code(), Instances: money.ZeroExact(c), Before: money.ZeroExact(c), After: money.ZeroExact(c)}
			by[c.Code()] = r
		}
		return r
	}
	for _, i := range e.Instances {
		r := of(i.Price.Currency())
		sum, err := r.Instances.Add(i.Price.Times(big.NewInt(1), 1))
		if err != nil {
			return nil, err
		}
		r.Instances = sum
	}
	best := func(offers []GPUOffer, side func(*ModeRevenue) *money.Exact) {
		for _, o := range offers {
			if o.Price == nil {
				continue
			}
			full, most := o.Price.Times(big.NewInt(int64(o.Slots)), 1), side(of(o.Price.Currency()))
			if full.Cmp(*most) > 0 {
				*most = full
			}
		}
	}
	best(e.Lost, func(r *ModeRevenue) *money.Exact { return &r.Before })
	best(e.Gained, func(r *ModeRevenue) *money.Exact { return &r.After })
	var out []ModeRevenue
	for _, code := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[code])
	}
	return out, nil
}
