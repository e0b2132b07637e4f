package app_test

import (
	"bytes"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/billing/render/ubl"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// exported is the month's export by way of Parquet, without a breach of FOCUS.
func (b *billed) exported(t *testing.T, c customer, period string) []focus.Row {
	t.Helper()
	e, err := b.FocusExport(t.Context(), c.Caller, period)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, focus.WriteParquet(&file, e.Rows()))
	rows, err := focus.ReadParquet(bytes.NewReader(file.Bytes()), int64(file.Len()))
	require.NoError(t, err)
	require.Empty(t, focus.Check(rows))
	return rows
}

func sumOf(rows []focus.Row, c focus.Column, invoice string) *big.Rat {
	sum := new(big.Rat)
	for _, r := range rows {
		if n, ok := new(big.Rat).SetString(r[c]); ok && r[focus.InvoiceID] == invoice {
			sum.Add(sum, n)
		}
	}
	return sum
}

func TestCostsOfAMonthAreExported(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.prepaid(t, "export", 300)
	b.setClock(t, november)
	b.buyer(t, c, "DE", "DE987654321")
	b.used(t, c, "one", 10*time.Hour)
	b.setClock(t, november.AddDate(0, 0, 9))
	running := b.exported(t, c, "")
	require.NotEmpty(t, running)
	require.Zero(t, big.NewRat(583, 100).Cmp(sumOf(running, focus.EffectiveCost, "")), "a preview: 4.90 and 19 %")

	v := b.invoiced(t, c)[0]
	note, err := b.credit(t, c, v.ID, app.CreditRequest{Reason: "goodwill", Lines: []billing.LineCredit{{No: 1}}, Refund: billing.RefundWallet})
	require.NoError(t, err)
	rows := b.exported(t, c, "2026-11")
	for _, d := range []billing.Invoice{v, note} {
		require.Equal(t, d.Total.Exact().Rat().RatString(), sumOf(rows, focus.EffectiveCost, d.Number).RatString(), d.Number)
	}
	require.Equal(t, "283/100", sumOf(rows, focus.BilledCost, v.Number).RatString(), "3.00 of 5.83 were paid when it was issued")
	require.Equal(t, "-283/100", sumOf(rows, focus.BilledCost, note.Number).RatString(), "3.00 went back to the balance")
	topUp := rows[len(rows)-1]
	require.Equal(t, []string{"Purchase", "3", "0", ""}, []string{topUp[focus.ChargeCategory], topUp[focus.BilledCost], topUp[focus.EffectiveCost], topUp[focus.InvoiceID]})
	usage := slices.IndexFunc(rows, func(r focus.Row) bool { return r[focus.ChargeCategory] == "Usage" })
	require.Equal(t, "0.49", rows[usage][focus.ListUnitPrice])
	require.NotEmpty(t, rows[usage][focus.RegionID])
	require.Equal(t, rows, b.exported(t, c, "2026-11"), "the same again")
	_, err = b.FocusExport(t.Context(), c.Caller, "November")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}

// What was really invoiced renders in every form.
func TestDocumentsRender(t *testing.T) {
	b := newBilled(t)
	b.german(t, nil)
	c := b.tenant(t, "render", quota.Limits{})
	b.setClock(t, november)
	b.buyer(t, c, "DE", "DE987654321")
	b.used(t, c, "one", 10*time.Hour)
	v := b.invoiced(t, c)[0]
	fonts, err := render.LoadFonts("")
	require.NoError(t, err)
	pdf, err := render.PDF(v, fonts)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(pdf, []byte("%PDF-")))
	for name, make := range map[string]func(billing.Invoice) ([]byte, error){
		"html": render.HTML, "lines": render.LinesCSV, "subjects": render.SubjectsCSV, "json": render.JSON, "ubl": ubl.Document,
	} {
		out, err := make(v)
		require.NoError(t, err, name)
		require.Contains(t, string(out), v.Number, name)
	}
}
