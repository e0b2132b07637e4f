package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/store"
)

const offerName = "test-whole"

// fleet adds a ready host with GPUs, an offer for them and its price.
func (l live) fleet(t *testing.T, gpus int) (host string) {
	t.Helper()
	d := gpu.Device{Model: "TEST-80", Memory: 81920, SMs: 132, Simulated: true}
	hash, body, err := store.EncodeInventory(d)
	require.NoError(t, err)
	h := id.New[id.Host]()
	l.exec(t, `insert into gpu_inventories (hash, body) values ($1, $2) on conflict do nothing`, hash, body)
	l.exec(t, `insert into hosts (id, cell_id, pool_id, name, state, liveness, vcpu, ram_mib, public_key)
		values ($1, 'local-1', 'default', 'gpu-01', 'ready', 'live', 1024, 4194304, '\x00')`, h.UUID())
	for n := range gpus {
		l.exec(t, `insert into gpus (id, host_id, cell_id, uuid, ordinal, model, memory_mib, sm_count, units, inventory_hash,
			mode_desired, mode_observed, simulated) values ($1, $2, 'local-1', $3, $4, $5, $6, $7, 1, $8, 'whole', 'whole', true)`,
			id.New[id.GPU]().UUID(), h.UUID(), fmt.Sprint("GPU-", n), n, d.Model, int64(d.Memory), d.SMs, hash)
	}
	put := map[string]any{"gpu_model": "TEST-80", "mode": "whole", "memory_mib": 81920, "vcpu": 4, "ram_mib": 32768}
	require.Nil(t, l.must(t, 200, l.operator, "PUT", "/v1/admin/offers/"+offerName, put).body["price_per_hour"])
	l.must(t, 201, l.operator, "POST", "/v1/admin/price-books", map[string]any{
		"name": "list", "currency": "USD", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "3.6"}},
	})
	return h.String()
}

func (l live) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := l.db.OwnerPool(t).Exec(context.WithoutCancel(t.Context()), sql, args...)
	require.NoError(t, err)
}

func (p party) instances() string { return "/v1/projects/" + p.project + "/instances" }

func wish(name string) map[string]any {
	return map[string]any{"name": name, "offer": offerName, "image": "ghcr.io/acme/trainer:1"}
}

func TestInstanceFromCreateToTombstone(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 4)
	acme := l.tenant(t, "Acme")

	offers := l.must(t, 200, acme.secret, "GET", "/v1/offers?gpu_model=TEST-80&mode=whole", nil).items()
	require.Len(t, offers, 1)
	require.Equal(t, map[string]any{"amount": "3.60", "currency": "USD"}, offers[0]["price_per_hour"])
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/offers", nil).items(), 1)
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/offers", nil).items(), 1)

	body := wish("trainer")
	body["env"] = []any{map[string]any{"name": "EPOCHS", "value": "3"}, map[string]any{"name": "TOKEN", "value": "s3cret", "secret": true}}
	body["labels"] = map[string]string{"team": "ml"}
	body["client_token"] = "tf-1"
	made := l.must(t, 202, acme.secret, "POST", acme.instances(), body, "Idempotency-Key", "c-1")
	require.Equal(t, `"g1"`, made.header.Get("ETag"))
	require.Equal(t, "queued", made.text("status"))
	require.NotContains(t, made.raw, "s3cret")
	require.Equal(t, "/v1/operations/"+made.text("operation", "id"), made.header.Get("Location"))

	again := l.must(t, 202, acme.secret, "POST", acme.instances(), body, "Idempotency-Key", "c-1")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.JSONEq(t, made.raw, again.raw)
	require.Equal(t, made.header.Get("Location"), again.header.Get("Location"))
	require.Equal(t, made.header.Get("ETag"), again.header.Get("ETag"))
	body["name"] = "other"
	l.refusal(t, "idempotency.mismatch", acme.secret, "POST", acme.instances(), body, "Idempotency-Key", "c-1")

	path := acme.instances() + "/" + made.text("id")
	require.JSONEq(t, made.raw, l.must(t, 200, acme.secret, "GET", path, nil).raw)
	require.Len(t, l.must(t, 200, acme.secret, "GET", acme.instances()+"?client_token=tf-1&status=queued&name=trainer", nil).items(), 1)
	require.Equal(t, "queued", l.must(t, 200, acme.secret, "GET", made.header.Get("Location"), nil).text("status"))
	require.Len(t, l.must(t, 200, acme.secret, "GET", "/v1/projects/"+acme.project+"/operations?resource="+made.text("id"), nil).items(), 1)
	started := time.Now()
	require.Equal(t, "queued", l.must(t, 200, acme.secret, "GET", path+"?wait_for=running&timeout=1s", nil).text("status"))
	require.GreaterOrEqual(t, time.Since(started), time.Second)

	l.refusal(t, "request.invalid", acme.secret, "GET", path+"?wait_for=running&timeout=61s", nil)
	l.refusal(t, "precondition.failed", acme.secret, "POST", path+"/actions/stop", nil, "If-Match", `"g7"`)
	l.refusal(t, "state.conflict", acme.secret, "POST", path+"/actions/start", nil)
	stopped := l.must(t, 202, acme.secret, "POST", path+"/actions/stop", nil, "If-Match", `"g1"`)
	require.Equal(t, `"g2"`, stopped.header.Get("ETag"))

	gone := l.call(t, acme.secret, "DELETE", path, nil)
	require.Contains(t, []int{200, 202}, gone.status)
	require.Equal(t, "deleted", gone.text("status"))
	require.Empty(t, l.must(t, 200, acme.secret, "GET", acme.instances(), nil).items())
	require.Len(t, l.must(t, 200, acme.secret, "GET", acme.instances()+"?status=deleted", nil).items(), 1)
	require.Equal(t, "deleted", l.must(t, 200, acme.secret, "GET", path, nil).text("status"))
}

