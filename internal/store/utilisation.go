package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// GPUTime is how long the GPUs of a host in a mode were looked at, and could have been
// sold, in GPU·microseconds of business time.
type GPUTime struct {
	Model, Mode        string
	Host               id.Host
	HostName           string
	GPUs               int
	Observed, Sellable int64
}

// GPUTimeOf sums what was observed in a window of whole hours, by model, mode and host.
func (t *SystemTx) GPUTimeOf(ctx context.Context, window metering.Interval) ([]GPUTime, error) {
	rows, err := t.q.GPUHoursOf(ctx, t.raw, window.From, window.To)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.GPUHoursOfRow) (GPUTime, error) {
		return GPUTime{
			Model: r.Model, Mode: r.Mode, Host: id.Host(r.HostID), HostName: r.HostName, GPUs: int(r.Gpus), Observed: r.ObservedUs, Sellable: r.SellableUs,
		}, nil
	})
}

// SoldTime is what was billed of a SKU on a host: units × microseconds, beside what one
// unit is of its GPU.
type SoldTime struct {
	Model, Mode, SKU string
	Host             id.Host // zero: not known
	HostName         string
	GPUs             int   // that one unit has
	Memory, OfMemory int64 // MiB of one unit, and of the whole GPU
	Used             int64 // unit·µs
}

// SoldOf sums what is billed of a month up to now, by SKU and host.
func (t *SystemTx) SoldOf(ctx context.Context, period string, window metering.Interval) ([]SoldTime, error) {
	rows, err := t.q.SoldOf(ctx, t.raw, db.SoldOfParams{FromAt: window.From, ToAt: window.To, Period: period})
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SoldOfRow) (SoldTime, error) {
		return SoldTime{
			Model: r.GpuModel, Mode: r.Mode, SKU: r.Code, Host: orZero[id.Host](r.HostID), HostName: r.HostName, GPUs: int(r.GpuCount),
			Memory: r.MemoryMib, OfMemory: r.GpuMemoryMib, Used: r.UsedUs,
		}, nil
	})
}

// HostsOfUsage tells on which host each segment of a month ran.
func (t *SystemTx) HostsOfUsage(ctx context.Context, org id.Org, period string) (map[SegmentKey]id.Host, error) {
	rows, err := t.q.HostsOfUsage(ctx, t.raw, uuid.UUID(org), period)
	if err != nil {
		return nil, mapError(err)
	}
	out := make(map[SegmentKey]id.Host, len(rows))
	for _, r := range rows {
		out[SegmentKey{r.SubjectID, metering.Meter(r.Meter), r.Seq}] = id.Host(r.HostID)
	}
	return out, nil
}

// UsingOrg is an organization with usage, and its currency.
type UsingOrg struct {
	Org      id.Org
	Currency money.Currency
}

// OrganizationsUsing lists who used anything in a month.
func (t *SystemTx) OrganizationsUsing(ctx context.Context, period string) ([]UsingOrg, error) {
	rows, err := t.q.OrganizationsUsing(ctx, t.raw, period)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.OrganizationsUsingRow) (UsingOrg, error) {
		c, err := money.ParseCurrency(r.Currency)
		return UsingOrg{id.Org(r.OrgID), c}, err
	})
}

// AccruedMonth is what the ledger holds as earned of a month that has no document yet.
type AccruedMonth struct {
	Org     id.Org
	Period  string
	Accrued int64 // minor units
	At      time.Time
}

// AccrualsToCheck lists up to size accruals whose usage cannot have changed since, newest
// first.
func (t *SystemTx) AccrualsToCheck(ctx context.Context, size int) ([]AccruedMonth, error) {
	rows, err := t.q.AccrualsToCheck(ctx, t.raw, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.AccrualsToCheckRow) (AccruedMonth, error) {
		return AccruedMonth{Org: id.Org(r.OrgID), Period: r.Period, Accrued: r.AccruedMinor, At: r.AccruedAt.UTC()}, nil
	})
}
