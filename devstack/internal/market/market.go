// Package market owns what a development region sells: simulated fleets, the
// offers on them, their prices, and the organizations that buy.
//
// It speaks to the region through the public API only.
package market

import (
	"context"
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/trace"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// Currency is what everything costs.
const Currency = "USD"

// Product is an offer with its price an hour.
type Product struct {
	Offer string
	Price string
	Shape client.OfferPut
}

func product(offer, price, model string, mode wire.GpuMode, profile string, memoryMiB, sms, smPercent, vcpu int32) Product {
	shape := client.OfferPut{GpuModel: model, Mode: mode, MemoryMib: memoryMiB, Vcpu: vcpu, RamMib: vcpu * 4096}
	if profile != "" {
		shape.Profile = &profile
	}
	if sms > 0 {
		shape.SmCount = &sms
	}
	if smPercent > 0 {
		shape.SmPercent = &smPercent
	}
	return Product{offer, price, shape}
}

// Offers of the development region, one or two a mode. Sizes are what the
// simulated drivers report.
var (
	MPS       = product("a100-mps-20gib", "0.61", "A100-80", wire.GpuModeMps, "4x25", 20480, 0, 25, 4)
	MIGSmall  = product("h200-mig-1g-16gib", "0.49", "H200-141", wire.GpuModeMig, "1g.18gb", 16384, 16, 0, 4)
	MIG       = product("h200-mig-3g-69gib", "1.79", "H200-141", wire.GpuModeMig, "3g.71gb", 71424, 60, 0, 8)
	TimeSlice = product("a100-timeslice-40gib", "0.89", "A100-80", wire.GpuModeTimeslice, "2", 40960, 0, 0, 8)
	Whole     = product("h100-whole-80gb", "2.99", "H100-80", wire.GpuModeWhole, "", 81559, 132, 0, 16)
)

// Products lists all of them.
var Products = []Product{MPS, MIGSmall, MIG, TimeSlice, Whole}

// Of is the product that a shape of a trace is mapped to.
func Of(s trace.Shape) Product {
	switch s {
	case trace.Quarter:
		return MPS
	case trace.ThreeSevenths:
		return MIG
	case trace.Half:
		return TimeSlice
	default:
		return Whole
	}
}

// Stock puts all offers, and more, on sale and prices them in one book. It may run
// again.
func Stock(ctx context.Context, admin client.Admin, more ...Product) error {
	book := client.PriceBookCreate{Name: "list", Currency: Currency}
	for _, p := range slices.Concat(Products, more) {
		if _, err := admin.PutOffer(ctx, p.Offer, p.Shape); err != nil {
			return fmt.Errorf("put offer %s: %w", p.Offer, err)
		}
		book.Prices = append(book.Prices, client.OfferPrice{Offer: p.Offer, PricePerHour: p.Price})
	}
	_, err := admin.CreatePriceBook(ctx, book)
	if err != nil && client.CodeOf(err) != "name.taken" {
		return fmt.Errorf("create the price book: %w", err)
	}
	return nil
}

// Buyer is an organization with one project and a key for it.
type Buyer struct {
	ID      string `json:"id"`
	Project string `json:"project"`
	Key     string `json:"api_key"`
}

// Terms bound what a buyer may hold and how often it may ask; zero limits are
// the region's own.
type Terms struct {
	Quota  client.Quota
	Limits client.RateLimits
}

// Enlist makes an organization with a project and a key of all its rights.
func Enlist(ctx context.Context, admin client.Admin, name string, t Terms) (Buyer, error) {
	in := client.OrganizationCreate{Name: name, Currency: Currency, Quota: &t.Quota}
	if t.Limits != (client.RateLimits{}) {
		in.Limits = &t.Limits
	}
	org, err := admin.CreateOrganization(ctx, in)
	if err != nil {
		return Buyer{}, fmt.Errorf("create organization %s: %w", name, err)
	}
	project, err := admin.CreateProject(ctx, org.Id, "default")
	if err != nil {
		return Buyer{}, fmt.Errorf("create the project of %s: %w", name, err)
	}
	key, err := admin.CreateAPIKey(ctx, org.Id, client.APIKeyCreate{Name: "default", Project: &project.Id})
	if err != nil {
		return Buyer{}, fmt.Errorf("create the key of %s: %w", name, err)
	}
	secret, err := key.Secret.Get()
	if err != nil {
		return Buyer{}, fmt.Errorf("the key of %s came without its secret: %w", name, err)
	}
	return Buyer{ID: org.Id, Project: project.Id, Key: secret}, nil
}
