package api_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/sshcert"
	"github.com/tranche-cloud/tranche/internal/store"
)

// publicKey makes a key and returns its line.
func publicKey(t *testing.T) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

// reachable lets tenants reach the hosts of the fleet.
func (l live) reachable(t *testing.T) (hostKey string) {
	t.Helper()
	hostKey = publicKey(t)
	l.exec(t, `update hosts set reach_address = 'gpu-01.example.com', reach_ssh_port = 2222, reach_ssh_host_key = $1,
		reach_first_port = 30000, reach_last_port = 30010, runtime = 'containerd'`, hostKey)
	return hostKey
}

// run brings an instance to a state on its host, as the gateway would.
func (l live) run(t *testing.T, instance, state, progress string) {
	t.Helper()
	i, err := id.Parse[id.Instance](instance)
	require.NoError(t, err)
	_, err = l.app.Advance(t.Context(), i)
	require.NoError(t, err)
	l.exec(t, `insert into observed_slices (host_id, slice_key, assignment_id, fence, run, state, run_state, progress, session, sequence)
		select host_id, id::text, id, fence, run, 'present', $2, $3, 1, 1 from assignments
		where instance_id = $1 and state in ('claimed', 'applied')
		on conflict (host_id, slice_key) do update set run_state = $2, progress = $3`, i.UUID(), state, progress)
	_, err = l.app.Advance(t.Context(), i)
	require.NoError(t, err)
}

func TestATenantGetsIn(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 2)
	hostKey := l.reachable(t)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	key := publicKey(t) + " me@laptop"
	body := wish("trainer")
	body["ssh_keys"] = []string{key}
	body["ports"] = []any{map[string]any{"container_port": 8888}, map[string]any{"container_port": 53, "protocol": "udp"}}
	body["shm_mib"], body["recovery"] = 1024, "restart"
	made := l.must(t, 202, acme.secret, "POST", acme.instances(), body)
	require.Equal(t, []any{key}, made.body["ssh_keys"])
	require.Equal(t, "restart", made.text("recovery"))
	require.Equal(t, 1024.0, made.body["shm_mib"])
	require.Empty(t, made.body["endpoints"])
	path := acme.instances() + "/" + made.text("id")
	ticket := map[string]any{"public_key": publicKey(t), "purpose": "shell"}
	early := l.refusal(t, "state.conflict", acme.secret, "POST", path+"/ssh-certificates", ticket)
	require.Contains(t, early.text("detail"), "queued")

	l.run(t, made.text("id"), "preparing", "pulling 40 %")
	preparing := l.must(t, 200, acme.secret, "GET", path, nil)
	require.Equal(t, "pulling 40 %", preparing.text("progress"))
	require.Contains(t, l.refusal(t, "state.conflict", acme.secret, "POST", path+"/ssh-certificates", ticket).text("detail"), "preparing")
	logs := map[string]any{"public_key": publicKey(t), "purpose": "logs"}
	l.must(t, 201, acme.secret, "POST", path+"/ssh-certificates", logs)

	l.run(t, made.text("id"), "running", "")
	running := l.must(t, 200, acme.secret, "GET", path, nil)
	require.Equal(t, []any{
		map[string]any{"kind": "ssh", "protocol": "tcp", "host": "gpu-01.example.com", "port": 2222.0, "container_port": nil, "user": made.text("id"), "host_key": hostKey},
		map[string]any{"kind": "port", "protocol": "udp", "host": "gpu-01.example.com", "port": 30001.0, "container_port": 53.0, "user": nil, "host_key": nil},
		map[string]any{"kind": "port", "protocol": "tcp", "host": "gpu-01.example.com", "port": 30000.0, "container_port": 8888.0, "user": nil, "host_key": nil},
	}, running.body["endpoints"])

	got := l.must(t, 201, acme.secret, "POST", path+"/ssh-certificates", ticket)
	require.Equal(t, []any{"gpu-01.example.com", 2222.0, made.text("id"), hostKey},
		[]any{got.body["host"], got.body["port"], got.body["user"], got.body["host_key"]})
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(got.text("certificate")))
	require.NoError(t, err)
	signed := parsed.(*ssh.Certificate)
	require.Equal(t, []string{made.text("id")}, signed.ValidPrincipals)
	var authority string
	require.NoError(t, l.db.OwnerPool(t).QueryRow(t.Context(), `select public_key from ssh_authorities where current`).Scan(&authority))
	trusted, err := sshcert.ParseKey(authority)
	require.NoError(t, err)
	i, err := id.Parse[id.Instance](made.text("id"))
	require.NoError(t, err)
	grant, err := sshcert.Verify([]ssh.PublicKey{trusted.PublicKey}, signed, i, netip.MustParseAddr("203.0.113.7"), time.Now())
	require.NoError(t, err, "as the gateway of the host does")
	require.Equal(t, sshcert.Shell, grant.Kind)
	require.Contains(t, grant.Holder, "key/"+acme.key)
	until, err := time.Parse(time.RFC3339Nano, got.text("valid_until"))
	require.NoError(t, err)
	require.InDelta(t, 300, time.Until(until).Seconds(), 10)
	require.Equal(t, 1, l.count(t, `select count(*) from audit_log where operation = 'instance.ssh.shell' and result = 'accepted'`))

	// A reader may read the logs and not log in; others see nothing.
	reader := l.must(t, 201, acme.secret, "POST", "/v1/organization/api-keys",
		map[string]any{"name": "reader", "scopes": []string{string(auth.InstancesRead)}}).text("secret")
	l.must(t, 201, reader, "POST", path+"/ssh-certificates", logs)
	l.refusal(t, "auth.forbidden", reader, "POST", path+"/ssh-certificates", ticket)
	l.refusal(t, "resource.not_found", bolt.secret, "POST", path+"/ssh-certificates", ticket)
	l.refusal(t, "resource.not_found", bolt.secret, "POST", bolt.instances()+"/"+made.text("id")+"/ssh-certificates", ticket)

	// Keys change in place: no new run, no new order of the fence, its host is told.
	before := l.count(t, `select count(*) from host_desired`)
	other := publicKey(t)
	l.refusal(t, "precondition.failed", acme.secret, "PATCH", path, map[string]any{"ssh_keys": []string{other}}, "If-Match", `"g9"`)
	changed := l.must(t, 200, acme.secret, "PATCH", path, map[string]any{"ssh_keys": []string{other}}, "If-Match", running.header.Get("ETag"))
	require.Equal(t, []any{other}, changed.body["ssh_keys"])
	require.Equal(t, "running", changed.text("status"))
	require.NotEqual(t, running.header.Get("ETag"), changed.header.Get("ETag"))
	require.Equal(t, before+1, l.count(t, `select count(*) from host_desired`))
	require.Equal(t, 1, l.count(t, `select run from instances`))
	l.refusal(t, "resource.not_found", bolt.secret, "PATCH", path, map[string]any{"ssh_keys": []string{other}})

	l.must(t, 202, acme.secret, "POST", path+"/actions/stop", nil)
	require.Contains(t, l.refusal(t, "state.conflict", acme.secret, "POST", path+"/ssh-certificates", logs).text("detail"), "its logs went with the run")
}

