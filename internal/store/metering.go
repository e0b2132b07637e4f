package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// OpenMeter names an open segment.
type OpenMeter struct {
	Org     id.Org
	Subject [16]byte
	Meter   metering.Meter
}

// OpenAcrossMonths lists up to size open segments whose month ended before an instant,
// oldest first.
func (t *SystemTx) OpenAcrossMonths(ctx context.Context, before time.Time, size int) ([]OpenMeter, error) {
	rows, err := t.q.OpenAcrossMonths(ctx, t.raw, before, int32(size))
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]OpenMeter, 0, len(rows))
	for _, r := range rows {
		out = append(out, OpenMeter{Org: id.Org(r.OrgID), Subject: r.SubjectID, Meter: metering.Meter(r.Meter)})
	}
	return out, nil
}

// SealMeter closes the open segment of a meter at each month's end before an instant
// and continues it in a row of the next month, with the same start and the next seq.
// It returns how many rows it added.
func (t *SystemTx) SealMeter(ctx context.Context, m OpenMeter, before time.Time) (int, error) {
	n, err := t.q.SealMeter(ctx, t.raw, db.SealMeterParams{
		OrgID: uuid.UUID(m.Org), SubjectID: m.Subject, Meter: string(m.Meter), UntilAt: metering.Instant(before),
	})
	return int(n), mapError(err)
}

// LateCloses lists, ascending, after which closes of the organization usage of a month
// was accepted or taken back: each is a document of its own, or none if its rating is
// the one before. It fails with request.invalid for a period that is no month.
func (t *SystemTx) LateCloses(ctx context.Context, org id.Org, period string) ([]int, error) {
	window, err := metering.ParsePeriod(period)
	if err != nil {
		return nil, err
	}
	rows, err := t.q.LateCloses(ctx, t.raw, db.LateClosesParams{OrgID: uuid.UUID(org), Period: period, FromAt: window.From, ToAt: window.To})
	if err != nil {
		return nil, mapError(err)
	}
	out := make([]int, len(rows))
	for i, r := range rows {
		out[i] = int(r)
	}
	return out, nil
}

// BusinessScale is how many business seconds pass in a machine second: 1 in production.
func (t *tx) BusinessScale(ctx context.Context) (int, error) {
	scale, err := t.q.BusinessScale(ctx, t.raw)
	return int(scale), mapError(err)
}