func TestCreateIsRefusedByMeaning(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	l.must(t, 202, acme.secret, "POST", acme.instances(), wish("one"))
	l.refusal(t, "name.taken", acme.secret, "POST", acme.instances(), wish("one"))
	unknown := wish("two")
	unknown["offer"] = "nothing"
	l.refusal(t, "offer.unknown", acme.secret, "POST", acme.instances(), unknown)
	put := map[string]any{"gpu_model": "NONE-1", "mode": "whole", "memory_mib": 1024, "vcpu": 1, "ram_mib": 1024}
	l.must(t, 200, l.operator, "PUT", "/v1/admin/offers/dream", put)
	unknown["offer"] = "dream"
	l.refusal(t, "offer.unavailable", acme.secret, "POST", acme.instances(), unknown)
	l.refusal(t, "resource.not_found", l.operator, "PUT", "/v1/admin/offers/Not%20a%20slug", put)
	put["profile"] = "1g"
	l.refusal(t, "request.invalid", l.operator, "PUT", "/v1/admin/offers/odd", put)

	poor := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations", map[string]any{"name": "Poor", "currency": "USD"}).text("id")
	project := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+poor+"/projects", map[string]any{"name": "p"}).text("id")
	key := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+poor+"/api-keys", map[string]any{"name": "k"}).text("secret")
	r := l.refusal(t, "quota.exceeded", key, "POST", "/v1/projects/"+project+"/instances", wish("x"))
	require.Equal(t, http.StatusForbidden, r.status)
}

func TestOneKeyMakesOneInstance(t *testing.T) {
	const parallel = 200
	l := newLive(t)
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	var wg sync.WaitGroup
	ids := make([]string, parallel)
	replayed := make([]bool, parallel)
	for n := range parallel {
		wg.Go(func() {
			r := l.call(t, acme.secret, "POST", acme.instances(), wish("only"), "Idempotency-Key", "same")
			if r.status == http.StatusAccepted {
				ids[n], replayed[n] = r.text("id"), r.header.Get("Idempotent-Replayed") == "true"
			} else if r.text("code") != "idempotency.in_flight" {
				t.Errorf("unexpected answer: %d %s", r.status, r.raw)
			}
		})
	}
	wg.Wait()
	made, first := map[string]bool{}, 0
	for n := range parallel {
		if ids[n] == "" {
			continue
		}
		made[ids[n]] = true
		if !replayed[n] {
			first++
		}
	}
	require.Len(t, made, 1)
	require.Equal(t, 1, first)
	require.Len(t, l.must(t, 200, acme.secret, "GET", acme.instances(), nil).items(), 1)
}

