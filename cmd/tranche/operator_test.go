package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keep answers every request with a body and remembers what was sent last.
func keep(body string, sent *map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		*sent = nil
		_ = json.Unmarshal(text, sent)
		_, _ = w.Write([]byte(body))
	}
}

func TestOperatorVerbsSendWhatTheySay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: Acme\nfrom: 2026-12-01T00:00:00Z\nprices:\n- {offer: h200, price_per_hour: 1.10}\nminimums: [{scope: {}, seconds: 60}]\n"), 0o600))
	steps := filepath.Join(t.TempDir(), "steps.json")
	require.NoError(t, os.WriteFile(steps, []byte(`{"steps": [{"days": 3, "action": "remind"}]}`), 0o600))
	csv := filepath.Join(t.TempDir(), "bank.csv")
	require.NoError(t, os.WriteFile(csv, []byte("bank_id\n"), 0o600))
	var sent map[string]any
	term := setup(t, keep(`{"items":[]}`, &sent))
	for _, c := range []struct {
		args, called, body string
	}{
		{"invoice-run start 2026-11", "POST /v1/admin/invoice-runs", `{"period":"2026-11"}`},
		{"invoice-run get 2026-11", "GET /v1/admin/invoice-runs/2026-11", ``},
		{"invoice-run check 2026-11", "POST /v1/admin/invoice-runs/2026-11/actions/check", ``},
		{"credit-note create inv_1 --organization org_1 --reason late --line 1=10.00|USD --line 2 --refund wallet",
			"POST /v1/admin/organizations/org_1/invoices/inv_1/credit-notes",
			`{"reason":"late","refund":"wallet","lines":[{"line":1,"net":{"amount":"10.00","currency":"USD"}},{"line":2}]}`},
		{"credit-note create inv_1 --organization org_1 --reason late --net 5|EUR", "POST /v1/admin/organizations/org_1/invoices/inv_1/credit-notes",
			`{"reason":"late","net":{"amount":"5","currency":"EUR"}}`},
		{"invoice cancel inv_1 --organization org_1 --reason wrong --refund none", "POST /v1/admin/organizations/org_1/invoices/inv_1/actions/cancel",
			`{"reason":"wrong","refund":"none"}`},
		{"invoice reissue inv_1 --organization org_1 --reason wrong", "POST /v1/admin/organizations/org_1/invoices/inv_1/actions/reissue", `{"reason":"wrong"}`},
		{"invoice write-off inv_1 --organization org_1 --reason gone --amount 1|EUR", "POST /v1/admin/organizations/org_1/invoices/inv_1/write-offs",
			`{"reason":"gone","amount":{"amount":"1","currency":"EUR"}}`},
		{"contract create --organization org_1 -f " + file, "POST /v1/admin/organizations/org_1/contracts",
			`{"name":"Acme","from":"2026-12-01T00:00:00.000000Z","prices":[{"offer":"h200","price_per_hour":"1.10"}],"minimums":[{"scope":{},"seconds":60}]}`},
		{"contract end ctr_1 --organization org_1", "POST /v1/admin/organizations/org_1/contracts/ctr_1/actions/end", `{}`},
		{"price assign org_1 pb_1 --from 2027-01-01T00:00:00Z", "POST /v1/admin/organizations/org_1/price-books",
			`{"price_book":"pb_1","from":"2027-01-01T00:00:00.000000Z"}`},
		{"price spot h200 --price 0.21|usd", "POST /v1/admin/spot-prices", `{"offer":"h200","price_per_hour":"0.21","currency":"USD"}`},
		{"approval approve apr_1", "POST /v1/admin/approvals/apr_1/actions/approve", ``},
		{"approval rule credit_note --above 100|USD", "PUT /v1/admin/approval-rules/credit_note", `{"above":{"amount":"100","currency":"USD"}}`},
		{"payment refund pay_1 --organization org_1 --reason twice --reopen", "POST /v1/admin/organizations/org_1/payments/pay_1/refunds",
			`{"reason":"twice","reopen":true}`},
		{"payment import " + csv + " --account DE1", "POST /v1/admin/bank-statements", `{"account":"DE1","csv":"bank_id\n"}`},
		{"payment match stl_1 --organization org_1 --pays inv_1=119.00|EUR", "POST /v1/admin/statement-lines/stl_1/actions/match",
			`{"organization":"org_1","parts":[{"invoice":"inv_1","amount":{"amount":"119.00","currency":"EUR"}}]}`},
		{"payment return stl_1 --reason unknown", "POST /v1/admin/statement-lines/stl_1/actions/return", `{"reason":"unknown"}`},
		{"tax record org_1 --outcome valid --source web", "POST /v1/admin/organizations/org_1/tax-id-checks", `{"outcome":"valid","source":"web"}`},
		{"finance close 2026-11", "POST /v1/admin/finance/closes", `{"period":"2026-11"}`},
		{"finance journal 2026-11", "GET /v1/admin/finance/closes/2026-11/journal", ``},
		{"finance resolve disc_1 --verdict billed --reason seen", "POST /v1/admin/discrepancies/disc_1/actions/resolve", `{"verdict":"billed","reason":"seen"}`},
		{"finance gpu-cost H200-141 --price 1.10|USD", "POST /v1/admin/finance/gpu-costs", `{"gpu_model":"H200-141","price_per_hour":"1.10","currency":"USD"}`},
		{"finance revenue 2026-11", "GET /v1/admin/finance/revenue/2026-11", ``},
		{"finance utilisation 2026-11", "GET /v1/admin/finance/utilisation/2026-11", ``},
		{"issuer dunning default -f " + steps, "PUT /v1/admin/issuers/default/dunning-schedule", `{"steps":[{"days":3,"action":"remind"}]}`},
		{"issuer dunning default", "GET /v1/admin/issuers/default/dunning-schedule", ``},
		{"customer mode org_1 prepaid", "PUT /v1/admin/organizations/org_1/money-mode", `{"mode":"prepaid"}`},
		{"customer grant org_1 --name hello --amount 10|USD", "POST /v1/admin/organizations/org_1/grants",
			`{"name":"hello","amount":{"amount":"10","currency":"USD"}}`},
		{"customer prepay org_1 --reference 2026/42 --amount 10|USD", "POST /v1/admin/organizations/org_1/prepayments",
			`{"reference":"2026/42","amount":{"amount":"10","currency":"USD"}}`},
		{"customer get org_1", "GET /v1/admin/organizations/org_1/billing-profile", ``},
		{"coupon create HELLO --name hello --amount 10|USD --uses 5 --days 30", "POST /v1/admin/coupons",
			`{"code":"HELLO","name":"hello","amount":{"amount":"10","currency":"USD"},"max_uses":5,"grant_days":30}`},
		{"tax starter", "GET /v1/admin/starter-tax-table", ``},
		{"payment candidates stl_1", "GET /v1/admin/statement-lines/stl_1/candidates", ``},
		{"invoice download inv_1 --organization org_1", "GET /v1/admin/organizations/org_1/invoices/inv_1/pdf", ``},
		{"invoice get inv_1 --organization org_1", "GET /v1/admin/organizations/org_1/invoices/inv_1", ``},
	} {
		args := strings.Split(c.args, " ")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "|", " ")
		}
		term.called = nil
		require.Equal(t, exitOK, term.run(t.Context(), append(args, "-o", "json")...), "%s: %s", c.args, term.err.String())
		require.Equal(t, []string{c.called}, term.called)
		if c.body == "" {
			require.Nil(t, sent, c.args)
			continue
		}
		got, err := json.Marshal(sent)
		require.NoError(t, err)
		require.JSONEq(t, c.body, string(got), c.args)
	}
}