func (l live) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, l.db.OwnerPool(t).QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func TestAHostWithoutGatewaySaysSo(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 1)
	acme := l.tenant(t, "Acme")
	made := l.must(t, 202, acme.secret, "POST", acme.instances(), wish("trainer"))
	l.run(t, made.text("id"), "running", "")
	r := l.refusal(t, "state.conflict", acme.secret, "POST", acme.instances()+"/"+made.text("id")+"/ssh-certificates",
		map[string]any{"public_key": publicKey(t), "purpose": "shell"})
	require.Contains(t, r.text("detail"), "no SSH gateway")
}

func TestBadAccessIsNamedByItsPointer(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 1)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	weak, err := ssh.NewPublicKey(short.Public())
	require.NoError(t, err)
	key := publicKey(t)
	foreign := l.must(t, 201, bolt.secret, "POST", "/v1/organization/registry-logins",
		map[string]any{"registry": "ghcr.io", "username": "u", "password": "p"}).text("id")
	docker := l.must(t, 201, acme.secret, "POST", "/v1/organization/registry-logins",
		map[string]any{"registry": "docker.io", "username": "u", "password": "p"}).text("id")
	many := make([]any, 17)
	for n := range many {
		many[n] = map[string]any{"container_port": n + 1}
	}
	for name, c := range map[string]struct {
		field   string
		value   any
		pointer string
	}{
		"no key":                {"ssh_keys", []string{"certainly not a key at all"}, "/ssh_keys/0"},
		"broken key":            {"ssh_keys", []string{key, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"}, "/ssh_keys/1"},
		"options":               {"ssh_keys", []string{`command="x" ` + key}, "/ssh_keys/0"},
		"short RSA":             {"ssh_keys", []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(weak)))}, "/ssh_keys/0"},
		"twice":                 {"ssh_keys", []string{key, key + " again"}, "/ssh_keys/1"},
		"two lines":             {"ssh_keys", []string{key + "\n" + key}, "/ssh_keys/0"},
		"17 keys":               {"ssh_keys", strings.Split(strings.Repeat(key+",", 16)+key, ","), "/ssh_keys"},
		"port 0":                {"ports", []any{map[string]any{"container_port": 0}}, "/ports/0/container_port"},
		"port 65536":            {"ports", []any{map[string]any{"container_port": 65536}}, "/ports/0/container_port"},
		"no protocol":           {"ports", []any{map[string]any{"container_port": 80, "protocol": "sctp"}}, "/ports/0/protocol"},
		"port twice":            {"ports", []any{map[string]any{"container_port": 80}, map[string]any{"container_port": 80, "protocol": "tcp"}}, "/ports/1"},
		"17 ports":              {"ports", many, "/ports"},
		"shm below":             {"shm_mib", 0, "/shm_mib"},
		"shm above the offer":   {"shm_mib", 32769, "/shm_mib"},
		"somebody else's":       {"registry_login", foreign, "/registry_login"},
		"of another registry":   {"registry_login", docker, "/registry_login"},
		"no login id":           {"registry_login", "inst_1", "/registry_login"},
		"a recovery that is no": {"recovery", "never", "/recovery"},
	} {
		t.Run(name, func(t *testing.T) {
			body := wish(fmt.Sprint("bad ", name))
			body[c.field] = c.value
			r := l.refusal(t, "request.invalid", acme.secret, "POST", acme.instances(), body)
			require.Equal(t, c.pointer, r.body["errors"].([]any)[0].(map[string]any)["pointer"], r.raw)
		})
	}
	require.Zero(t, l.count(t, `select count(*) from instances`))
}

