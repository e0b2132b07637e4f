package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Values that have the right shape and are strange are refused or served, never
// with a 5xx.
func TestStrangeValuesNeverBreakUs(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	usage := "/v1/projects/" + acme.project + "/usage?"
	const admin = "/v1/admin"
	org := acme.admin()
	cases := []struct {
		as, method, path string
		body             any
	}{
		{acme.secret, "GET", usage + "from=0000-01-01T00:00:00Z", nil},
		{acme.secret, "GET", usage + "from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z&bucket=hour", nil},
		{acme.secret, "GET", usage + "from=2026-11-02T00:00:00Z&to=2026-11-01T00:00:00Z", nil},
		{acme.secret, "GET", usage + "from=2026-11-02T00:00:00Z&to=2026-11-02T00:00:00Z&bucket=day", nil},
		{acme.secret, "GET", usage + "from=2026-11-02T23:59:60Z", nil},
		{acme.secret, "GET", usage + "from=2026-11-02T00:00:00.123456789%2B14:00", nil},
		{acme.secret, "GET", usage + "group_by=", nil},
		{acme.secret, "GET", usage + "group_by=sku,sku", nil},
		{acme.secret, "GET", "/v1/organization/invoice-preview?period=0000-01", nil},
		{acme.secret, "GET", "/v1/organization/invoice-preview?period=9999-12", nil},
		{acme.secret, "GET", "/v1/offers?gpu_model=%F0%9F%90%99", nil},
		{acme.secret, "GET", "/v1/offers?gpu_model=%ff", nil},
		{acme.secret, "GET", "/v1/offers?region=a%c3%28", nil},
		{acme.secret, "GET", acme.instances() + "?name=%ed%a0%80", nil},
		{acme.secret, "GET", acme.instances() + "?%ff=1", nil},
		{acme.secret, "GET", acme.instances() + "?name=%zz", nil},
		{l.operator, "PUT", admin + "/offers/%ff", map[string]any{"gpu_model": "TEST-80", "mode": "whole", "memory_mib": 1, "vcpu": 1, "ram_mib": 1}},
		{l.operator, "GET", admin + "/hosts?state=%ff", nil},
		{acme.secret, "GET", "/v1/offers?page_token=" + strings.Repeat("A", 2000), nil},
		{acme.secret, "GET", acme.instances() + "?name=" + strings.Repeat("%E2%82%AC", 60), nil},
		{acme.secret, "GET", acme.instances() + "?client_token=%27%3B--", nil},
		{acme.secret, "GET", acme.instances() + "/inst_7zzzzzzzzzzzzzzzzzzzzzzzzz", nil},
		{acme.secret, "GET", acme.instances() + "/inst_8zzzzzzzzzzzzzzzzzzzzzzzzz", nil},
		{acme.secret, "GET", "/v1/operations/op_00000000000000000000000000", nil},
		{acme.secret, "GET", "/v1/operations/" + strings.Repeat("x", 5000), nil},
		{acme.secret, "GET", "/v1/projects/%2e%2e%2f/instances", nil},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "old", "expires_at": "0001-01-01T00:00:00Z"}},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "late", "expires_at": "9999-12-31T23:59:59.999999999Z"}},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "x", "scopes": []string{"no:such"}}},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "x", "scopes": []string{"operator:write"}}},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "x", "project": id.New[id.Project]().String()}},
		{acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": "x", "project": "proj_7zzzzzzzzzzzzzzzzzzzzzzzzz"}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "name": "名前 ééé"}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "command": []string{"", "\u2028"}}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "env": []any{map[string]any{"name": "A", "value": ""}, map[string]any{"name": "A", "value": "b"}}}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "env": []any{map[string]any{"name": "S", "value": "", "secret": true}}}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "labels": map[string]string{"a": "é"}}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "a", "client_token": "t"}},
		{acme.secret, "POST", acme.instances(), map[string]any{"offer": offerName, "image": "b", "client_token": "t"}},
		{l.operator, "POST", admin + "/organizations", map[string]any{"name": "Big", "currency": "JPY", "quota": map[string]int{"instances": 1000000, "gpus": 1000000}, "limits": map[string]int{"read": 1, "write": 1000000, "launch": 1}}},
		{l.operator, "POST", admin + "/price-books", map[string]any{"name": "n", "currency": "KWD", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "999999999.999999999999"}}}},
		{l.operator, "POST", admin + "/price-books", map[string]any{"name": "past", "currency": "USD", "effective_from": "0001-01-01T00:00:00Z", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "0"}}}},
		{l.operator, "POST", admin + "/price-books", map[string]any{"name": "far", "currency": "USD", "effective_from": "9999-12-31T00:00:00Z", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "0"}}}},
		{l.operator, "POST", admin + "/price-books", map[string]any{"name": "twice", "currency": "USD", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "1"}, map[string]string{"offer": offerName, "price_per_hour": "2"}}}},
		{l.operator, "PUT", admin + "/offers/mps", map[string]any{"gpu_model": "TEST-80", "mode": "mps", "profile": "4x26", "memory_mib": 1, "vcpu": 1, "ram_mib": 1}},
		{l.operator, "PUT", admin + "/offers/mig", map[string]any{"gpu_model": "TEST-80", "mode": "mig", "memory_mib": 1, "vcpu": 1, "ram_mib": 1}},
		{l.operator, "PUT", admin + "/offers/slice", map[string]any{"gpu_model": "TEST-80", "mode": "timeslice", "profile": "999999999", "memory_mib": 1, "vcpu": 1, "ram_mib": 1}},
		{l.operator, "PUT", admin + "/offers/far", map[string]any{"gpu_model": "TEST-80", "mode": "whole", "memory_mib": 1, "vcpu": 1, "ram_mib": 1, "region": "mars"}},
		{l.operator, "PUT", admin + "/offers/most", map[string]any{"gpu_model": "TEST-80", "mode": "whole", "memory_mib": 16777216, "vcpu": 4096, "ram_mib": 67108864, "gpu_count": 16, "sm_count": 65536, "sm_percent": 100}},
		{l.operator, "POST", admin + "/join-tokens", map[string]any{"pool": "none"}},
		{l.operator, "POST", admin + "/join-tokens", map[string]any{"cidr": "1.2.3.4/999"}},
		{l.operator, "POST", admin + "/join-tokens", map[string]any{"host_name": "a", "max_hosts": 2}},
		{l.operator, "POST", admin + "/invoice-runs", map[string]any{"period": "0000-01"}},
		{l.operator, "POST", admin + "/invoice-runs", map[string]any{"period": "9999-12"}},
		{acme.secret, "GET", "/v1/organization/usage?group_by=label:team,label:%C3%A9", nil},
		{acme.secret, "GET", "/v1/organization/usage?from=0001-01-01T00:00:00Z&to=9999-12-31T23:59:59Z&bucket=hour&group_by=label:a", nil},
		{acme.secret, "GET", "/v1/organization/invoices?period=9999-12&status=carried", nil},
		{acme.secret, "GET", "/v1/organization/invoices?period=2999-12&status=preview", nil},
		{acme.secret, "GET", "/v1/organization/exports/focus?period=2999-12&format=parquet", nil},
		{acme.secret, "GET", "/v1/organization/exports/focus?period=2000-01", nil},
		{acme.secret, "GET", "/v1/prices?offer=" + strings.Repeat("x", 63), nil},
		{acme.secret, "GET", "/v1/prices?offer=" + offerName + "&priority_class=spot", nil},
		{acme.secret, "GET", "/v1/spot-prices?offer=" + offerName + "&currency=XXZ", nil},
		{acme.secret, "GET", "/v1/spot-prices?offer=" + offerName + "&from=9999-12-31T00:00:00Z&to=0001-01-01T00:00:00Z", nil},
		{l.operator, "GET", "/v1/spot-prices?offer=" + offerName, nil},
		{acme.secret, "POST", "/v1/projects/" + acme.project + "/price-previews", map[string]any{"offer": offerName, "instances": 10000, "hours": "999999999999999.999999999999"}},
		{acme.secret, "POST", "/v1/projects/" + acme.project + "/price-previews", map[string]any{"offer": offerName, "hours": "0"}},
		{acme.secret, "POST", "/v1/projects/" + acme.project + "/price-previews", map[string]any{"offer": offerName, "priority_class": "spot", "stop_behavior": "retain"}},
		{acme.secret, "POST", "/v1/projects/" + acme.project + "/price-previews", map[string]any{"shape": map[string]any{"gpu_model": "TEST-80", "mode": "whole", "memory_mib": 16777216}}},
		{acme.secret, "POST", "/v1/projects/" + acme.project + "/price-previews", map[string]any{"shape": map[string]any{"gpu_model": "\u2028", "mode": "mps"}}},
		{acme.secret, "POST", "/v1/organization/budgets", map[string]any{"name": "b", "scope": "organization", "amount": map[string]any{"amount": "999999999999999.99", "currency": "USD"}, "hard": true}},
		{acme.secret, "POST", "/v1/organization/budgets", map[string]any{"name": "b", "scope": "key", "key": acme.key, "amount": map[string]any{"amount": "1", "currency": "USD"}, "thresholds": []int{}}},
		{acme.secret, "POST", "/v1/organization/budgets", map[string]any{"name": "b", "scope": "project", "project": id.New[id.Project]().String(), "amount": map[string]any{"amount": "1", "currency": "USD"}}},
		{acme.secret, "PUT", "/v1/organization/wallet/auto-top-up", map[string]any{"order": map[string]any{"threshold": map[string]any{"amount": "0", "currency": "JPY"}, "amount": map[string]any{"amount": "0", "currency": "JPY"}, "monthly_max": map[string]any{"amount": "0", "currency": "JPY"}}}},
		{acme.secret, "POST", "/v1/organization/wallet/top-ups", map[string]any{"amount": map[string]any{"amount": "999999999999999", "currency": "USD"}}},
		{acme.secret, "POST", "/v1/organization/reservations", map[string]any{"project": acme.project, "offer": offerName, "units": 1000000, "from": "0001-01-01T00:00:00Z", "to": "9999-12-31T00:00:00Z"}},
		{acme.secret, "PUT", "/v1/organization/billing-profile", map[string]any{}},
		{acme.secret, "PUT", "/v1/organization/billing-profile", map[string]any{"country": "ZZ", "tax_id": "ZZ1", "e_invoice": true}},
		{acme.secret, "PUT", "/v1/organization/payment-method", map[string]any{"method": "pm_\u00e9"}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "caps": []any{map[string]any{"hours": 1, "amount": "1.00"}}}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "caps": []any{map[string]any{"amount": "1.00"}}, "commitments": []any{map[string]any{"name": "c", "amount": "2.00"}}}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "free_quotas": []any{map[string]any{"name": "q", "quantity": "999999999999999.999999999999"}}}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "discounts": []any{map[string]any{"name": "d", "percent": "100"}}, "from": "9999-12-31T00:00:00Z"}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "prices": []any{map[string]any{"offer": offerName, "tiers": map[string]any{"kind": "package", "package_size": "0.000000000001", "steps": []any{map[string]any{"price": "1"}}}}}}},
		{l.operator, "POST", org + "/contracts", map[string]any{"name": "n", "prices": []any{map[string]any{"offer": offerName}}}},
		{l.operator, "POST", org + "/grants", map[string]any{"name": "g", "amount": map[string]any{"amount": "999999999999999.99", "currency": "USD"}, "expires_at": "9999-12-31T23:59:59Z"}},
		{l.operator, "POST", org + "/grants", map[string]any{"name": "g", "amount": map[string]any{"amount": "999999999999999.99", "currency": "USD"}}},
		{l.operator, "POST", org + "/prepayments", map[string]any{"reference": "r", "amount": map[string]any{"amount": "999999999999999.99", "currency": "USD"}}},
		{l.operator, "POST", org + "/price-books", map[string]any{"price_book": id.New[id.PriceBook]().String()}},
		{l.operator, "POST", admin + "/coupons", map[string]any{"code": "ABCD", "name": "n", "amount": map[string]any{"amount": "1", "currency": "KWD"}, "max_uses": 1, "valid_until": "0001-01-01T00:00:00Z"}},
		{l.operator, "POST", admin + "/spot-prices", map[string]any{"offer": offerName, "currency": "USD", "price_per_hour": "999999999.999999999999", "from": "9999-12-31T00:00:00Z"}},
		{l.operator, "PUT", admin + "/approval-rules/write_off", map[string]any{"above": map[string]any{"amount": "0", "currency": "USD"}}},
		{l.operator, "PUT", admin + "/issuers/%ff", map[string]any{"legal_name": "n", "address": []string{"a"}, "country": "DE", "prefix": "CN"}},
		{l.operator, "PUT", admin + "/issuers/i", map[string]any{"legal_name": "n", "address": []string{"a"}, "country": "DE", "prefix": "CN", "effective_from": "9999-12-31T00:00:00Z"}},
		{l.operator, "PUT", admin + "/issuers/default/tax-table", map[string]any{"rules": []any{map[string]any{"category": "S"}}}},
		{l.operator, "POST", admin + "/finance/closes", map[string]any{"period": "2000-01"}},
		{l.operator, "GET", admin + "/finance/accounts?day=0001-01-01", nil},
		{l.operator, "GET", admin + "/finance/accounts?day=9999-12-31&organization=nobody", nil},
		{l.operator, "POST", admin + "/bank-statements", map[string]any{"account": "a", "csv": "bank_id,date,amount,currency,reference,payer\n1,0000-00-00,1e9,USD,x,y\n"}},
		{l.operator, "POST", admin + "/invoice-runs/9999-12/actions/check", nil},
		{l.operator, "POST", admin + "/organizations/" + id.New[id.Org]().String() + "/projects", map[string]any{"name": "p"}},
		{l.operator, "POST", admin + "/organizations/" + id.New[id.Org]().String() + "/api-keys", map[string]any{"name": "p"}},
	}
	for _, c := range cases {
		r := l.call(t, c.as, c.method, c.path, c.body)
		require.Less(t, r.status, 500, "%s %s %v: %s", c.method, c.path, c.body, r.raw)
	}
}
