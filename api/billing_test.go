package api_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
)

const organization = "/v1/organization"

func (p party) admin() string { return "/v1/admin/organizations/" + p.org }

func usd(amount string) map[string]any { return map[string]any{"amount": amount, "currency": "USD"} }

// sold starts in November with a GPU, its price and an organization.
func sold(t *testing.T) (live, party) {
	t.Helper()
	l := newLive(t)
	l.jump(t, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	l.fleet(t, 1)
	return l, l.tenant(t, "Acme")
}

// The drill-down reaches the seconds: its parts sum to the line, the lines to the
// total.
func TestAnInvoiceReachesItsSeconds(t *testing.T) {
	l, acme := sold(t)
	instance, invoice := l.billedMonth(t, acme)
	got := l.must(t, 200, acme.secret, "GET", organization+"/invoices/"+invoice, nil)
	require.Equal(t, "open", got.text("status"))
	require.Equal(t, "usage", got.text("kind"))
	require.Equal(t, "default", got.text("issuer"))
	require.NotEmpty(t, got.text("due_on"))
	line := got.body["lines"].([]any)[0].(map[string]any)
	require.Equal(t, "usage", line["component"])
	require.Equal(t, organization+"/invoices/"+invoice+"/lines/1/segments", line["subjects_url"])
	parts := l.must(t, 200, acme.secret, "GET", line["subjects_url"].(string), nil).items()
	require.Len(t, parts, 1)
	require.Equal(t, instance, parts[0]["subject"])
	require.Equal(t, "2026-11-02T10:00:00.000000Z", parts[0]["from"])
	require.Equal(t, line["quantity"], parts[0]["quantity"])
	for _, path := range []string{"/lines/2/segments", "/lines/0/segments", "/lines/x/segments", "/lines/-1/segments"} {
		l.refusal(t, "resource.not_found", acme.secret, "GET", organization+"/invoices/"+invoice+path, nil)
	}

	list := l.must(t, 200, acme.secret, "GET", organization+"/invoices?kind=usage&status=open&period=2026-11", nil)
	require.Len(t, list.items(), 1)
	for _, filter := range []string{"kind=credit_note", "status=paid", "period=2026-10"} {
		require.Empty(t, l.must(t, 200, acme.secret, "GET", organization+"/invoices?"+filter, nil).items(), filter)
	}
	l.refusal(t, "request.invalid", acme.secret, "GET", organization+"/invoices?kind=bill", nil)
	whole := l.must(t, 200, acme.secret, "GET", organization+"/usage?from=2026-11-01T00:00:00Z&to=2026-12-01T00:00:00Z&group_by=project,instance", nil).items()
	require.Len(t, whole, 1)
	require.Equal(t, line["quantity"], whole[0]["quantity"])
	require.Equal(t, acme.project, whole[0]["group"].(map[string]any)["project"])
	require.Len(t, l.must(t, 200, l.operator, "GET", acme.admin()+"/invoices", nil).items(), 1)
	require.Equal(t, got.text("content_hash"), l.must(t, 200, l.operator, "GET", acme.admin()+"/invoices/"+invoice, nil).text("content_hash"))
	report := l.must(t, 200, l.operator, "POST", "/v1/admin/invoice-runs/2026-11/actions/check", nil)
	require.Equal(t, 1.0, report.body["documents"])
	require.Empty(t, report.body["different"])
}

// A document that was changed behind the product's back is found, and reported under an
// idempotency key, too.
func TestACheckReportsWhatDiffers(t *testing.T) {
	l, acme := sold(t)
	_, invoice := l.billedMonth(t, acme)
	l.exec(t, `alter table invoices disable trigger user`)
	l.exec(t, `update invoices set content_hash = '\x01'`)
	l.exec(t, `alter table invoices enable trigger user`)
	check := func() reply {
		return l.must(t, 200, l.operator, "POST", "/v1/admin/invoice-runs/2026-11/actions/check", nil, "Idempotency-Key", "check")
	}
	report := check()
	require.Equal(t, 1.0, report.body["documents"])
	different := report.body["different"].([]any)
	require.Len(t, different, 1)
	require.Equal(t, invoice, different[0].(map[string]any)["invoice"])
	require.JSONEq(t, report.raw, check().raw)
}

func TestDocumentsAreServedAsFiles(t *testing.T) {
	l, acme := sold(t)
	_, invoice := l.billedMonth(t, acme)
	path := organization + "/invoices/" + invoice
	l.refusal(t, "resource.not_found", acme.secret, "GET", path+"/original", nil)
	for form, want := range map[string]struct{ media, start, name string }{
		"/html":               {"text/html; charset=utf-8", "<!doctype html>", "TR-2026-000001.html"},
		"/csv":                {"text/csv; charset=utf-8", "", "TR-2026-000001.csv"},
		"/csv?table=subjects": {"text/csv; charset=utf-8", "", "TR-2026-000001.csv"},
		"/json":               {"application/json", "{", "TR-2026-000001.json"},
		"/pdf":                {"application/pdf", "%PDF-", "TR-2026-000001.pdf"},
	} {
		r := l.must(t, 200, acme.secret, "GET", path+form, nil)
		require.Equal(t, want.media, r.header.Get("Content-Type"), form)
		require.True(t, strings.HasPrefix(strings.ToLower(r.raw), strings.ToLower(want.start)), form)
		require.Contains(t, r.header.Get("Content-Disposition"), want.name, form)
		require.Contains(t, r.header.Get("Content-Security-Policy"), "default-src 'none'", form)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), form)
		require.NotEmpty(t, r.raw, form)
	}
	l.refusal(t, "document.not_en16931", acme.secret, "GET", path+"/ubl", nil) // nobody has an address

	_, err := l.app.StoreOriginals(t.Context())
	require.NoError(t, err)
	stored := l.must(t, 200, acme.secret, "GET", path+"/original", nil)
	sum := sha256.Sum256([]byte(stored.raw))
	require.Equal(t, "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":", stored.header.Get("Repr-Digest"))
	require.Equal(t, stored.raw, l.must(t, 200, acme.secret, "GET", path+"/pdf", nil).raw)
	require.Equal(t, fmt.Sprintf("%x", sum), l.must(t, 200, acme.secret, "GET", path, nil).text("original", "sha256"))

	csv := l.must(t, 200, acme.secret, "GET", organization+"/exports/focus?period=2026-11", nil)
	require.Contains(t, csv.raw, "BilledCost")
	require.True(t, strings.HasPrefix(l.must(t, 200, acme.secret, "GET", organization+"/exports/focus?period=2026-11&format=parquet", nil).raw, "PAR1"))
	l.refusal(t, "request.invalid", acme.secret, "GET", organization+"/exports/focus", nil)
}