func TestHostsAndGPUs(t *testing.T) {
	l := newLive(t)
	host := l.fleet(t, 2)
	path := "/v1/admin/hosts/" + host
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/hosts?state=ready", nil).items(), 1)
	require.Empty(t, l.must(t, 200, l.operator, "GET", "/v1/admin/hosts?state=pending", nil).items())
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/gpus?host="+host, nil).items(), 2)
	l.refusal(t, "request.invalid", l.operator, "GET", "/v1/admin/gpus?host=x", nil)

	tag := l.must(t, 200, l.operator, "GET", path, nil).header.Get("ETag")
	l.refusal(t, "precondition.required", l.operator, "POST", path+"/actions/cordon", nil)
	l.refusal(t, "precondition.failed", l.operator, "POST", path+"/actions/cordon", nil, "If-Match", `"g99"`)
	require.Equal(t, "cordoned", l.must(t, 200, l.operator, "POST", path+"/actions/cordon", nil, "If-Match", tag).text("state"))
	require.Equal(t, "ready", l.must(t, 200, l.operator, "POST", path+"/actions/uncordon", nil).text("state"))

	token := l.must(t, 201, l.operator, "POST", "/v1/admin/join-tokens", map[string]any{"max_hosts": 3, "ttl_s": 60}, "Idempotency-Key", "j")
	require.NotEmpty(t, token.text("secret"))
	require.Nil(t, l.must(t, 201, l.operator, "POST", "/v1/admin/join-tokens", map[string]any{"ttl_s": 60, "max_hosts": 3}, "Idempotency-Key", "j").body["secret"])
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/join-tokens", nil).items(), 1)
	l.must(t, 204, l.operator, "DELETE", "/v1/admin/join-tokens/"+token.text("id"), nil)
}

// ranAnHour gives an organization one instance that ran an hour of November.
func (l live) ranAnHour(t *testing.T, p party) (instance string) {
	t.Helper()
	november := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	made := l.must(t, 202, p.secret, "POST", p.instances(), wish("billed"))
	org, err := id.Parse[id.Org](p.org)
	require.NoError(t, err)
	inst, err := id.Parse[id.Instance](made.text("id"))
	require.NoError(t, err)
	require.NoError(t, l.app.Store.InSystem(t.Context(), "test", func(tx *store.SystemTx) error {
		if _, err := tx.OpenSegment(t.Context(), store.OpenSegment{Org: org, Instance: inst, Run: 1, At: november, Reason: "process_started"}); err != nil {
			return err
		}
		_, err := tx.CloseOpenSegment(t.Context(), org, inst, metering.GPU, november.Add(time.Hour), "stopped", "")
		return err
	}))
	return made.text("id")
}

// advance does the work of a month's invoice run, as its workflow would.
func (l live) advance(t *testing.T, period string) {
	t.Helper()
	run, err := l.app.GetInvoiceRun(t.Context(), app.Caller{}, period)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		outcome, err := l.app.AdvanceInvoiceRun(t.Context(), id.Request(run.ID))
		return err == nil && outcome.Done
	}, 30*time.Second, 10*time.Millisecond)
}

// billedMonth gives an organization one instance that ran an hour of November, and
// its invoice.
func (l live) billedMonth(t *testing.T, p party) (instance, invoice string) {
	t.Helper()
	instance = l.ranAnHour(t, p)
	l.jump(t, time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC))
	l.must(t, 202, l.operator, "POST", "/v1/admin/invoice-runs", map[string]any{"period": "2026-11"})
	l.advance(t, "2026-11")
	require.Equal(t, "succeeded", l.must(t, 200, l.operator, "GET", "/v1/admin/invoice-runs/2026-11", nil).text("status"))
	invoices := l.must(t, 200, p.secret, "GET", "/v1/organization/invoices", nil).items()
	require.Len(t, invoices, 1)
	return instance, invoices[0]["id"].(string)
}

// jump moves the business clock.
func (l live) jump(t *testing.T, at time.Time) {
	t.Helper()
	l.exec(t, `update business_clock set base_real = clock_timestamp(), base_business = $1`, at)
}