func TestRegistryLoginsNeverGiveTheirPasswordBack(t *testing.T) {
	l := newLive(t)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	const all = "/v1/organization/registry-logins"
	body := map[string]any{"registry": "ghcr.io", "username": "bot", "password": "s3cret-token"}
	made := l.must(t, 201, acme.secret, "POST", all, body, "Idempotency-Key", "login-1")
	require.NotContains(t, made.raw, "s3cret")
	require.JSONEq(t, made.raw, l.must(t, 201, acme.secret, "POST", all, body, "Idempotency-Key", "login-1").raw)
	l.refusal(t, "name.taken", acme.secret, "POST", all, body)
	l.must(t, 201, bolt.secret, "POST", all, body)
	one := all + "/" + made.text("id")
	require.JSONEq(t, made.raw, l.must(t, 200, acme.secret, "GET", one, nil).raw)
	require.Len(t, l.must(t, 200, acme.secret, "GET", all, nil).items(), 1)
	for _, r := range []struct {
		method string
		body   any
	}{{"GET", nil}, {"PATCH", map[string]any{"password": "x"}}, {"DELETE", nil}} {
		l.refusal(t, "resource.not_found", bolt.secret, r.method, one, r.body)
	}
	changed := l.must(t, 200, acme.secret, "PATCH", one, map[string]any{"password": "an0ther", "username": "bot2"})
	require.Equal(t, "bot2", changed.text("username"))
	require.NotContains(t, changed.raw, "an0ther")
	require.Zero(t, l.count(t, `select count(*) from registry_logins where position('an0ther'::bytea in password_sealed) > 0 or position('s3cret'::bytea in password_sealed) > 0`))
	require.Zero(t, l.count(t, `select count(*) from idempotency_keys where body::text like '%s3cret%' or body::text like '%an0ther%'`))

	confined := l.must(t, 201, acme.secret, "POST", "/v1/organization/api-keys",
		map[string]any{"name": "ci", "project": acme.project, "scopes": []string{"instances:read", "instances:write"}}).text("secret")
	l.refusal(t, "auth.forbidden", confined, "POST", all, map[string]any{"registry": "quay.io", "username": "u", "password": "p"})
	l.refusal(t, "auth.forbidden", confined, "PATCH", one, map[string]any{"password": "p"})
	l.refusal(t, "auth.forbidden", confined, "DELETE", one, nil)

	l.fleet(t, 1)
	wanted := wish("puller")
	wanted["registry_login"] = made.text("id")
	require.Equal(t, made.text("id"), l.must(t, 202, acme.secret, "POST", acme.instances(), wanted).text("registry_login"))
	l.must(t, 204, acme.secret, "DELETE", one, nil)
	l.refusal(t, "resource.not_found", acme.secret, "DELETE", one, nil)
	require.Nil(t, l.must(t, 200, acme.secret, "GET", acme.instances(), nil).items()[0]["registry_login"])

	for name, bad := range map[string]map[string]any{
		"no registry":    {"registry": "https://ghcr.io", "username": "u", "password": "p"},
		"with a path":    {"registry": "ghcr.io/acme", "username": "u", "password": "p"},
		"no user":        {"registry": "ghcr.io", "username": "", "password": "p"},
		"empty password": {"registry": "ghcr.io", "username": "u", "password": ""},
		"two lines":      {"registry": "ghcr.io", "username": "u", "password": "a\nb"},
	} {
		t.Run(name, func(t *testing.T) { l.refusal(t, "request.invalid", acme.secret, "POST", all, bad) })
	}
}

