package app

import (
	"context"
	"slices"

	"github.com/tranche-cloud/tranche/internal/store"
)

// ingestBatch is how many segments one transaction of a bulk ingest records: few
// enough that a finalize never waits long.
const ingestBatch = 500

// IngestSegments records closed segments in bulk, in any order, duplicates included, in
// transactions of a bounded size: what was recorded before a failure stays, and the whole
// may be given again. It fails like store.SystemTx.IngestSegments.
func (a *App) IngestSegments(ctx context.Context, records []store.UsageRecord) (out store.Ingested, err error) {
	records = slices.Clone(records)
	slices.SortFunc(records, store.CompareRecords) // neighbours in the indexes go in together
	for len(records) > 0 {
		n := min(len(records), ingestBatch)
		var part store.Ingested
		err = a.Store.InSystem(ctx, "ingest usage", func(t *store.SystemTx) (err error) {
			part, err = t.IngestSegments(ctx, records[:n])
			return err
		})
		if err != nil {
			return out, err
		}
		out.Added, out.Known, records = out.Added+part.Added, out.Known+part.Known, records[n:]
	}
	return out, nil
}
