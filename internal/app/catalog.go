package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store"
)

// Offer is what can be bought, as one caller sees it.
type Offer struct {
	offer.Offer
	Price     *money.Price // per hour; nil: none, and then it is not listed
	Available int          // how many more would fit now; a forecast
	Simulated bool         // no real GPU stands behind it
}

// OfferSpec is an operator's wish. Shape.Mode is not read: Kind and Shape.Profile
// decide it. Empty Region and Pool are `local` and `default`.
type OfferSpec struct {
	ID      string
	Kind    gpu.Kind
	Shape   offer.Shape
	Region  string
	Pool    string
	Enabled bool
}

// PutOffer creates or replaces an offer. A changed shape makes a new SKU, which has
// no price until a price version names it; equal content changes nothing. It fails
// with request.invalid for an impossible shape and an unknown pool or region.
func (a *App) PutOffer(ctx context.Context, c Caller, in OfferSpec) (Offer, error) {
	if in.Pool == "" {
		in.Pool = "default"
	}
	if in.Region == "" {
		in.Region = "local"
	}
	shape, err := offer.NewShape(in.Kind, in.Shape)
	if err != nil {
		return Offer{}, err
	}
	var got []store.PricedOffer
	err = a.Store.InSystem(ctx, "put an offer", func(t *store.SystemTx) error {
		pool, err := t.Pool(ctx, in.Pool)
		if fault.KindOf(err) == fault.NotFound {
			return unknownPlace("/pool", "There is no such pool.")
		}
		if err != nil {
			return err
		}
		if pool.Region != in.Region {
			return unknownPlace("/region", "The pool is in another region.")
		}
		sku, err := t.EnsureSKU(ctx, offer.SKU{
			ID: id.New[id.Claim](), Code: in.ID, Shape: shape, Isolation: shape.IsolationIn(pool.Tenancy),
		})
		if err != nil {
			return err
		}
		o := offer.Offer{ID: in.ID, SKU: sku, Region: in.Region, Pool: in.Pool, Enabled: in.Enabled}
		if err := t.PutOffer(ctx, o); err != nil {
			return err
		}
		if got, err = t.AllOffers(ctx, store.OfferFilter{ID: in.ID, Size: 1}); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "offer.put", in.ID))
	})
	if err != nil {
		return Offer{}, err
	}
	shown, err := a.showOffers(ctx, id.Org{}, got)
	if err != nil {
		return Offer{}, err
	}
	return shown[0], nil
}

func unknownPlace(pointer, detail string) error {
	return fault.New(fault.Invalid, "request.invalid", detail).
		With(fault.Field{Pointer: pointer, Code: "unknown", Detail: detail})
}

// OfferFilter narrows a list of offers; zero fields do not filter.
type OfferFilter struct {
	Model  string
	Mode   gpu.Kind
	Region string
}

// ListOffers lists what the caller's organization can buy, at its prices, by id. An
// operator sees the prices of the default books.
func (a *App) ListOffers(ctx context.Context, c Caller, f OfferFilter, p Page) (List[Offer], error) {
	filter := store.OfferFilter{
		Model: f.Model, Mode: f.Mode, Region: f.Region, After: p.Cursor, Size: p.Size + 1, Listed: true,
	}
	if c.Kind == auth.Operator {
		return a.listAllOffers(ctx, filter, p)
	}
	var rows []store.PricedOffer
	err := a.Store.InOrg(ctx, c.Org, func(t *store.OrgTx) (err error) {
		rows, err = t.OffersOfOrg(ctx, c.Org, filter)
		return err
	})
	if err != nil {
		return List[Offer]{}, err
	}
	return a.pageOfOffers(ctx, c.Org, rows, p)
}

// ListAdminOffers lists every offer, unpriced and disabled ones too, by id.
func (a *App) ListAdminOffers(ctx context.Context, _ Caller, p Page) (List[Offer], error) {
	return a.listAllOffers(ctx, store.OfferFilter{After: p.Cursor, Size: p.Size + 1}, p)
}

