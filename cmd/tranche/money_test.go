package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const billedInvoice = `{"id":"inv_1","number":"TR-2026-000001","kind":"usage","status":"open","currency":"USD",
	"period":{"from":"2026-11-01T00:00:00.000000Z","to":"2026-12-01T00:00:00.000000Z"},"due_on":"2026-12-16","corrects":null,"reason":null,
	"seller":{"name":"Tranche"},"buyer":{"name":"Acme"},"notes":[],"simulated":false,
	"lines":[{"id":"1","component":"usage","description":"TEST-80 whole","isolation":{"gpu":"dedicated","host":"shared_kernel"},
		"quantity":{"value":"5400000000","unit":"gpu_us"},"priced_unit":"GPU-hour","unit_price":{"amount":"3.60","currency":"USD"},
		"discounts":[{"name":"volume","rate":"0.125"}],"tax_category":"S","tax_rate":"0.19","amount":{"amount":"4.73","currency":"USD"}},
		{"id":"2","component":"commitment","description":"monthly","quantity":{"value":"0","unit":""},"priced_unit":null,
		"unit_price":{"amount":"0.00","currency":"USD"},"discounts":[],"tax_category":"S","tax_rate":"0.19","amount":{"amount":"1.00","currency":"USD"}}],
	"subtotal":{"amount":"5.73","currency":"USD"},"taxes":[{"category":"S","rate":"0.19","base":{"amount":"5.73","currency":"USD"},"amount":{"amount":"1.09","currency":"USD"}}],
	"total":{"amount":"6.82","currency":"USD"},"due":{"amount":"4.82","currency":"USD"},
	"settlement":{"prepaid":{"amount":"0.00","currency":"USD"},"paid":{"amount":"2.00","currency":"USD"},"credited":{"amount":"0.00","currency":"USD"},"written_off":{"amount":"0.00","currency":"USD"}}}`

const lineParts = `{"items":[
	{"segment":"seg_1","subject_kind":"instance","subject":"inst_1","name":"trainer","from":"2026-11-02T10:00:00.000000Z","to":"2026-11-02T11:00:00.000000Z","units":1,"quantity":{"value":"3600000000","unit":"gpu_us"}},
	{"segment":"seg_2","subject_kind":"instance","subject":"inst_2","name":"other","from":"2026-11-03T10:00:00.000000Z","to":"2026-11-03T10:30:00.000001Z","units":1,"quantity":{"value":"1800000000","unit":"gpu_us"}}]}`

func invoices(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/segments"):
		_, _ = io.WriteString(w, lineParts)
	case strings.HasSuffix(r.URL.Path, "/inv_1") || strings.HasSuffix(r.URL.Path, "/invoice-preview"):
		_, _ = io.WriteString(w, billedInvoice)
	default:
		_, _ = io.WriteString(w, "%PDF-1.7 "+r.URL.RequestURI())
	}
}

func TestAnInvoiceIsReadDownToItsSeconds(t *testing.T) {
	t.Parallel()
	term := setup(t, invoices)
	require.Equal(t, exitOK, term.run(t.Context(), "invoice", "get", "inv_1"), term.err.String())
	for _, want := range []string{
		"Invoice TR-2026-000001 (open)", "Due on: 2026-12-16", "3.60 USD/GPU-hour", "12.5 %", "S 19 %", "4.73 USD",
		"Tax S 19 % of 5.73 USD", "1.09 USD", "Total", "6.82 USD", "Paid", "2.00 USD", "Due", "4.82 USD",
	} {
		require.Contains(t, term.out.String(), want)
	}
	require.NotContains(t, term.out.String(), "Credited", "what did not happen is not printed")
	require.Equal(t, exitOK, term.run(t.Context(), "invoice", "get", "inv_1", "--drill", "1"), term.err.String())
	for _, want := range []string{"inst_1", "3600.000000", "1800.000001", "Sum   5400000000 gpu_us", "Line  5400000000 gpu_us at 3.60 USD = 4.73 USD"} {
		require.Contains(t, term.out.String(), want)
	}
	require.Equal(t, exitOK, term.run(t.Context(), "invoice", "get", "inv_1", "--drill", "1", "-o", "json"))
	var parts []map[string]any
	require.NoError(t, json.Unmarshal(term.out.Bytes(), &parts))
	require.Len(t, parts, 2)
	require.Equal(t, exitUsage, term.run(t.Context(), "invoice", "get", "inv_1", "--drill", "9"))
	require.Equal(t, exitOK, term.run(t.Context(), "invoice", "preview", "--period", "2026-11"))
	require.Equal(t, "GET /v1/organization/invoice-preview?period=2026-11", term.called[len(term.called)-1])
}

func TestDocumentsAreWrittenAsTheyCame(t *testing.T) {
	t.Parallel()
	term := setup(t, invoices)
	for format, path := range map[string]string{
		"pdf": "/pdf", "html": "/html", "csv": "/csv", "subjects": "/csv?table=subjects", "json": "/json", "ubl": "/ubl", "original": "/original",
	} {
		require.Equal(t, exitOK, term.run(t.Context(), "invoice", "download", "inv_2", "--format", format), term.err.String())
		require.Equal(t, "%PDF-1.7 /v1/organization/invoices/inv_2"+path, term.out.String())
	}
	file := filepath.Join(t.TempDir(), "invoice.pdf")
	require.Equal(t, exitOK, term.run(t.Context(), "invoice", "download", "inv_2", "--file", file))
	require.Empty(t, term.out.String(), "standard output is the document alone")
	body, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "%PDF-1.7 /v1/organization/invoices/inv_2/pdf", string(body))
	require.Equal(t, exitUsage, term.run(t.Context(), "invoice", "download", "inv_2", "--format", "docx"))
}