func TestCorrectionsAreWholeAndTyped(t *testing.T) {
	l, acme := sold(t)
	_, invoice := l.billedMonth(t, acme)
	path := acme.admin() + "/invoices/" + invoice
	for name, c := range map[string]struct {
		code string
		body map[string]any
	}{
		"more than the total": {"credit.exceeds", map[string]any{"net": usd("3.61"), "reason": "x"}},
		"more than its line":  {"credit.exceeds", map[string]any{"lines": []any{map[string]any{"line": 1, "net": usd("4.00")}}, "reason": "x"}},
		"another currency":    {"request.invalid", map[string]any{"net": map[string]any{"amount": "1.00", "currency": "EUR"}, "reason": "x"}},
		"too many decimals":   {"request.invalid", map[string]any{"net": usd("1.001"), "reason": "x"}},
		"no line":             {"request.invalid", map[string]any{"lines": []any{map[string]any{"line": 9}}, "reason": "x"}},
		"negative":            {"request.invalid", map[string]any{"net": usd("-1.00"), "reason": "x"}},
		"no reason":           {"request.invalid", map[string]any{"net": usd("1.00")}},
		"unknown currency":    {"request.invalid", map[string]any{"net": map[string]any{"amount": "1.00", "currency": "XXZ"}, "reason": "x"}},
	} {
		t.Run(name, func(t *testing.T) { l.refusal(t, c.code, l.operator, "POST", path+"/credit-notes", c.body) })
	}
	l.refusal(t, "resource.not_found", acme.secret, "POST", path+"/credit-notes", map[string]any{"reason": "x"})

	body := map[string]any{"net": usd("1.00"), "reason": "Outage"}
	note := l.must(t, 201, l.operator, "POST", path+"/credit-notes", body, "Idempotency-Key", "note")
	require.Equal(t, "TR-CN-2026-000001", note.text("number"))
	require.Equal(t, "-1.00", note.text("total", "amount"))
	require.Equal(t, invoice, note.text("corrects", "invoice"))
	require.Equal(t, note.raw, l.must(t, 201, l.operator, "POST", path+"/credit-notes", body, "Idempotency-Key", "note").raw)
	credited := l.must(t, 200, acme.secret, "GET", organization+"/invoices/"+invoice, nil)
	require.Equal(t, "1.00", credited.text("settlement", "credited", "amount"))
	require.Equal(t, "2.60", credited.text("due", "amount"))

	off := l.must(t, 201, l.operator, "POST", path+"/write-offs", map[string]any{"amount": usd("0.60"), "reason": "Small"})
	require.Equal(t, "2.00", off.text("due", "amount"))
	l.refusal(t, "payment.exceeds_due", l.operator, "POST", path+"/write-offs", map[string]any{"amount": usd("2.01"), "reason": "Small"})

	again := l.must(t, 200, l.operator, "POST", path+"/actions/reissue", map[string]any{"reason": "Wrong buyer"})
	require.Equal(t, "TR-2026-000002", again.text("invoice", "number"))
	require.Equal(t, invoice, again.text("invoice", "replaces", "invoice"))
	require.Equal(t, "void", l.must(t, 200, acme.secret, "GET", organization+"/invoices/"+invoice, nil).text("status"))
	l.refusal(t, "state.conflict", l.operator, "POST", path+"/actions/cancel", map[string]any{"reason": "Twice"})
	next := acme.admin() + "/invoices/" + again.text("invoice", "id")
	gone := l.must(t, 200, l.operator, "POST", next+"/actions/cancel", map[string]any{"reason": "Not wanted"})
	require.Equal(t, "void", gone.text("invoice", "status"))
	require.NotEmpty(t, gone.text("credit_note"))
	require.Len(t, l.must(t, 200, acme.secret, "GET", organization+"/invoices?kind=credit_note", nil).items(), 3)
}