func TestOperatorListsAreEmptyArrays(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"items":[]}`)) })
	for _, list := range []string{
		"price ls", "price assignments org_1", "contract ls", "contract ls --organization org_1", "issuer ls", "approval ls", "approval rules",
		"payment ls", "payment ls --organization org_1", "payment lines --state queued", "finance accounts", "finance discrepancies",
		"invoice ls --organization org_1", "customer grants org_1",
	} {
		require.Equal(t, exitOK, term.run(t.Context(), append(strings.Split(list, " "), "-o", "json")...), "%s: %s", list, term.err.String())
		require.Equal(t, "[]\n", term.out.String(), list)
		require.Equal(t, exitOK, term.run(t.Context(), strings.Split(list, " ")...), list)
	}
}

func TestOperatorUsageErrorsAskNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	create := []string{"contract", "create", "--organization", "org_1", "-f"}
	term := setup(t, refuse(500, "internal"))
	for _, args := range [][]string{
		{"invoice-run", "start", "2026-13"}, {"invoice-run", "start"}, {"finance", "close", "november"}, {"finance", "accounts", "--day", "today"},
		{"credit-note", "create", "inv_1"}, {"credit-note", "create", "inv_1", "--organization", "o", "--reason", "r", "--line", "x"},
		{"credit-note", "create", "inv_1", "--organization", "o", "--reason", "r", "--line", "1", "--net", "1 EUR"},
		{"credit-note", "create", "inv_1", "--organization", "o", "--reason", "r", "--net", "1"},
		{"invoice", "cancel", "inv_1", "--organization", "o"}, {"invoice", "cancel", "inv_1", "--organization", "o", "--reason", "r", "--refund", "cash"},
		{"invoice", "get", "inv_1", "--organization", "o", "--drill", "1"}, {"invoice", "download", "inv_1", "--organization", "o", "--format", "ubl"},
		{"customer", "mode", "org_1", "free"}, {"customer", "grant", "org_1"},
		{"customer", "prepay", "org_1", "--amount", "1 USD"}, {"coupon", "create", "X", "--name", "x", "--amount", "1 USD"}, {"finance", "gpu-cost", "H200"}, {"finance", "revenue", "now"}, {"contract", "create"}, {"contract", "end", "ctr_1"},
		{"price", "create"}, {"price", "spot", "h200"}, {"price", "assign", "org_1", "pb_1", "--from", "soon"}, {"payment", "import", "/nothing", "--account", "x"},
		{"payment", "match", "stl_1"}, {"payment", "match", "stl_1", "--organization", "o", "--pays", "inv_1"}, {"payment", "lines", "--state", "lost"},
		{"tax", "record", "org_1", "--outcome", "perhaps", "--source", "x"}, {"finance", "resolve", "disc_1", "--verdict", "maybe", "--reason", "x"},
		append(create, filepath.Join(dir, "absent")), append(create, bad("list", "- a\n")), append(create, bad("unknown", "nmae: x\n")),
		append(create, bad("twice", "name: x\nname: y\n")), append(create, bad("alias", "name: &a x\nto: *a\n")), append(create, bad("broken", "name: [\n")),
		append(create, bad("number", "name: 12\n")), append(create, ""), append(create, bad("two", "name: x\n---\nname: y\n")), append(create, bad("empty", "")), append(create, bad("large", strings.Repeat("#", maxFile+1))),
	} {
		require.Equal(t, exitUsage, term.run(t.Context(), args...), "%v: %s", args, term.err.String())
	}
	require.Empty(t, term.called)
}

func TestACheckThatFindsADifferenceFails(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"period":"2026-11","documents":2,"different":[{"organization":"org_1","invoice":"inv_1","detail":"content"}]}`))
	})
	require.Equal(t, exitError, term.run(t.Context(), "invoice-run", "check", "2026-11"))
	require.Contains(t, term.out.String(), "inv_1")
	require.Contains(t, term.err.String(), "1 documents of 2026-11")
}

func TestAnInvoiceRunIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	term := setup(t, func(w http.ResponseWriter, r *http.Request) {
		status := "running"
		if r.Method == http.MethodGet && r.URL.Query().Get("wait") != "" {
			status = "succeeded"
		}
		_, _ = w.Write([]byte(`{"period":"2026-11","status":"` + status + `","created_at":"2026-12-02T00:00:00.000000Z","invoices":[{"organization":"org_1",
			"invoice":"inv_1","number":"TR-2026-000001","total":{"amount":"0.49","currency":"USD"}}]}`))
	})
	require.Equal(t, exitOK, term.run(t.Context(), "invoice-run", "start", "2026-11", "--wait"), term.err.String())
	require.Contains(t, term.out.String(), "TR-2026-000001")
	require.Contains(t, term.err.String(), "waiting for the run of 2026-11")
}

func TestAProblemOfMoneyHasItsExitCode(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{
		"approval.required": exitAuth, "credit.exceeds": exitConflict, "refund.required": exitUsage, "issuer.unknown": exitNotFound,
		"payment.spent": exitConflict, "payment.unknown_outcome": exitError, "billing.suspended": exitQuota, "statement.mismatch": exitConflict,
	} {
		require.Equal(t, want, exitCode(code), code)
	}
}

// The files of docs/operations/billing.md are ones that the commands take.
func TestTheFilesOfTheGuideAreTaken(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/operations/billing.md")
	require.NoError(t, err)
	dir := t.TempDir()
	files := map[string]string{}
	for _, block := range strings.Split(string(guide), "```yaml\n# ")[1:] {
		name, text, _ := strings.Cut(strings.SplitN(block, "```", 2)[0], "\n")
		files[name] = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(files[name], []byte(text), 0o600))
	}
	var sent map[string]any
	term := setup(t, keep(`{}`, &sent))
	require.Equal(t, exitOK, term.run(t.Context(), "price", "create", "-f", files["prices.yaml"]), term.err.String())
	require.Len(t, sent["prices"], 2)
	require.Equal(t, exitOK, term.run(t.Context(), "contract", "create", "--organization", "org_1", "-f", files["contract.yaml"]), term.err.String())
	require.Equal(t, "Acme 2027", sent["name"])
}
