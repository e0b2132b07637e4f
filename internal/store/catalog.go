package store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/placement"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/internal/units"
)

// Pool is where hosts are sold from.
type Pool struct {
	ID, Cell, Region string
	Tenancy          placement.Tenancy
}

// Pool reads a pool. It fails with resource.not_found.
func (t *tx) Pool(ctx context.Context, pool string) (Pool, error) {
	r, err := t.q.GetPool(ctx, t.raw, pool)
	if err != nil {
		return Pool{}, mapError(err)
	}
	return Pool{ID: r.ID, Cell: r.CellID, Region: r.RegionID, Tenancy: placement.Tenancy(r.Tenancy)}, nil
}

// Fleet is the snapshot of a whole pool, GPUs of every model included.
func (t *SystemTx) Fleet(ctx context.Context, pool string) (placement.Snapshot, error) {
	p, err := t.Pool(ctx, pool)
	if err != nil {
		return placement.Snapshot{}, err
	}
	return t.snapshot(ctx, p.Cell, p.ID, Shape{Tenancy: p.Tenancy})
}

// EnsureSKU returns the SKU of this content, writing it if it is new: under the
// code of its offer, or one made unique by its hash when an older shape has that.
func (t *SystemTx) EnsureSKU(ctx context.Context, k offer.SKU) (offer.SKU, error) {
	hash := k.ContentHash()
	if known, err := t.q.FindSKU(ctx, t.raw, hash); !errors.Is(err, pgx.ErrNoRows) {
		if err != nil {
			return k, mapError(err)
		}
		return sku(known)
	}
	s := k.Shape
	row := db.InsertSKUParams{
		SkuID: k.ID, Code: k.Code, ContentHash: hash, GpuModel: s.Model, Mode: string(s.Mode.Kind), GpuMode: s.Mode.String(),
		Profile: s.Profile, GpuCount: int32(s.Count), MemoryMib: int64(s.Memory),
		SmCount: numberOrNull(s.SMs), SmPercent: numberOrNull(s.SMPercent),
		IsolationGpu: string(k.Isolation.GPU), IsolationHost: string(k.Isolation.Host),
		Vcpu: int32(s.VCPU), RamMib: int64(s.RAM),
	}
	for _, code := range []string{k.Code, k.Code + "-" + hex.EncodeToString(hash[:4])} {
		row.Code = code
		if _, err := t.q.InsertSKU(ctx, t.raw, row); err != nil {
			return k, mapError(err)
		}
		known, err := t.q.FindSKU(ctx, t.raw, hash)
		if err == nil {
			return sku(known)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return k, mapError(err)
		}
	}
	return k, fmt.Errorf("write the SKU of %s: both of its codes are taken", k.Code)
}

// PutOffer creates or replaces an offer; equal content changes nothing.
func (t *SystemTx) PutOffer(ctx context.Context, o offer.Offer) error {
	return mapError(t.q.PutOffer(ctx, t.raw, db.PutOfferParams{
		OfferID: o.ID, SkuID: o.SKU.ID, PoolID: o.Pool, RegionID: o.Region, Enabled: o.Enabled,
	}))
}

// PricedOffer is an offer with its price per hour, and where that price is from.
type PricedOffer struct {
	offer.Offer
	Price   *money.Price    // nil: no price
	Book    id.PriceBook    // of OffersOfOrg only
	Version id.PriceVersion // of OffersOfOrg only
}

// OfferFilter narrows a list of offers; zero fields do not filter.
type OfferFilter struct {
	ID, Model string
	Mode      gpu.Kind
	Region    string
	Listed    bool   // AllOffers: only enabled ones with a price
	After     string // the list goes on behind this id
	Size      int
}

// OffersOfOrg lists what an organization can buy: enabled offers with a price in
// its book now, by id.
func (t *tx) OffersOfOrg(ctx context.Context, o id.Org, f OfferFilter) ([]PricedOffer, error) {
	rows, err := t.q.OffersOfOrg(ctx, t.raw, db.OffersOfOrgParams{
		OrgID: uuid.UUID(o), OfferID: textOrNull(f.ID), GpuModel: textOrNull(f.Model), Mode: textOrNull(string(f.Mode)),
		Region: textOrNull(f.Region), After: f.After, Size: int32(f.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.OffersOfOrgRow) (PricedOffer, error) {
		p, err := pricedOffer(r.Offer, r.Sku, r.Currency, r.Amount)
		p.Book, p.Version = id.PriceBook(r.PriceBookID), id.PriceVersion(r.PriceVersionID)
		return p, err
	})
}

// AllOffers lists every offer with its price in a default book, by id.
func (t *SystemTx) AllOffers(ctx context.Context, f OfferFilter) ([]PricedOffer, error) {
	rows, err := t.q.AllOffers(ctx, t.raw, db.AllOffersParams{
		OfferID: textOrNull(f.ID), GpuModel: textOrNull(f.Model), Mode: textOrNull(string(f.Mode)),
		Region: textOrNull(f.Region), Listed: f.Listed, After: f.After, Size: int32(f.Size),
	})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.AllOffersRow) (PricedOffer, error) {
		return pricedOffer(r.Offer, r.Sku, r.Currency, r.Amount)
	})
}

// OfferEnabled reports whether an enabled offer has this id, priced or not.
func (t *tx) OfferEnabled(ctx context.Context, offerID string) (bool, error) {
	ok, err := t.q.OfferExists(ctx, t.raw, offerID)
	return ok, mapError(err)
}

func pricedOffer(o db.Offer, s db.Sku, currency, amount string) (PricedOffer, error) {
	k, err := sku(s)
	if err != nil {
		return PricedOffer{}, err
	}
	out := PricedOffer{Offer: offer.Offer{
		ID: o.ID, SKU: k, Region: o.RegionID, Pool: o.PoolID, Enabled: o.Enabled,
		Generation: o.Generation, UpdatedAt: o.UpdatedAt,
	}}
	if amount == "" {
		return out, nil
	}
	price, err := parsePrice(amount, currency)
	if err != nil {
		return PricedOffer{}, fmt.Errorf("read the price of offer %s: %w", o.ID, err)
	}
	out.Price = &price
	return out, nil
}

func parsePrice(amount, currency string) (money.Price, error) {
	c, err := money.ParseCurrency(currency)
	if err != nil {
		return money.Price{}, err
	}
	return money.ParsePrice(amount, c)
}

func sku(r db.Sku) (offer.SKU, error) {
	mode, err := gpu.ParseMode(r.GpuMode)
	if err != nil {
		return offer.SKU{}, fmt.Errorf("read SKU %s: %w", r.Code, err)
	}
	return offer.SKU{
		ID: r.ID, Code: r.Code,
		Shape: offer.Shape{
			Model: r.GpuModel, Mode: mode, Profile: r.Profile, Count: int(r.GpuCount), Memory: units.MiB(r.MemoryMib),
			SMs: numberOrZero(r.SmCount), SMPercent: numberOrZero(r.SmPercent), VCPU: int(r.Vcpu), RAM: units.MiB(r.RamMib),
		},
		Isolation: offer.Isolation{GPU: gpu.Isolation(r.IsolationGpu), Host: offer.HostIsolation(r.IsolationHost)},
	}, nil
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func numberOrNull(n int) *int32 {
	if n == 0 {
		return nil
	}
	v := int32(n)
	return &v
}

func numberOrZero(n *int32) int {
	if n == nil {
		return 0
	}
	return int(*n)
}