// Above the limit nobody acts alone, and a consent is good for one execution.
func TestFourEyes(t *testing.T) {
	l, acme := sold(t)
	_, invoice := l.billedMonth(t, acme)
	second, err := l.app.CreateOperator(t.Context(), "second")
	require.NoError(t, err)
	rules := l.must(t, 200, l.operator, "PUT", "/v1/admin/approval-rules/credit_note", map[string]any{"above": usd("1.00")})
	require.Len(t, rules.items(), 1)
	l.refusal(t, "request.invalid", l.operator, "PUT", "/v1/admin/approval-rules/price_book", map[string]any{"above": usd("1.00")})
	l.refusal(t, "resource.not_found", l.operator, "PUT", "/v1/admin/approval-rules/coffee", map[string]any{})
	path := acme.admin() + "/invoices/" + invoice + "/credit-notes"
	body := map[string]any{"net": usd("2.00"), "reason": "Outage"}
	l.refusal(t, "approval.required", l.operator, "POST", path, body)
	waiting := l.must(t, 200, l.operator, "GET", "/v1/admin/approvals", nil).items()
	require.Len(t, waiting, 1)
	one := "/v1/admin/approvals/" + waiting[0]["id"].(string)
	require.Equal(t, "pending", l.must(t, 200, l.operator, "GET", one, nil).text("state"))
	l.refusal(t, "approval.self", l.operator, "POST", one+"/actions/approve", nil)
	require.Equal(t, "approved", l.must(t, 200, second.Secret.Reveal(), "POST", one+"/actions/approve", nil).text("state"))
	l.refusal(t, "state.conflict", second.Secret.Reveal(), "POST", one+"/actions/reject", nil)
	l.must(t, 201, l.operator, "POST", path, body)
	require.Equal(t, "executed", l.must(t, 200, l.operator, "GET", one, nil).text("state"))
	l.refusal(t, "approval.required", l.operator, "POST", path, map[string]any{"net": usd("1.50"), "reason": "Again"})
	l.must(t, 200, l.operator, "PUT", "/v1/admin/approval-rules/price_book", map[string]any{})
	l.refusal(t, "approval.required", l.operator, "POST", "/v1/admin/price-books", map[string]any{
		"name": "next", "currency": "USD", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "9"}},
	})
	l.refusal(t, "resource.not_found", l.operator, "POST", "/v1/admin/approvals/"+id.New[id.Approval]().String()+"/actions/approve", nil)
}