func (a *App) listAllOffers(ctx context.Context, f store.OfferFilter, p Page) (List[Offer], error) {
	var rows []store.PricedOffer
	err := a.Store.InSystem(ctx, "list offers", func(t *store.SystemTx) (err error) {
		rows, err = t.AllOffers(ctx, f)
		return err
	})
	if err != nil {
		return List[Offer]{}, err
	}
	return a.pageOfOffers(ctx, id.Org{}, rows, p)
}

func (a *App) pageOfOffers(ctx context.Context, o id.Org, rows []store.PricedOffer, p Page) (List[Offer], error) {
	page := paged(rows, p.Size, func(o store.PricedOffer) string { return o.ID })
	items, err := a.showOffers(ctx, o, page.Items)
	return List[Offer]{Items: items, Next: page.Next}, err
}

// showOffers adds what the fleet says. The zero organization is one that holds
// nothing yet.
func (a *App) showOffers(ctx context.Context, o id.Org, rows []store.PricedOffer) ([]Offer, error) {
	out := make([]Offer, 0, len(rows))
	for _, r := range rows {
		fleet, err := a.fleet(ctx, r.Pool, stockLife)
		if err != nil {
			return nil, err
		}
		want := r.SKU.Shape.Request(o)
		out = append(out, Offer{
			Offer: r.Offer, Price: r.Price,
			Available: placement.Room(fleet, want), Simulated: placement.Simulated(fleet, want),
		})
	}
	return out, nil
}

// stockLife bounds the age of what offers say about availability.
const stockLife = time.Second

// staleStock is how many lives old a fleet may be shown while another caller reads it
// anew.
const staleStock = 5

// stock caches the fleet of each pool.
type stock struct {
	mu sync.Mutex
	by map[string]*poolStock
}

// poolStock is what was last read of a pool. Its lock is never held during a read: a
// create comes with a connection and would wait here for a list that waits for one.
type poolStock struct {
	mu      sync.Mutex
	fleet   placement.Snapshot
	at      time.Time
	readers int
}

func (s *stock) pool(name string) *poolStock {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*poolStock{}
	}
	p, ok := s.by[name]
	if !ok {
		p = &poolStock{}
		s.by[name] = p
	}
	return p
}

// known returns the fleet if it is at most maxAge old, or somewhat older while others
// read it. Otherwise it is the caller who has to read, and to tell learn.
func (p *poolStock) known(now time.Time, maxAge time.Duration) (placement.Snapshot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers > 0 {
		maxAge *= staleStock
	}
	if !p.at.IsZero() && now.Sub(p.at) < maxAge {
		return p.fleet, true
	}
	p.readers++
	return placement.Snapshot{}, false
}

// learn ends a read that began at an instant.
func (p *poolStock) learn(fleet placement.Snapshot, began time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers--
	if err == nil && began.After(p.at) {
		p.fleet, p.at = fleet, began
	}
}

// fleet returns the snapshot of a pool, about maxAge old at most; 0 reads it. Callers
// only read it.
func (a *App) fleet(ctx context.Context, pool string, maxAge time.Duration) (fleet placement.Snapshot, err error) {
	p, now := a.stock.pool(pool), a.Clock.Now()
	if fleet, ok := p.known(now, maxAge); ok {
		return fleet, nil
	}
	err = errors.New("the read did not return")
	defer func() { p.learn(fleet, now, err) }()
	err = a.Store.InSystem(ctx, "read a pool", func(t *store.SystemTx) (err error) {
		fleet, err = t.Fleet(ctx, pool)
		return err
	})
	return fleet, err
}

// sellable reports whether hardware for the shape exists, busy or not, and whether
// it is simulated. A refusal is checked against a fresh view: hosts may have joined.
func (a *App) sellable(ctx context.Context, pool string, s offer.Shape) (ok, simulated bool, err error) {
	want := s.Request(id.Org{})
	for _, age := range []time.Duration{stockLife, 0} {
		fleet, err := a.fleet(ctx, pool, age)
		if err != nil {
			return false, false, err
		}
		if placement.CouldEver(fleet, want) {
			return true, placement.Simulated(fleet, want), nil
		}
	}
	return false, false, nil
}