func TestSamplesHaveSourcesAndGaps(t *testing.T) {
	l := newLive(t)
	l.fleet(t, 1)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	made := l.must(t, 202, acme.secret, "POST", acme.instances(), wish("trainer"))
	l.run(t, made.text("id"), "running", "")
	l.exec(t, `insert into slice_samples (org_id, instance_id, assignment_id, run, host_id, spool_id, ordinal, at, interval_ms, source, gap, readings)
		select org_id, instance_id, id, run, host_id, n, 1, biz_now() - make_interval(secs => 10 * n), 10000, 'gpm',
			case when n = 2 then 'the agent was away' else '' end,
			case when n = 2 then '{}'::jsonb else jsonb_build_object('sm_util_ppm', n * 1000) end
		from assignments, generate_series(1, 5) as n`)
	path := acme.instances() + "/" + made.text("id") + "/samples"
	first := l.must(t, 200, acme.secret, "GET", path+"?page_size=3", nil)
	require.Len(t, first.items(), 3)
	require.Equal(t, map[string]any{"sm_util_ppm": 5000.0}, first.items()[0]["readings"])
	rest := l.must(t, 200, acme.secret, "GET", path+"?page_size=3&page_token="+first.text("next_page_token"), nil)
	require.Len(t, rest.items(), 2)
	require.Equal(t, "the agent was away", rest.items()[0]["gap"])
	require.Equal(t, map[string]any{}, rest.items()[0]["readings"], "nothing is made up")
	require.Empty(t, l.must(t, 200, acme.secret, "GET", path+"?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z", nil).items())
	l.refusal(t, "request.invalid", acme.secret, "GET", path+"?from=2020-01-02T00:00:00Z&to=2020-01-01T00:00:00Z", nil)
	l.refusal(t, "request.invalid", acme.secret, "GET", path+"?from=yesterday", nil)
	l.refusal(t, "resource.not_found", bolt.secret, "GET", bolt.instances()+"/"+made.text("id")+"/samples", nil)
}

