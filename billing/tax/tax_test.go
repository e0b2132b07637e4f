package tax_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing/tax"
	"github.com/tranche-cloud/tranche/internal/fault"
)

func on(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

func decide(t *testing.T, q tax.Question) tax.Decision {
	t.Helper()
	if q.At.IsZero() {
		q.At = on(2026, 11, 30)
	}
	d, err := tax.Starter().Decide(q)
	require.NoError(t, err)
	return d
}

func TestDecisions(t *testing.T) {
	require.NoError(t, tax.Starter().Check())
	for name, c := range map[string]struct {
		q        tax.Question
		category tax.Category
		ppm      int64
		note     tax.Note
	}{
		"at home":                   {tax.Question{Seller: "DE", Buyer: "DE", Status: tax.Business, Valid: true}, "S", 190_000, ""},
		"no country is known":       {tax.Question{Seller: "DE", Status: tax.Business, Valid: true}, "S", 190_000, ""},
		"reverse charge":            {tax.Question{Seller: "DE", Buyer: "FR", Status: tax.Business, Valid: true}, "AE", 0, tax.NoteReverseCharge},
		"id not confirmed":          {tax.Question{Seller: "DE", Buyer: "FR", Status: tax.Business}, "S", 200_000, ""},
		"consumer":                  {tax.Question{Seller: "DE", Buyer: "FR", Status: tax.Consumer, Valid: true}, "S", 200_000, ""},
		"Greece":                    {tax.Question{Seller: "DE", Buyer: "GR", Status: tax.Business, Valid: true}, "AE", 0, tax.NoteReverseCharge},
		"United Kingdom":            {tax.Question{Seller: "DE", Buyer: "GB", Status: tax.Business, Valid: true}, "O", 0, tax.NoteOutsideEU},
		"Northern Ireland":          {tax.Question{Seller: "DE", Buyer: "GB", Postcode: "bt1 5gs", Status: tax.Business, Valid: true}, "O", 0, tax.NoteOutsideEU},
		"Canary Islands":            {tax.Question{Seller: "DE", Buyer: "ES", Postcode: "35001", Status: tax.Business, Valid: true}, "O", 0, tax.NoteOutsideEU},
		"Canary Islands from Spain": {tax.Question{Seller: "ES", Buyer: "ES", Postcode: "38001", Status: tax.Consumer}, "O", 0, tax.NoteOutsideEU},
		"Büsingen":                  {tax.Question{Seller: "DE", Buyer: "DE", Postcode: "78266", Status: tax.Business}, "O", 0, tax.NoteOutsideEU},
		"mainland Spain":            {tax.Question{Seller: "DE", Buyer: "ES", Postcode: "28001", Status: tax.Business}, "S", 210_000, ""},
		"America":                   {tax.Question{Seller: "DE", Buyer: "US", Status: tax.Business}, "O", 0, tax.NoteOutsideEU},
		"seller abroad":             {tax.Question{Seller: "US", Buyer: "DE", Status: tax.Business}, "O", 0, tax.NoteNotTaxable},
	} {
		d := decide(t, c.q)
		require.Equal(t, []any{c.category, c.ppm, c.note}, []any{d.Category, d.RatePPM, d.Note}, name)
	}
}

// A new rate holds from its tax point on.
func TestB60RateIsEffectiveDated(t *testing.T) {
	q := tax.Question{Seller: "FI", Buyer: "FI", Status: tax.Consumer, At: on(2024, 8, 31)}
	require.Equal(t, int64(240_000), decide(t, q).RatePPM)
	q.At = on(2024, 9, 1).Add(-time.Microsecond)
	require.Equal(t, int64(240_000), decide(t, q).RatePPM)
	q.At = on(2024, 9, 1)
	require.Equal(t, int64(255_000), decide(t, q).RatePPM)
}

func TestWhatTheTableLacksIsRefused(t *testing.T) {
	_, err := tax.Table{}.Decide(tax.Question{Seller: "DE", Buyer: "DE"})
	require.Equal(t, "tax.no_rule", fault.CodeOf(err))
	require.True(t, tax.Table{}.Empty())
	table := tax.Table{Rules: []tax.Rule{{Category: tax.Standard, RateOf: tax.OfSeller}}}
	_, err = table.Decide(tax.Question{Seller: "US", Buyer: "US", At: on(2026, 1, 1)})
	require.Equal(t, "tax.no_rate", fault.CodeOf(err))
	_, err = tax.Starter().Decide(tax.Question{Seller: "US", Buyer: "US", At: on(2026, 1, 1)})
	require.Equal(t, "tax.no_rate", fault.CodeOf(err), "sales at home in a country without rates wait for the operator")
}

func TestTablesAreChecked(t *testing.T) {
	for name, bad := range map[string]tax.Table{
		"category":       {Rules: []tax.Rule{{Category: "X"}}},
		"whose rate":     {Rules: []tax.Rule{{Category: tax.Standard}}},
		"reverse charge": {Rules: []tax.Rule{{Seller: tax.Union, Buyer: tax.OtherEU, Category: tax.ReverseCharge}}},
		"status":         {Rules: []tax.Rule{{Category: tax.Exempt, Status: "club"}}},
		"proof":          {Rules: []tax.Rule{{Category: tax.Exempt, Proof: "word"}}},
		"note":           {Rules: []tax.Rule{{Category: tax.Exempt, Note: "because"}}},
		"two rates":      {Rates: []tax.Rate{{Territory: "DE", PPM: 1}, {Territory: "DE", PPM: 2, From: on(2026, 1, 1)}}},
		"rate":           {Rates: []tax.Rate{{Territory: "DE", PPM: 1_000_001}}},
		"no territory":   {Rates: []tax.Rate{{PPM: 1}}},
		"backwards":      {Rates: []tax.Rate{{Territory: "DE", From: on(2026, 1, 2), To: on(2026, 1, 1)}}},
		"territory":      {Territories: []tax.Territory{{Code: "X", Country: "DE", Postcodes: []string{""}}}},
	} {
		err := bad.Check()
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
}

func TestTaxIDs(t *testing.T) {
	for country, text := range map[string]string{
		"DE": "de 123 456 789", "GR": "EL123456789", "NL": "NL123456789B01", "FR": "FRXX123456789", "IE": "IE1234567FA",
		"AT": "ATU12345678", "GB": "GB123456789", "US": "12-3456789", "CN": "91110108MA01C8JT5D", "CH": "CHE123456789",
	} {
		i, err := tax.ParseID(text, country)
		require.NoError(t, err, country)
		require.NotContains(t, string(i), " ")
	}
	xi, err := tax.ParseID("XI123456789", "GB")
	require.NoError(t, err)
	require.Equal(t, "GB", xi.Country())
	require.Equal(t, "GR", tax.ID("EL123456789").Country())

	for name, c := range map[string][2]string{
		"another member state": {"FR12345678901", "DE"},
		"a member's id abroad": {"DE123456789", "US"},
		"Greek with GR":        {"GR123456789", "GR"},
		"malformed":            {"DE12345", "DE"},
		"no country":           {"DE123456789", ""},
		"signs":                {"12;drop", "US"},
		"long":                 {"DE1234567890123456789012345678901234567890", "DE"},
	} {
		_, err := tax.ParseID(c[0], c[1])
		require.Equal(t, fault.Invalid, fault.KindOf(err), name)
		require.NotEmpty(t, fault.From(err).Fields, name)
	}
}

func TestNotesSpeakThreeLanguages(t *testing.T) {
	for _, n := range []tax.Note{
		tax.NoteReverseCharge, tax.NoteOutsideEU, tax.NoteNotTaxable, tax.NoteExempt, tax.NoteZeroRated, tax.NoteNoTable,
	} {
		seen := map[string]bool{}
		for _, l := range []string{"en", "de", "zh"} {
			seen[n.Text(l)] = true
		}
		require.Len(t, seen, 3, n)
		require.Equal(t, n.Text("en"), n.Text("fr"))
	}
	require.Empty(t, tax.Note("").Text("en"))
}
