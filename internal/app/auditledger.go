package app

import (
	"context"
	"fmt"

	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

// accrualsAudited is how many accruals one audit rates again, newest first.
const accrualsAudited = 50

// auditAccruals rates the usage of months without a document again: the ledger must hold
// just that as earned. With the documents' own check this is ledger = invoices +
// accruals = rated segments.
func (a *App) auditAccruals(ctx context.Context) (store.Offence, error) {
	o := store.Offence{Invariant: "I5", Check: "accruals that are not what their usage comes to"}
	var list []store.AccruedMonth
	err := a.Store.InSystem(ctx, "audit", func(t *store.SystemTx) (err error) {
		list, err = t.AccrualsToCheck(ctx, accrualsAudited)
		return err
	})
	if err != nil {
		return o, err
	}
	for _, m := range list {
		month, err := metering.ParsePeriod(m.Period)
		if err != nil {
			return o, err
		}
		err = a.Store.InSystem(ctx, "audit", func(t *store.SystemTx) error {
			v, err := a.bill(ctx, t, m.Org, month, m.At)
			if err != nil {
				return err
			}
			if earned := v.Subtotal.Minor(); earned != m.Accrued {
				o.Count++
				o.Rows = append(o.Rows, fmt.Sprintf("%s of %s: ledger %d, usage %d", m.Period, m.Org, m.Accrued, earned))
			}
			return nil
		})
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