func TestOperatorsSetModesAndReadEvents(t *testing.T) {
	l := newLive(t)
	host := l.fleet(t, 1)
	l.reachable(t)
	acme := l.tenant(t, "Acme")
	l.exec(t, `update gpus set health = 'degraded', health_cause = 'XID_63', health_detail = 'row remap pending'`)
	gpu := l.must(t, 200, l.operator, "GET", "/v1/admin/gpus?host="+host, nil).items()[0]
	require.Equal(t, []any{"degraded", "XID_63", "row remap pending", nil}, []any{gpu["health"], gpu["health_cause"], gpu["health_detail"], gpu["mode_change"]})
	shown := l.must(t, 200, l.operator, "GET", "/v1/admin/hosts/"+host, nil)
	require.Equal(t, map[string]any{"address": "gpu-01.example.com", "ssh_port": 2222.0, "first_port": 30000.0, "last_port": 30010.0}, shown.body["reach"])
	require.Equal(t, "good", shown.text("condition"))

	path := "/v1/admin/gpus/" + gpu["id"].(string)
	seen := l.must(t, 200, l.operator, "GET", path, nil).header.Get("ETag")
	set := path + "/actions/set-mode"
	wanted := map[string]any{"mode": "timeslice:2", "when_empty": true}
	l.refusal(t, "precondition.required", l.operator, "POST", set, wanted)
	l.refusal(t, "precondition.failed", l.operator, "POST", set, wanted, "If-Match", `"g99"`)
	l.refusal(t, "state.conflict", l.operator, "POST", set, map[string]any{"mode": "whole", "when_empty": true}, "If-Match", seen)
	for name, bad := range map[string]map[string]any{
		"when?":          {"mode": "mig"},
		"both":           {"mode": "mig", "when_empty": true, "drain_by": "2099-01-01T00:00:00Z"},
		"not when empty": {"mode": "mig", "when_empty": false},
		"no mode":        {"mode": "vgpu", "when_empty": true},
		"too much":       {"mode": "mps:4x30", "when_empty": true},
		"too many":       {"mode": "timeslice:64", "when_empty": true},
		"cannot do it":   {"mode": "mig", "when_empty": true},
		"over":           {"mode": "timeslice:2", "drain_by": "2020-01-01T00:00:00Z"},
		"no instant":     {"mode": "timeslice:2", "drain_by": "tomorrow"},
	} {
		t.Run(name, func(t *testing.T) {
			l.refusal(t, "request.invalid", l.operator, "POST", set, bad, "If-Match", seen)
		})
	}
	l.refusal(t, "resource.not_found", acme.secret, "POST", set, wanted, "If-Match", seen)
	effect := l.must(t, 200, l.operator, "POST", set, map[string]any{"mode": "timeslice:2", "when_empty": true, "dry_run": true}, "If-Match", seen)
	require.Equal(t, "3.60", effect.body["revenue"].([]any)[0].(map[string]any)["before_per_hour"])
	require.Equal(t, offerName, effect.body["offers_lost"].([]any)[0].(map[string]any)["offer"])

	made := l.must(t, 202, l.operator, "POST", set, wanted, "If-Match", seen, "Idempotency-Key", "mode-1")
	require.Equal(t, "/v1/admin/operations/"+made.text("id"), made.header.Get("Location"))
	require.JSONEq(t, made.raw, l.must(t, 202, l.operator, "POST", set, wanted, "If-Match", seen, "Idempotency-Key", "mode-1").raw)
	op := l.must(t, 200, l.operator, "GET", made.header.Get("Location")+"?wait=0s", nil)
	require.Equal(t, "running", op.text("status"))
	require.Equal(t, made.text("id"), l.must(t, 200, l.operator, "GET", path, nil).text("mode_change"))
	l.refusal(t, "resource.not_found", acme.secret, "GET", made.header.Get("Location"), nil)
	l.refusal(t, "resource.not_found", acme.secret, "GET", "/v1/operations/"+made.text("id"), nil)

	gone := l.must(t, 200, l.operator, "POST", path+"/actions/cancel-set-mode", nil)
	require.Equal(t, "cancelled", gone.text("status"))
	l.refusal(t, "state.conflict", l.operator, "POST", path+"/actions/cancel-set-mode", nil)

	events := l.must(t, 200, l.operator, "GET", "/v1/admin/events?type=gpu.&subject="+gpu["id"].(string), nil).items()
	require.Len(t, events, 1)
	require.Equal(t, "gpu.mode_cancelled", events[0]["type"])
	require.Equal(t, gpu["id"], events[0]["subject"])
	l.refusal(t, "request.invalid", l.operator, "GET", "/v1/admin/events?subject=nobody", nil)
	l.refusal(t, "auth.forbidden", acme.secret, "GET", "/v1/admin/events", nil)
}

func TestEventsArePagedNewestFirst(t *testing.T) {
	l := newLive(t)
	h := id.New[id.Host]()
	for n := range 5 {
		require.NoError(t, l.app.Store.InSystem(t.Context(), "test", func(s *store.SystemTx) error {
			return s.AppendEvent(t.Context(), store.Event{Cell: "local-1", Type: "host.ready", Subject: h, Data: map[string]any{"n": n}})
		}))
	}
	var seen []any
	token := ""
	for range 3 {
		r := l.must(t, 200, l.operator, "GET", "/v1/admin/events?type=host.ready&page_size=2"+token, nil)
		for _, e := range r.items() {
			seen = append(seen, e["data"].(map[string]any)["n"])
		}
		token = "&page_token=" + r.text("next_page_token")
	}
	require.Equal(t, []any{4.0, 3.0, 2.0, 1.0, 0.0}, seen)
}