func TestWalletsAndBudgets(t *testing.T) {
	l, acme := sold(t)
	bolt := l.tenant(t, "Bolt")
	require.Equal(t, "postpaid", l.must(t, 200, acme.secret, "GET", organization+"/wallet", nil).text("mode"))
	paid := l.must(t, 201, l.operator, "POST", acme.admin()+"/prepayments", map[string]any{"reference": "bank-1", "amount": usd("100")})
	require.Equal(t, "100.00", paid.text("prepaid", "amount"))
	once := l.must(t, 201, l.operator, "POST", acme.admin()+"/prepayments", map[string]any{"reference": "bank-1", "amount": usd("100.00")})
	require.Equal(t, "100.00", once.text("prepaid", "amount"), "one reference counts once")
	require.Equal(t, "prepaid", l.must(t, 200, l.operator, "PUT", acme.admin()+"/money-mode", map[string]any{"mode": "prepaid"}).text("mode"))
	grant := l.must(t, 201, l.operator, "POST", acme.admin()+"/grants", map[string]any{"name": "Welcome", "amount": usd("10.00"), "scope": map[string]any{"meter": "gpu"}})
	require.Equal(t, "10.00", grant.text("remaining", "amount"))
	l.refusal(t, "request.invalid", l.operator, "POST", acme.admin()+"/grants", map[string]any{"name": "Old", "amount": usd("10.00"), "expires_at": "2020-01-01T00:00:00Z"})
	l.must(t, 201, l.operator, "POST", "/v1/admin/coupons", map[string]any{"code": "WELCOME-1", "name": "Welcome", "amount": usd("5.00"), "max_uses": 2})
	l.refusal(t, "name.taken", l.operator, "POST", "/v1/admin/coupons", map[string]any{"code": "WELCOME-1", "name": "Welcome", "amount": usd("5.00"), "max_uses": 2})
	l.must(t, 201, acme.secret, "POST", organization+"/wallet/actions/redeem", map[string]any{"code": "welcome-1"})
	l.refusal(t, "coupon.used", acme.secret, "POST", organization+"/wallet/actions/redeem", map[string]any{"code": "WELCOME-1"})
	l.refusal(t, "coupon.invalid", bolt.secret, "POST", organization+"/wallet/actions/redeem", map[string]any{"code": "WELCOME-2"})
	require.Len(t, l.must(t, 200, acme.secret, "GET", organization+"/wallet/grants", nil).items(), 3)
	require.Len(t, l.must(t, 200, l.operator, "GET", acme.admin()+"/grants", nil).items(), 3)
	require.Equal(t, "15.00", l.must(t, 200, l.operator, "GET", acme.admin()+"/wallet", nil).text("promo", "amount"))

	order := map[string]any{"threshold": usd("20.00"), "amount": usd("50.00"), "monthly_max": usd("200.00")}
	set := l.must(t, 200, acme.secret, "PUT", organization+"/wallet/auto-top-up", map[string]any{"order": order})
	require.Equal(t, "50.00", set.text("order", "amount", "amount"))
	require.Equal(t, set.raw, l.must(t, 200, acme.secret, "GET", organization+"/wallet/auto-top-up", nil).raw)
	order["monthly_max"] = usd("10.00")
	l.refusal(t, "request.invalid", acme.secret, "PUT", organization+"/wallet/auto-top-up", map[string]any{"order": order})
	require.Nil(t, l.must(t, 200, acme.secret, "PUT", organization+"/wallet/auto-top-up", map[string]any{"order": nil}).body["order"])

	made := l.must(t, 201, acme.secret, "POST", organization+"/budgets", map[string]any{"name": "training", "scope": "project", "project": acme.project, "amount": usd("500.00")})
	require.Equal(t, []any{50.0, 80.0, 100.0}, made.body["thresholds"])
	one := made.header.Get("Location")
	require.Equal(t, "800.00", l.must(t, 200, acme.secret, "PATCH", one, map[string]any{"amount": usd("800.00"), "hard": true}).text("amount", "amount"))
	for name, bad := range map[string]map[string]any{
		"no project":    {"name": "x", "scope": "project", "amount": usd("1.00")},
		"two scopes":    {"name": "x", "scope": "organization", "project": acme.project, "amount": usd("1.00")},
		"zero":          {"name": "x", "scope": "organization", "amount": usd("0.00")},
		"another money": {"name": "x", "scope": "organization", "amount": map[string]any{"amount": "1.00", "currency": "EUR"}},
		"a threshold 0": {"name": "x", "scope": "organization", "amount": usd("1.00"), "thresholds": []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			l.refusal(t, "request.invalid", acme.secret, "POST", organization+"/budgets", bad)
		})
	}
	for _, method := range []string{"GET", "DELETE"} {
		l.refusal(t, "resource.not_found", bolt.secret, method, one, nil)
	}
	require.Len(t, l.must(t, 200, acme.secret, "GET", organization+"/budgets", nil).items(), 1)
	l.must(t, 204, acme.secret, "DELETE", one, nil)
	l.refusal(t, "resource.not_found", acme.secret, "DELETE", one, nil)
	confined := l.must(t, 201, acme.secret, "POST", organization+"/api-keys", map[string]any{"name": "ci", "project": acme.project}).text("secret")
	l.refusal(t, "auth.forbidden", confined, "POST", organization+"/budgets", map[string]any{"name": "x", "scope": "organization", "amount": usd("1.00")})
	l.refusal(t, "auth.forbidden", confined, "GET", organization+"/usage", nil)
}

