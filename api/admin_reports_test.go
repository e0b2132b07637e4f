package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
)

// A month of a GPU that ran an hour is on its document, in the run, in the revenue and
// in what the GPUs made of their time.
func TestOperatorsReadWhatAMonthMade(t *testing.T) {
	l := newLive(t)
	l.jump(t, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	_, invoice := l.billedMonth(t, acme)
	run := l.must(t, 200, l.operator, "GET", "/v1/admin/invoice-runs/2026-11?wait=1s", nil)
	require.Equal(t, map[string]any{"pending": 0.0, "done": 1.0, "failed": 0.0}, run.body["progress"])

	path := "/v1/admin/organizations/" + acme.org + "/invoices/" + invoice
	page := l.must(t, 200, l.operator, "GET", path+"/html", nil)
	require.Contains(t, page.raw, "TR-2026-000001")
	require.NotEmpty(t, page.header.Get("Content-Security-Policy"))
	other := l.tenant(t, "Bolt")
	for _, form := range []string{"/html", "/pdf"} {
		l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/organizations/"+other.org+"/invoices/"+invoice+form, nil)
		l.refusal(t, "resource.not_found", acme.secret, "GET", path+form, nil)
	}

	foreign := "/v1/admin/organizations/" + other.org
	l.refusal(t, "request.invalid", l.operator, "POST", path+"/credit-notes", map[string]any{})
	l.refusal(t, "resource.not_found", l.operator, "POST", foreign+"/invoices/"+invoice+"/credit-notes", map[string]any{})
	l.refusal(t, "resource.not_found", l.operator, "POST", foreign+"/contracts/"+id.New[id.Contract]().String()+"/actions/end", map[string]any{"x": 1})
	l.refusal(t, "resource.not_found", l.operator, "POST", foreign+"/reservations/"+id.New[id.Reservation]().String()+"/actions/end", map[string]any{"x": 1})

	costs := "/v1/admin/finance/gpu-costs"
	cost := map[string]any{"gpu_model": "H100-80", "price_per_hour": "0.05", "currency": "USD", "from": "2026-11-01T00:00:00.000000Z"}
	l.must(t, http.StatusNoContent, l.operator, "POST", costs, cost, "Idempotency-Key", "cost")
	again := l.must(t, http.StatusNoContent, l.operator, "POST", costs, cost, "Idempotency-Key", "cost")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	for field, value := range map[string]any{"price_per_hour": "-1", "currency": "XXQ", "gpu_model": "", "from": "soon"} {
		bad := map[string]any{"gpu_model": "H100-80", "price_per_hour": "0.05", "currency": "USD", field: value}
		l.refusal(t, "request.invalid", l.operator, "POST", costs, bad)
	}

	earned := l.must(t, 200, l.operator, "GET", "/v1/admin/finance/revenue/2026-11", nil)
	rows := earned.body["rows"].([]any)
	require.NotEmpty(t, rows)
	require.Equal(t, acme.org, rows[0].(map[string]any)["organization"])
	require.Equal(t, false, rows[0].(map[string]any)["accrued"])
	used := l.must(t, 200, l.operator, "GET", "/v1/admin/finance/utilisation/2026-11", nil)
	require.NotEmpty(t, used.body["rows"])
	for _, report := range []string{"revenue", "utilisation"} {
		l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/finance/"+report+"/2026-13", nil)
		l.refusal(t, "resource.not_found", acme.secret, "GET", "/v1/admin/finance/"+report+"/2026-11", nil)
	}
}

func TestATableToStartFromCanBePutAndDunningSet(t *testing.T) {
	l := newLive(t)
	starter := l.must(t, 200, l.operator, "GET", "/v1/admin/starter-tax-table", nil)
	table := map[string]any{"rules": starter.body["rules"], "rates": starter.body["rates"], "territories": starter.body["territories"]}
	put := l.must(t, 200, l.operator, "PUT", "/v1/admin/issuers/default/tax-table", table)
	require.Equal(t, 1.0, put.body["version"])
	require.Equal(t, starter.body["rules"], put.body["rules"])

	dunning := "/v1/admin/issuers/default/dunning-schedule"
	require.NotEmpty(t, l.must(t, 200, l.operator, "GET", dunning, nil).body["steps"])
	step := func(days int, action string) map[string]any { return map[string]any{"days": days, "action": action} }
	steps := map[string]any{"steps": []any{step(3, "remind"), step(20, "announce_stop"), step(30, "stop")}}
	l.must(t, 200, l.operator, "PUT", dunning, steps)
	require.Equal(t, []any{
		map[string]any{"days": 3.0, "action": "remind"}, map[string]any{"days": 20.0, "action": "announce_stop"}, map[string]any{"days": 30.0, "action": "stop"},
	}, l.must(t, 200, l.operator, "GET", dunning, nil).body["steps"])
	for name, bad := range map[string]any{
		"unannounced": []any{step(30, "stop")}, "backwards": []any{step(5, "remind"), step(4, "remind")}, "unknown": []any{step(5, "shout")},
		"no day": []any{step(0, "remind")}, "nothing": nil,
	} {
		r := l.refusal(t, "request.invalid", l.operator, "PUT", dunning, map[string]any{"steps": bad})
		require.NotEmpty(t, r.body["errors"], name)
	}
	l.refusal(t, "issuer.unknown", l.operator, "GET", "/v1/admin/issuers/nobody/dunning-schedule", nil)
	l.refusal(t, "issuer.unknown", l.operator, "PUT", "/v1/admin/issuers/nobody/dunning-schedule", steps)
}

func TestATransferNamesWhatItMayBeFor(t *testing.T) {
	l := newLive(t)
	csv := "bank_id,date,amount,currency,reference,payer\n42,2026-11-30,119.00,EUR,hello,Acme GmbH\n"
	l.must(t, 201, l.operator, "POST", "/v1/admin/bank-statements", map[string]any{"account": "DE02", "csv": csv})
	lines := l.must(t, 200, l.operator, "GET", "/v1/admin/statement-lines?state=queued", nil).items()
	require.Len(t, lines, 1)
	found := l.must(t, 200, l.operator, "GET", "/v1/admin/statement-lines/"+lines[0]["id"].(string)+"/candidates", nil)
	require.Contains(t, found.raw, `"items":[]`)
	for _, which := range []string{"x", id.New[id.StatementLine]().String(), id.New[id.Invoice]().String()} {
		l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/statement-lines/"+which+"/candidates", nil)
	}
}