func TestInvoiceOfAMonth(t *testing.T) {
	l := newLive(t)
	l.jump(t, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	_, invoice := l.billedMonth(t, acme)

	got := l.must(t, 200, acme.secret, "GET", "/v1/organization/invoices/"+invoice, nil)
	require.Equal(t, "TR-2026-000001", got.text("number"))
	require.Equal(t, "3.60", got.text("total", "amount"))
	page := l.must(t, 200, acme.secret, "GET", "/v1/organization/invoices/"+invoice+"/html", nil)
	require.Contains(t, page.raw, "TR-2026-000001")
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
	preview := l.must(t, 200, acme.secret, "GET", "/v1/organization/invoice-preview?period=2026-11", nil)
	require.Equal(t, "preview", preview.text("status"))
	require.Equal(t, got.text("content_hash"), preview.text("content_hash"))
	usage := l.must(t, 200, acme.secret, "GET", "/v1/projects/"+acme.project+
		"/usage?from=2026-11-01T00:00:00Z&to=2026-12-01T00:00:00Z&bucket=month&group_by=instance,sku", nil).items()
	require.Len(t, usage, 1)
	require.Equal(t, map[string]any{"value": "3600000000", "unit": "gpu_us"}, usage[0]["quantity"])

	require.Equal(t, "succeeded", l.must(t, 200, l.operator, "GET", "/v1/admin/invoice-runs/2026-11", nil).text("status"))
	l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/invoice-runs/2020-01", nil)
	l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/invoice-runs/today", nil)
	l.refusal(t, "state.conflict", l.operator, "POST", "/v1/admin/invoice-runs", map[string]any{"period": "2026-12"})
	books := l.must(t, 200, l.operator, "GET", "/v1/admin/price-books", nil).items()
	require.Len(t, books, 1)
	book := "/v1/admin/price-books/" + books[0]["id"].(string)
	l.must(t, 200, l.operator, "GET", book, nil)
	version := map[string]any{"effective_from": "2026-12-20T00:00:00Z", "prices": []any{map[string]string{"offer": offerName, "price_per_hour": "3.5"}}}
	require.Len(t, l.must(t, 201, l.operator, "POST", book+"/versions", version).body["versions"], 2)
	version["prices"] = []any{map[string]string{"offer": "nothing", "price_per_hour": "3.5"}}
	l.refusal(t, "offer.unknown", l.operator, "POST", book+"/versions", version)
}

// Every operation of tenants, called with what belongs to another organization,
// answers exactly as with what exists nowhere.
func TestTwoOrganizations(t *testing.T) {
	l := newLive(t)
	l.jump(t, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	host := l.fleet(t, 1)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	instance, invoice := l.billedMonth(t, acme)
	operation := l.must(t, 200, acme.secret, "GET", "/v1/projects/"+acme.project+"/operations", nil).items()[0]["id"].(string)
	token := l.must(t, 201, l.operator, "POST", "/v1/admin/join-tokens", map[string]any{}).text("id")
	book := l.must(t, 200, l.operator, "GET", "/v1/admin/price-books", nil).items()[0]["id"].(string)

	foreign := map[string]string{
		"{project}": acme.project, "{instance}": instance, "{operation}": operation, "{invoice}": invoice,
		"{api_key}": acme.key, "{organization}": acme.org, "{host}": host, "{join_token}": token,
		"{price_book}": book, "{offer}": offerName, "{period}": "2026-11",
	}
	random := map[string]string{
		"{project}": id.New[id.Project]().String(), "{instance}": id.New[id.Instance]().String(),
		"{operation}": id.New[id.Operation]().String(), "{invoice}": id.New[id.Invoice]().String(),
		"{api_key}": id.New[id.Key]().String(), "{organization}": id.New[id.Org]().String(), "{host}": id.New[id.Host]().String(),
		"{join_token}": id.New[id.JoinToken]().String(), "{price_book}": id.New[id.PriceBook]().String(),
		"{offer}": "no-such-offer", "{period}": "1999-01",
	}
	own := map[string]string{"{project}": bolt.project}
	tried := 0
	for _, r := range l.rows {
		if !strings.Contains(r.path, "{") || auth.IsPublic(r.id) {
			continue
		}
		for _, body := range []any{nil, map[string]any{"unknown": true}, wish("thief")} {
			for _, overlay := range []map[string]string{nil, own} {
				if overlay != nil && !strings.Contains(r.path, "{project}/") {
					continue
				}
				if overlay != nil && !strings.Contains(strings.TrimPrefix(r.path, "/v1/projects/{project}"), "{") {
					continue // bolt's own project alone is no foreign id
				}
				a := l.masked(t, bolt.secret, r, fill(r.path, overlay, foreign), body)
				b := l.masked(t, bolt.secret, r, fill(r.path, overlay, random), body)
				require.Equal(t, b, a, "%s %s", r.id, r.path)
				require.Contains(t, a, "404 ", "%s %s", r.id, r.path)
				tried++
			}
		}
	}
	require.Greater(t, tried, 60)
	require.Len(t, l.must(t, 200, acme.secret, "GET", acme.instances(), nil).items(), 1, "nothing happened to Acme")
	l.must(t, 200, acme.secret, "GET", "/v1/whoami", nil)
}

func fill(path string, values ...map[string]string) string {
	for _, v := range values {
		for name, value := range v {
			path = strings.ReplaceAll(path, name, value)
		}
	}
	return path
}

// masked is an answer without what differs from request to request.
func (l live) masked(t *testing.T, as string, r row, path string, body any) string {
	t.Helper()
	got := l.call(t, as, r.method, path, body)
	for _, name := range []string{"X-Request-Id", "Ratelimit", "Ratelimit-Policy", "Date"} {
		got.header.Del(name)
	}
	raw := got.raw
	if requestID := got.text("request_id"); requestID != "" {
		raw = strings.ReplaceAll(raw, requestID, "req")
	}
	return fmt.Sprint(got.status, " ", got.header, " ", raw)
}