func TestContractsReservationsAndPrices(t *testing.T) {
	l, acme := sold(t)
	bolt := l.tenant(t, "Bolt")
	rules := l.must(t, 200, acme.secret, "GET", "/v1/prices?offer="+offerName, nil)
	require.Equal(t, "TEST-80/whole", rules.text("family"))
	states := map[string]map[string]any{}
	for _, r := range rules.body["rules"].([]any) {
		states[r.(map[string]any)["state"].(string)] = r.(map[string]any)
	}
	running := states["running"]
	require.Nil(t, states["preparing"]["price"], "free")
	require.Equal(t, "3.60", running["price"].(map[string]any)["amount"])
	l.refusal(t, "offer.unknown", acme.secret, "GET", "/v1/prices?offer=nothing", nil)
	l.refusal(t, "request.invalid", acme.secret, "GET", "/v1/prices", nil)
	preview := l.must(t, 200, acme.secret, "POST", "/v1/projects/"+acme.project+"/price-previews", map[string]any{"offer": offerName, "instances": 2, "hours": "1.5"})
	require.Equal(t, "10.80", preview.text("estimate", "amount", "amount"))
	l.refusal(t, "request.invalid", acme.secret, "POST", "/v1/projects/"+acme.project+"/price-previews", map[string]any{"hours": "1"})
	l.refusal(t, "resource.not_found", bolt.secret, "POST", "/v1/projects/"+acme.project+"/price-previews", map[string]any{"offer": offerName})

	contract := map[string]any{
		"name": "2027", "from": "2026-12-01T00:00:00Z", "to": "2027-12-01T00:00:00Z",
		"discounts":   []any{map[string]any{"name": "volume", "scope": map[string]any{"family": "TEST-80/whole"}, "percent": "12.5"}},
		"commitments": []any{map[string]any{"name": "monthly", "amount": "100.00"}},
		"prices": []any{map[string]any{"offer": offerName, "tiers": map[string]any{
			"kind": "graduated", "steps": []any{map[string]any{"up_to": "100", "price": "3.5"}, map[string]any{"price": "3"}},
		}}},
	}
	made := l.must(t, 201, l.operator, "POST", acme.admin()+"/contracts", contract)
	require.Equal(t, "graduated", made.body["prices"].([]any)[0].(map[string]any)["tiers"].(map[string]any)["kind"])
	require.Equal(t, made.raw, l.must(t, 200, l.operator, "GET", made.header.Get("Location"), nil).raw)
	own := organization + "/contracts/" + made.text("id")
	require.Equal(t, made.raw, l.must(t, 200, acme.secret, "GET", own, nil).raw)
	l.refusal(t, "resource.not_found", bolt.secret, "GET", own, nil)
	require.Len(t, l.must(t, 200, acme.secret, "GET", organization+"/contracts", nil).items(), 1)
	l.refusal(t, "state.conflict", l.operator, "POST", acme.admin()+"/contracts", contract)
	contract["currency"], contract["name"] = "EUR", "euro"
	l.refusal(t, "request.invalid", l.operator, "POST", acme.admin()+"/contracts", contract)
	require.NotNil(t, l.must(t, 200, l.operator, "POST", made.header.Get("Location")+"/actions/end", map[string]any{}).body["cancelled_at"])
	l.refusal(t, "state.conflict", l.operator, "POST", made.header.Get("Location")+"/actions/end", map[string]any{})

	wish := map[string]any{"project": acme.project, "offer": offerName, "units": 1, "to": "2027-12-01T00:00:00Z"}
	l.refusal(t, "offer.unavailable", acme.secret, "POST", organization+"/reservations", wish)
	l.must(t, 201, l.operator, "POST", "/v1/admin/price-books", map[string]any{"name": "all", "currency": "USD", "default": true, "prices": []any{
		map[string]any{"offer": offerName, "price_per_hour": "3.6"},
		map[string]any{"offer": offerName, "meter": "reservation", "price_per_hour": "2"},
		map[string]any{"offer": offerName, "meter": "storage", "price_per_hour": "0.0001"},
	}})
	all := l.must(t, 200, l.operator, "GET", "/v1/admin/price-books", nil).items()
	require.Equal(t, "gpu", all[0]["versions"].([]any)[0].(map[string]any)["prices"].([]any)[0].(map[string]any)["meter"])
	cyan := l.tenant(t, "Cyan")
	wish["project"] = cyan.project
	reserved := l.must(t, 201, cyan.secret, "POST", organization+"/reservations", wish)
	require.Equal(t, "2.00", reserved.text("price_per_hour", "amount"))
	require.Equal(t, reserved.raw, l.must(t, 200, cyan.secret, "GET", reserved.header.Get("Location"), nil).raw)
	require.Len(t, l.must(t, 200, cyan.secret, "GET", organization+"/reservations", nil).items(), 1)
	require.Len(t, l.must(t, 200, l.operator, "GET", cyan.admin()+"/reservations", nil).items(), 1)
	l.refusal(t, "resource.not_found", acme.secret, "GET", reserved.header.Get("Location"), nil)
	wish["project"] = acme.project
	l.refusal(t, "resource.not_found", cyan.secret, "POST", organization+"/reservations", wish)
	l.must(t, 200, l.operator, "POST", cyan.admin()+"/reservations/"+reserved.text("id")+"/actions/end", map[string]any{})
	books := l.must(t, 200, l.operator, "GET", cyan.admin()+"/price-books", nil)
	require.NotNil(t, books.body["items"])
	l.must(t, 201, l.operator, "POST", acme.admin()+"/price-books", map[string]any{"price_book": all[0]["id"]})

	spot := map[string]any{"offer": offerName, "currency": "USD", "price_per_hour": "1.2"}
	require.Equal(t, "1.20", l.must(t, 201, l.operator, "POST", "/v1/admin/spot-prices", spot).text("price_per_hour", "amount"))
	require.Len(t, l.must(t, 200, acme.secret, "GET", "/v1/spot-prices?offer="+offerName, nil).items(), 1)
	spot["from"] = "2020-01-01T00:00:00Z"
	l.refusal(t, "request.invalid", l.operator, "POST", "/v1/admin/spot-prices", spot)
}