func TestTenantsOfMoneySendWhatTheySay(t *testing.T) {
	t.Parallel()
	var sent map[string]any
	term := setup(t, keep(`{"items":[]}`, &sent))
	for _, c := range []struct{ args, called, body string }{
		{"invoice ls --kind credit_note --status open --period 2026-11", "GET /v1/organization/invoices?kind=credit_note&page_size=200&period=2026-11&status=open", ``},
		{"usage --all-projects --group-by project,label:team", "GET /v1/organization/usage?bucket=day&group_by=project,label%3Ateam&page_size=200", ``},
		{"cost", "GET /v1/projects/-/usage?bucket=none&group_by=instance&page_size=200", ``},
		{"wallet get", "GET /v1/organization/wallet", ``},
		{"wallet grants", "GET /v1/organization/wallet/grants?page_size=200", ``},
		{"wallet redeem WELCOME-1", "POST /v1/organization/wallet/actions/redeem", `{"code":"WELCOME-1"}`},
		{"wallet auto-top-up --off", "PUT /v1/organization/wallet/auto-top-up", `{"order":null}`},
		{
			"wallet auto-top-up --below 20|USD --pay 50|USD --max 200|usd", "PUT /v1/organization/wallet/auto-top-up",
			`{"order":{"threshold":{"amount":"20","currency":"USD"},"amount":{"amount":"50","currency":"USD"},"monthly_max":{"amount":"200","currency":"USD"}}}`,
		},
		{"budget ls", "GET /v1/organization/budgets", ``},
		{
			"budget create train --amount 500|USD --project proj_1 --hard --tell-at 50,90", "POST /v1/organization/budgets",
			`{"name":"train","scope":"project","project":"proj_1","amount":{"amount":"500","currency":"USD"},"hard":true,"thresholds":[50,90]}`,
		},
		{"budget update bud_1 --hard=false", "PATCH /v1/organization/budgets/bud_1", `{"hard":false}`},
		{"budget rm bud_1", "DELETE /v1/organization/budgets/bud_1", ``},
		{"reservation ls", "GET /v1/organization/reservations?page_size=200", ``},
		{
			"reservation create --project proj_1 --offer h200 --units 4 --to 2027-12-01T00:00:00Z", "POST /v1/organization/reservations",
			`{"project":"proj_1","offer":"h200","units":4,"to":"2027-12-01T00:00:00.000000Z"}`,
		},
		{"price rules h200 --class spot", "GET /v1/prices?offer=h200&priority_class=spot", ``},
		{"price preview h200 --hours 720 --instances 2", "POST /v1/projects/-/price-previews", `{"offer":"h200","hours":"720","instances":2}`},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "|", " ")
		}
		require.Equal(t, exitOK, term.run(t.Context(), args...), "%s: %s", c.args, term.err.String())
		require.Equal(t, sortedQuery(t, c.called), sortedQuery(t, term.called[len(term.called)-1]), c.args)
		if c.body != "" {
			body, err := json.Marshal(sent)
			require.NoError(t, err)
			require.JSONEq(t, c.body, string(body), c.args)
		}
	}
}

// sortedQuery writes a call with its parameters in order of their names.
func sortedQuery(t *testing.T, called string) string {
	t.Helper()
	method, uri, _ := strings.Cut(called, " ")
	u, err := url.Parse(uri)
	require.NoError(t, err)
	return method + " " + u.Path + "?" + u.Query().Encode()
}

func TestMoneyIsNeverGuessed(t *testing.T) {
	t.Parallel()
	term := setup(t, refuse(500, "internal"))
	for _, args := range [][]string{
		{"budget", "create", "x", "--amount", "500"}, {"budget", "create", "x", "--amount", "1 USD", "--project", "p", "--key", "k"},
		{"budget", "update", "bud_1"}, {"wallet", "auto-top-up"}, {"wallet", "auto-top-up", "--off", "--pay", "1 USD"},
		{"wallet", "auto-top-up", "--pay", "1 USD"}, {"reservation", "create", "--offer", "x"}, {"usage", "--all-projects", "--project", "p"},
		{"invoice", "get", "inv_1", "--preview"}, {"invoice", "download"}, {"cost", "--from", "yesterday"},
	} {
		require.Equal(t, exitUsage, term.run(t.Context(), args...), "%v: %s", args, term.err.String())
	}
	require.Empty(t, term.called)
}

func TestCostSumsExactly(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[
			{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","group":{"instance":"inst_1"},"quantity":{"value":"1","unit":"gpu_us"},"exact":{"amount":"0.000000000136","currency":"USD"}},
			{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","group":{"instance":"inst_2"},"quantity":{"value":"1","unit":"gpu_us"},"exact":{"amount":"0.1","currency":"USD"}},
			{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","group":{"instance":"inst_3"},"quantity":{"value":"1","unit":"gpu_us"},"exact":{"amount":"0.2","currency":"EUR"}}]}`)
	})
	require.Equal(t, exitOK, term.run(t.Context(), "cost"))
	require.Contains(t, term.out.String(), "Total 0.2 EUR\nTotal 0.100000000136 USD\n")
}
