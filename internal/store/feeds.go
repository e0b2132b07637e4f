package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// EventRow is one event of the feed. Subject has no noun: the event's type tells it.
type EventRow struct {
	ID      id.Event
	Org     id.Org     // zero: the operator's own
	Project id.Project // zero: none
	Type    string
	Subject [16]byte
	Data    map[string]any
	At      time.Time // business
	Place   string    // cursor of the feed, newest first
}

// EventFilter narrows the feed; zero fields do not filter. A Type with a trailing dot
// stands for all that begin with it.
type EventFilter struct {
	Type    string
	Subject *[16]byte
}

// Events lists at most size events, newest first, those before a place ("" for the
// newest). It fails with page_token.invalid for a place that is none.
func (t *SystemTx) Events(ctx context.Context, f EventFilter, before string, size int) ([]EventRow, error) {
	p := db.EventRowsParams{Type: f.Type, IsPrefix: strings.HasSuffix(f.Type, "."), Size: int32(size)}
	if f.Subject != nil {
		subject := uuid.UUID(*f.Subject)
		p.SubjectID = &subject
	}
	if before != "" {
		tx, place, ok := strings.Cut(before, "/")
		_, err := strconv.ParseUint(tx, 10, 63)
		n, err2 := strconv.ParseInt(place, 10, 64)
		if !ok || err != nil || err2 != nil {
			return nil, badPlace()
		}
		p.BeforeTx, p.BeforeID = tx, n
	}
	rows, err := t.q.EventRows(ctx, t.raw, p)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.EventRowsRow) (EventRow, error) {
		e := EventRow{
			ID: id.Event(r.EventID), Org: id.Org(r.OrgID), Project: orZero[id.Project](r.ProjectID), Type: r.Type,
			Subject: r.SubjectID, At: r.At.UTC(), Place: r.Tx + "/" + strconv.FormatInt(r.ID, 10),
		}
		if err := json.Unmarshal(r.Data, &e.Data); err != nil {
			return e, fmt.Errorf("read the data of event %s: %w", e.ID, err)
		}
		return e, nil
	})
}

func badPlace() error {
	return fault.New(fault.Invalid, "page_token.invalid", "The page token is not one of this list.").
		Suggest("Start the list again without page_token.")
}

// SampleRow is what one source measured of an instance over one interval, or a gap.
type SampleRow struct {
	At       time.Time // business instant of the interval's end
	Interval time.Duration
	Source   string
	Gap      string // why nothing was measured; "" if something was
	Readings map[string]int64
	Place    string // cursor of the list
}

// Samples lists at most size samples of an instance of this organization with their
// ends in [from, to), by time, those after a place ("" for the first). It fails with
// page_token.invalid for a place that is none.
func (t *OrgTx) Samples(ctx context.Context, i id.Instance, from, to time.Time, after string, size int) ([]SampleRow, error) {
	p := db.SampleRowsParams{
		OrgID: uuid.UUID(t.org), InstanceID: uuid.UUID(i), FromAt: from, ToAt: to, Size: int32(size), AfterAt: time.Unix(0, 0),
	}
	if after != "" {
		var err error
		if p.AfterAt, p.AfterHost, p.AfterSpool, p.AfterOrdinal, err = samplePlace(after); err != nil {
			return nil, err
		}
	}
	rows, err := t.q.SampleRows(ctx, t.raw, p)
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.SampleRowsRow) (SampleRow, error) {
		s := SampleRow{
			At: r.At.UTC(), Interval: time.Duration(r.IntervalMs) * time.Millisecond, Source: r.Source, Gap: r.Gap,
			Place: fmt.Sprintf("%d/%s/%d/%d", r.At.UnixMicro(), r.HostID, r.SpoolID, r.Ordinal),
		}
		if err := json.Unmarshal(r.Readings, &s.Readings); err != nil {
			return s, fmt.Errorf("read a sample of %s: %w", i, err)
		}
		return s, nil
	})
}

func samplePlace(text string) (at time.Time, host uuid.UUID, spool int64, ordinal int32, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return at, host, 0, 0, badPlace()
	}
	micro, err1 := strconv.ParseInt(parts[0], 10, 64)
	host, err2 := uuid.Parse(parts[1])
	spool, err3 := strconv.ParseInt(parts[2], 10, 64)
	n, err4 := strconv.ParseInt(parts[3], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return at, host, 0, 0, badPlace()
	}
	return time.UnixMicro(micro).UTC(), host, spool, int32(n), nil
}

// GPUTenant is an instance that has a run on a GPU, and what it pays an hour.
type GPUTenant struct {
	Org     id.Org
	Project id.Project
	ID      id.Instance
	Status  instance.Status
	Price   money.Price
}

// GPUTenants lists those of a GPU by id.
func (t *SystemTx) GPUTenants(ctx context.Context, g id.GPU) ([]GPUTenant, error) {
	rows, err := t.q.GPUTenants(ctx, t.raw, uuid.UUID(g))
	if err != nil {
		return nil, mapError(err)
	}
	return mapRows(rows, func(r db.GPUTenantsRow) (GPUTenant, error) {
		out := GPUTenant{
			Org: id.Org(r.OrgID), Project: id.Project(r.ProjectID), ID: id.Instance(r.ID), Status: instance.Status(r.Status),
		}
		if r.Price == "" {
			r.Price = "0"
		}
		out.Price, err = parsePrice(r.Price, r.Currency)
		return out, err
	})
}

// ProgressOf returns what takes long with those of the instances of this organization
// that are being prepared, for people.
func (t *OrgTx) ProgressOf(ctx context.Context, instances []id.Instance) (map[id.Instance]string, error) {
	ids := make([]uuid.UUID, len(instances))
	for i, v := range instances {
		ids[i] = uuid.UUID(v)
	}
	out := map[id.Instance]string{}
	err := t.Escalate(ctx, "the progress of runs", func(s *SystemTx) error {
		rows, err := s.q.ProgressOf(ctx, s.raw, uuid.UUID(t.org), ids)
		if err != nil {
			return mapError(err)
		}
		for _, r := range rows {
			out[id.Instance(r.InstanceID)] = r.Progress
		}
		return nil
	})
	return out, err
}