func TestProfilesIssuersAndTaxes(t *testing.T) {
	l, acme := sold(t)
	profile := map[string]any{"name": "Acme GmbH", "address": []string{"Hauptstr. 1", "10115 Berlin"}, "country": "DE", "postcode": "10115", "tax_id": "DE136695976", "status": "business", "locale": "de"}
	put := l.must(t, 200, acme.secret, "PUT", organization+"/billing-profile", profile)
	require.Equal(t, "default", put.text("issuer"))
	require.Equal(t, put.raw, l.must(t, 200, acme.secret, "GET", organization+"/billing-profile", nil).raw)
	require.Equal(t, put.raw, l.must(t, 200, l.operator, "GET", acme.admin()+"/billing-profile", nil).raw)
	profile["tax_id"] = "FR40303265045"
	l.refusal(t, "request.invalid", acme.secret, "PUT", organization+"/billing-profile", profile)
	require.Equal(t, "unknown", l.must(t, 200, l.operator, "POST", acme.admin()+"/billing-profile/actions/check-tax-id", nil).text("outcome"))
	require.Equal(t, "valid", l.must(t, 201, l.operator, "POST", acme.admin()+"/tax-id-checks", map[string]any{"outcome": "valid", "source": "by telephone"}).text("outcome"))

	issuer := map[string]any{"legal_name": "Tranche Cloud GmbH", "address": []string{"Weg 2", "10115 Berlin"}, "country": "DE", "tax_id": "DE136695976", "prefix": "TX", "time_zone": "Europe/Berlin", "small_amounts": []any{usd("1.00")}}
	made := l.must(t, 200, l.operator, "PUT", "/v1/admin/issuers/tranche-de", issuer)
	require.Equal(t, 14.0, made.body["payment_days"])
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/issuers", nil).items(), 2)
	l.must(t, 200, l.operator, "GET", "/v1/admin/issuers/tranche-de", nil)
	issuer["prefix"] = "TR"
	l.refusal(t, "issuer.prefix_fixed", l.operator, "PUT", "/v1/admin/issuers/tranche-de", issuer)
	l.refusal(t, "issuer.prefix_taken", l.operator, "PUT", "/v1/admin/issuers/other", issuer)
	issuer["time_zone"] = "Mars/Olympus"
	l.refusal(t, "request.invalid", l.operator, "PUT", "/v1/admin/issuers/other", issuer)
	l.refusal(t, "issuer.unknown", l.operator, "GET", "/v1/admin/issuers/nobody", nil)
	l.refusal(t, "issuer.unknown", l.operator, "PUT", acme.admin()+"/billing-profile", map[string]any{"name": "Acme", "country": "DE", "issuer": "nobody"})
	require.Equal(t, "tranche-de", l.must(t, 200, l.operator, "PUT", acme.admin()+"/billing-profile", map[string]any{"name": "Acme", "country": "DE", "issuer": "tranche-de"}).text("issuer"))

	table := map[string]any{
		"rules": []any{map[string]any{"seller": "home", "buyer": "home", "category": "S", "rate_of": "seller"}, map[string]any{"category": "O", "note": "outside_eu"}},
		"rates": []any{map[string]any{"territory": "DE", "rate": "0.19"}},
	}
	require.Equal(t, 1.0, l.must(t, 200, l.operator, "PUT", "/v1/admin/issuers/tranche-de/tax-table", table).body["version"])
	require.Equal(t, "0.19", l.must(t, 200, l.operator, "GET", "/v1/admin/issuers/tranche-de/tax-table", nil).body["rates"].([]any)[0].(map[string]any)["rate"])
	table["rates"] = []any{map[string]any{"territory": "DE", "rate": "0.19"}, map[string]any{"territory": "DE", "rate": "0.16"}}
	l.refusal(t, "request.invalid", l.operator, "PUT", "/v1/admin/issuers/tranche-de/tax-table", table)
}

