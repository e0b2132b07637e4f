package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// fillStarted tells usage that continues a start of an earlier month when that start
// began, as of a close: a reservation covers the oldest start first. Usage that
// continues none asks nothing.
func (t *tx) fillStarted(ctx context.Context, org id.Org, usage []rating.Usage, asOf int32) error {
	continued := map[[16]byte][]int{} // by start, places in usage
	p := db.BeganEarlierParams{OrgID: uuid.UUID(org), SubjectIds: []uuid.UUID{}, StartIds: []uuid.UUID{}, AsOf: asOf}
	for i, u := range usage {
		if u.Meter == metering.GPU && atMonth(u.During.From) {
			continued[u.StartID] = append(continued[u.StartID], i)
			p.SubjectIds, p.StartIds = append(p.SubjectIds, u.Subject.ID), append(p.StartIds, u.StartID)
		}
	}
	if len(continued) == 0 {
		return nil
	}
	rows, err := t.q.BeganEarlier(ctx, t.raw, p)
	if err != nil {
		return mapError(err)
	}
	for _, r := range rows {
		for _, i := range continued[r.StartID] {
			usage[i].Started = r.BeganAt.UTC()
		}
	}
	return nil
}

// atMonth tells whether an instant is the first of a calendar month.
func atMonth(t time.Time) bool {
	return t.Day() == 1 && t.Equal(time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC))
}
