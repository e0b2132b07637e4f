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
		{l.operator, "POST", admin + "/organizations/" + id.New[id.Org]().String() + "/projects", map[string]any{"name": "p"}},
		{l.operator, "POST", admin + "/organizations/" + id.New[id.Org]().String() + "/api-keys", map[string]any{"name": "p"}},
	}
	for _, c := range cases {
		r := l.call(t, c.as, c.method, c.path, c.body)
		require.Less(t, r.status, 500, "%s %s %v: %s", c.method, c.path, c.body, r.raw)
	}
}