func TestMoneyComesInAndMonthsClose(t *testing.T) {
	l, acme := sold(t)
	_, invoice := l.billedMonth(t, acme)
	csv := "bank_id,date,amount,currency,reference,payer\n1,2026-12-03,1.00,USD,thanks,Acme\n2,2026-12-03,-5.00,USD,fee,Bank\n"
	in := l.must(t, 201, l.operator, "POST", "/v1/admin/bank-statements", map[string]any{"account": "DE02", "csv": csv})
	require.Equal(t, []any{1.0, 1.0, 0.0, 1.0}, []any{in.body["lines"], in.body["new"], in.body["matched"], in.body["debits"]})
	l.refusal(t, "statement.mismatch", l.operator, "POST", "/v1/admin/bank-statements", map[string]any{"account": "DE02", "csv": strings.Replace(csv, "1.00", "9.00", 1)})
	l.refusal(t, "request.invalid", l.operator, "POST", "/v1/admin/bank-statements", map[string]any{"account": "DE02", "csv": "rubbish"})
	queued := l.must(t, 200, l.operator, "GET", "/v1/admin/statement-lines?state=queued", nil).items()
	require.Len(t, queued, 1)
	line := "/v1/admin/statement-lines/" + queued[0]["id"].(string)
	part := func(amount string) map[string]any {
		return map[string]any{"organization": acme.org, "parts": []any{map[string]any{"invoice": invoice, "amount": usd(amount)}}}
	}
	l.refusal(t, "request.invalid", l.operator, "POST", line+"/actions/match", part("2.00"))
	require.Equal(t, "matched", l.must(t, 200, l.operator, "POST", line+"/actions/match", part("0.60")).text("state"))
	l.refusal(t, "state.conflict", l.operator, "POST", line+"/actions/match", part("0.60"))
	require.Equal(t, "3.00", l.must(t, 200, acme.secret, "GET", organization+"/invoices/"+invoice, nil).text("due", "amount"))
	payments := l.must(t, 200, acme.secret, "GET", organization+"/payments", nil).items()
	require.Len(t, payments, 1)
	require.Equal(t, "0.40", payments[0]["unapplied"].(map[string]any)["amount"])
	require.Len(t, l.must(t, 200, l.operator, "GET", acme.admin()+"/payments", nil).items(), 1)
	refunds := acme.admin() + "/payments/" + payments[0]["id"].(string) + "/refunds"
	l.refusal(t, "payment.spent", l.operator, "POST", refunds, map[string]any{"amount": usd("0.41"), "reason": "Back"})
	require.Equal(t, "0.00", l.must(t, 201, l.operator, "POST", refunds, map[string]any{"reason": "Back"}).text("unapplied", "amount"))
	l.refusal(t, "refund.required", l.operator, "POST", acme.admin()+"/invoices/"+invoice+"/actions/cancel", map[string]any{"reason": "x"})
	require.Empty(t, l.must(t, 200, acme.secret, "GET", organization+"/invoices/"+invoice+"/payments", nil).items())

	l.refusal(t, "payment.method_missing", acme.secret, "POST", organization+"/wallet/top-ups", map[string]any{"amount": usd("25.00")})
	l.must(t, 204, acme.secret, "PUT", organization+"/payment-method", map[string]any{"method": "pm_card_visa"})
	l.refusal(t, "request.invalid", acme.secret, "POST", organization+"/wallet/top-ups", map[string]any{"amount": usd("0.00")})
	l.refusal(t, "request.invalid", acme.secret, "POST", organization+"/wallet/top-ups", map[string]any{"amount": map[string]any{"amount": "25.00", "currency": "EUR"}})
	ordered := l.must(t, 202, acme.secret, "POST", organization+"/wallet/top-ups", map[string]any{"amount": usd("25.00")})
	require.Equal(t, "planned", ordered.text("state"))
	require.NoError(t, l.app.CollectPayments(t.Context()))
	require.Equal(t, "succeeded", l.must(t, 200, acme.secret, "GET", ordered.header.Get("Location"), nil).text("state"))
	require.Equal(t, "25.00", l.must(t, 200, acme.secret, "GET", organization+"/wallet", nil).text("prepaid", "amount"))
	l.refusal(t, "resource.not_found", l.tenant(t, "Bolt").secret, "GET", ordered.header.Get("Location"), nil)
	hook := "/v1/webhooks/payments/stripe"
	event := map[string]any{"id": "evt_1", "type": "payment_intent.succeeded"}
	l.refusal(t, "webhook.forged", "", "POST", hook, event)
	l.refusal(t, "webhook.forged", "", "POST", hook, event, "Stripe-Signature", fmt.Sprintf("t=%d,v1=00", time.Now().Unix()))
	l.refusal(t, "webhook.stale", "", "POST", hook, event, "Stripe-Signature", "t=1,v1=00")
	l.refusal(t, "resource.not_found", "", "POST", "/v1/webhooks/payments/nobody", event)
	require.Zero(t, l.count(t, `select count(*) from provider_events`))

	l.refusal(t, "state.conflict", l.operator, "POST", "/v1/admin/finance/closes", map[string]any{"period": "2026-12"})
	l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/finance/closes/2026-11", nil)
	closed := l.must(t, 201, l.operator, "POST", "/v1/admin/finance/closes", map[string]any{"period": "2026-11"})
	require.Equal(t, closed.raw, l.must(t, 200, l.operator, "GET", closed.header.Get("Location"), nil).raw)
	journal := l.must(t, 200, l.operator, "GET", closed.header.Get("Location")+"/journal", nil)
	require.Equal(t, "text/csv; charset=utf-8", journal.header.Get("Content-Type"))
	sum := new(big.Rat)
	for _, a := range l.must(t, 200, l.operator, "GET", "/v1/admin/finance/accounts?organization="+acme.org, nil).items() {
		x, ok := new(big.Rat).SetString(a["balance"].(map[string]any)["amount"].(string))
		require.True(t, ok)
		sum.Add(sum, x)
	}
	require.Zero(t, sum.Sign(), "every journal sums to 0")
	require.Empty(t, l.must(t, 200, l.operator, "GET", "/v1/admin/discrepancies?status=open", nil).items())
	l.refusal(t, "resource.not_found", l.operator, "POST", "/v1/admin/discrepancies/"+id.New[id.Discrepancy]().String()+"/actions/resolve",
		map[string]any{"verdict": "proven", "reason": "x"})
}

// A signed event is kept once, whatever else the header says.
func TestASignedEventIsKeptOnce(t *testing.T) {
	l := newLive(t)
	body := []byte(`{"id":"evt_77","object":"event","type":"customer.created","created":1,"api_version":"","livemode":false,"data":{"object":{"id":"cus_1","object":"customer"}}}`)
	send := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "POST", l.URL+"/v1/webhooks/payments/stripe", strings.NewReader(string(body)))
		require.NoError(t, err)
		req.Header = l.cards.Sign(body, time.Now())
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		res, err := l.Client().Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	first := send()
	require.Equal(t, 200, first.StatusCode)
	require.Contains(t, first.Header.Get("RateLimit-Policy"), `"credential-webhook";q=6000`)
	require.Equal(t, 200, send().StatusCode)
	require.Equal(t, 1, l.count(t, `select count(*) from provider_events`))
}
