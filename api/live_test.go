package api_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/api"
	"github.com/tranche-cloud/tranche/billing/payment/stripe"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/page"
	"github.com/tranche-cloud/tranche/internal/store"
	"github.com/tranche-cloud/tranche/internal/testkit/pgtest"
	"github.com/tranche-cloud/tranche/internal/testkit/stripefake"
)

// live is the API over the real use cases and a database of its own. Every answer
// is checked against the specification by a validator that the API does not use.
type live struct {
	*httptest.Server
	app      *app.App
	db       pgtest.Database
	operator string
	rows     []row
	keys     *keySequence
	cards    *stripefake.Server
}

type keySequence struct {
	mu sync.Mutex
	n  int
}

func (k *keySequence) next() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	return fmt.Sprintf("key-%d", k.n)
}

func newLive(t *testing.T) live {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), db.AppDSN, 8, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(st.Close)
	hasher, err := auth.NewHasher(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	box, err := auth.NewBox(bytes.Repeat([]byte{2}, 32))
	require.NoError(t, err)
	signing := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{3}, ed25519.SeedSize))
	public := []ed25519.PublicKey{signing.Public().(ed25519.PublicKey)}
	issuer, err := auth.NewIssuer(auth.IssuerConfig{Issuer: "https://api.test", Audience: "tranche", Key: signing, Clock: clock.Real()})
	require.NoError(t, err)
	verifier, err := auth.NewVerifier(auth.VerifierConfig{Issuer: "https://api.test", Audience: "tranche", Clock: clock.Real(), Keys: public})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, ca.Init(dir, time.Now()))
	trust, err := ca.ReadTrust(dir)
	require.NoError(t, err)
	originals, err := render.NewOriginals("")
	require.NoError(t, err)
	cards := stripefake.New(t)
	provider, err := stripe.New(stripe.Config{
		Key: auth.NewSecret(cards.Key), WebhookSecret: auth.NewSecret(cards.Secret), BaseURL: cards.URL, ReturnURL: "https://example.com/paid",
	})
	require.NoError(t, err)
	a := app.New(app.Deps{
		Originals: originals, Payments: []app.PaymentProvider{provider},
		Store: st, Clock: clock.Real(), Hasher: hasher, Issuer: issuer, Verifier: verifier, Box: box, TrustRoot: trust, Dev: true,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	key, err := a.CreateOperator(t.Context(), "root")
	require.NoError(t, err)
	pages, err := page.NewSealer(bytes.Repeat([]byte{4}, 32))
	require.NoError(t, err)
	config, err := api.ForApp(a, pages, public)
	require.NoError(t, err)
	built, err := api.New(config)
	require.NoError(t, err)
	server := httptest.NewServer(built)
	t.Cleanup(server.Close)
	return live{Server: server, app: a, db: db, operator: key.Secret.Reveal(), rows: rows(t), keys: &keySequence{}, cards: cards}
}

// reply is an answer with its JSON read.
type reply struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (r reply) text(path ...string) string {
	var at any = r.body
	for _, name := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		at = m[name]
	}
	s, _ := at.(string)
	return s
}

func (r reply) items() []map[string]any {
	var out []map[string]any
	list, _ := r.body["items"].([]any)
	for _, x := range list {
		out = append(out, x.(map[string]any))
	}
	return out
}

// call sends one request and checks its answer against the specification. Creates
// get a fresh idempotency key unless the header says otherwise.
func (l live) call(t *testing.T, as, method, path string, body any, header ...string) reply {
	t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, l.URL+path, in)
	require.NoError(t, err)
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+as)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", l.keys.next())
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := l.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	out := reply{status: res.StatusCode, header: res.Header, raw: string(raw)}
	if strings.HasSuffix(res.Header.Get("Content-Type"), "json") {
		require.NoError(t, json.Unmarshal(raw, &out.body), out.raw)
	}
	l.fits(t, method, path, out)
	return out
}

// must is call with the status that is expected.
func (l live) must(t *testing.T, status int, as, method, path string, body any, header ...string) reply {
	t.Helper()
	r := l.call(t, as, method, path, body, header...)
	require.Equal(t, status, r.status, "%s %s: %s", method, path, r.raw)
	return r
}

// refusal is call for a request that must be refused with the code.
func (l live) refusal(t *testing.T, code, as, method, path string, body any, header ...string) reply {
	t.Helper()
	r := l.call(t, as, method, path, body, header...)
	require.Equal(t, code, r.text("code"), "%s %s: %d %s", method, path, r.status, r.raw)
	return r
}

// fits checks an answer against the specification.
func (l live) fits(t *testing.T, method, path string, r reply) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	at := slices.IndexFunc(l.rows, func(x row) bool { return x.method == method && matches(x.path, path) })
	if at < 0 {
		require.Equal(t, 404, r.status, "%s %s is not in the specification", method, path)
		return
	}
	op := l.rows[at].op
	answer := op.Responses.Status(r.status)
	if answer == nil {
		answer = op.Responses.Default()
		require.GreaterOrEqual(t, r.status, 400, "%s answers %d, which the specification does not know: %s", op.OperationID, r.status, r.raw)
		require.Contains(t, l.rows[at].texts("x-error-codes"), r.text("code"), "%s: %s", op.OperationID, r.raw)
	}
	for name := range answer.Value.Headers {
		require.True(t, name == "Idempotent-Replayed" || r.header.Get(name) != "", "%s: header %s", op.OperationID, name)
	}
	sent := strings.Split(r.header.Get("Content-Type"), ";")[0]
	if len(answer.Value.Content) > 0 {
		require.Contains(t, answer.Value.Content, sent, op.OperationID)
	}
	for kind, media := range answer.Value.Content {
		if r.body == nil || kind != sent {
			continue
		}
		err := media.Schema.Value.VisitJSON(r.body, openapi3.EnableFormatValidation())
		require.NoError(t, err, "%s: %s", op.OperationID, r.raw)
		requireKnown(t, op.OperationID, media.Schema.Value, r.body)
	}
}

func matches(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(a, b, func(part, got string) bool { return strings.HasPrefix(part, "{") || part == got })
}

// requireKnown fails for a field that the specification does not name.
func requireKnown(t *testing.T, at string, s *openapi3.Schema, v any) {
	t.Helper()
	for _, alternative := range s.AnyOf {
		if v != nil && !alternative.Value.Type.Is("null") {
			s = alternative.Value
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if s.AdditionalProperties.Schema != nil || s.AdditionalProperties.Has != nil && *s.AdditionalProperties.Has {
			return
		}
		for name, field := range v {
			p := s.Properties[name]
			require.NotNil(t, p, "%s/%s is not in the specification", at, name)
			requireKnown(t, at+"/"+name, p.Value, field)
		}
	case []any:
		for _, item := range v {
			requireKnown(t, at+"/[]", s.Items.Value, item)
		}
	}
}

// party is an organization with a project and a key.
type party struct{ org, project, key, secret string }

func (l live) tenant(t *testing.T, name string) party {
	t.Helper()
	org := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations", map[string]any{
		"name": name, "currency": "USD", "quota": map[string]int{"instances": 1000, "gpus": 1000},
	}).text("id")
	project := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+org+"/projects", map[string]any{"name": "default"}).text("id")
	key := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+org+"/api-keys", map[string]any{"name": "main"})
	require.NotEmpty(t, key.text("secret"))
	return party{org: org, project: project, key: key.text("id"), secret: key.text("secret")}
}

func TestOrganizationFromNothing(t *testing.T) {
	l := newLive(t)
	acme := l.tenant(t, "Acme")
	require.Equal(t, "Acme", l.must(t, 200, l.operator, "GET", "/v1/admin/organizations/"+acme.org, nil).text("name"))
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/organizations", nil).items(), 1)
	require.Equal(t, acme.project, l.must(t, 200, l.operator, "GET", "/v1/admin/organizations/"+acme.org+"/projects/"+acme.project, nil).text("id"))
	require.Len(t, l.must(t, 200, l.operator, "GET", "/v1/admin/organizations/"+acme.org+"/projects", nil).items(), 1)

	who := l.must(t, 200, acme.secret, "GET", "/v1/whoami", nil)
	require.Equal(t, acme.org, who.text("organization"))
	require.Equal(t, "organization", who.text("kind"))
	require.Equal(t, "operator", l.must(t, 200, l.operator, "GET", "/v1/whoami", nil).text("kind"))

	l.refusal(t, "name.taken", l.operator, "POST", "/v1/admin/organizations", map[string]any{"name": "Acme", "currency": "USD"})
	l.refusal(t, "request.invalid", l.operator, "POST", "/v1/admin/organizations", map[string]any{"name": "B", "currency": "XXZ"})
	l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/organizations/"+id.New[id.Org]().String(), nil)
	l.refusal(t, "resource.not_found", l.operator, "GET", "/v1/admin/organizations/nothing", nil)
}

func TestTokenExchange(t *testing.T) {
	l := newLive(t)
	acme := l.tenant(t, "Acme")
	issued := l.must(t, 200, acme.secret, "POST", "/v1/auth/token", nil)
	token := issued.text("access_token")
	require.Equal(t, acme.org, l.must(t, 200, token, "GET", "/v1/whoami", nil).text("organization"))
	l.refusal(t, "auth.forbidden", token, "POST", "/v1/auth/token", nil)
	require.Len(t, l.must(t, 200, "", "GET", "/.well-known/jwks.json", nil).body["keys"], 1)

	head, rest, _ := strings.Cut(token, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	require.NotEmpty(t, head)
	forged := map[string]string{
		"alg none":      "eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0." + payload + ".",
		"cut short":     head + "." + payload,
		"other payload": head + "." + payload + "A." + signature,
		"no key":        "trn_test_" + strings.Repeat("0", 60),
		"rubbish":       "..",
	}
	for name, bad := range forged {
		r := l.refusal(t, "auth.invalid", bad, "GET", "/v1/whoami", nil)
		require.Equal(t, 401, r.status, name)
		require.NotEmpty(t, r.header.Get("WWW-Authenticate"), name)
	}
}

func TestKeysAreShownOnceAndRevoked(t *testing.T) {
	l := newLive(t)
	acme := l.tenant(t, "Acme")
	body := map[string]any{"name": "ci", "scopes": []string{"instances:read"}, "project": acme.project}
	made := l.must(t, 201, acme.secret, "POST", "/v1/organization/api-keys", body, "Idempotency-Key", "once")
	require.NotEmpty(t, made.text("secret"))
	again := l.must(t, 201, acme.secret, "POST", "/v1/organization/api-keys", body, "Idempotency-Key", "once")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, made.text("id"), again.text("id"))
	require.Nil(t, again.body["secret"], "a replay shows no secret")

	body["name"] = "other"
	l.refusal(t, "idempotency.mismatch", acme.secret, "POST", "/v1/organization/api-keys", body, "Idempotency-Key", "once")
	l.refusal(t, "auth.forbidden", made.text("secret"), "POST", "/v1/organization/api-keys", body)
	require.Equal(t, acme.project, l.must(t, 200, made.text("secret"), "GET", "/v1/whoami", nil).text("project"))

	l.must(t, 200, made.text("secret"), "GET", "/v1/projects/-/instances", nil)
	l.refusal(t, "resource.not_found", acme.secret, "GET", "/v1/projects/-/instances", nil)

	list := l.must(t, 200, acme.secret, "GET", "/v1/organization/api-keys", nil).items()
	require.Len(t, list, 2)
	for _, key := range list {
		require.Nil(t, key["secret"])
	}
	project := map[string]any{"name": "zeta"}
	first := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+acme.org+"/projects", project, "Idempotency-Key", "bytes")
	second := l.must(t, 201, l.operator, "POST", "/v1/admin/organizations/"+acme.org+"/projects", project, "Idempotency-Key", "bytes")
	require.Equal(t, string(first.raw), string(second.raw), "a replay is the stored body, byte for byte")
	path := "/v1/organization/api-keys/" + made.text("id")
	require.Empty(t, l.must(t, 204, acme.secret, "DELETE", path, nil, "Idempotency-Key", "gone").raw)
	replay := l.must(t, 204, acme.secret, "DELETE", path, nil, "Idempotency-Key", "gone")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	l.must(t, 204, acme.secret, "DELETE", path, nil)
	l.refusal(t, "auth.invalid", made.text("secret"), "GET", "/v1/whoami", nil)
}

func TestPagesAreCompleteAndBound(t *testing.T) {
	l := newLive(t)
	acme, bolt := l.tenant(t, "Acme"), l.tenant(t, "Bolt")
	for n := range 7 {
		l.must(t, 201, acme.secret, "POST", "/v1/organization/api-keys", map[string]any{"name": fmt.Sprint("k", n)})
	}
	seen := map[string]bool{}
	token, pages := "", 0
	for {
		path := "/v1/organization/api-keys?page_size=3"
		if token != "" {
			path += "&page_token=" + token
		}
		r := l.must(t, 200, acme.secret, "GET", path, nil)
		for _, key := range r.items() {
			require.False(t, seen[key["id"].(string)], "shown twice")
			seen[key["id"].(string)] = true
		}
		pages++
		if r.text("next_page_token") == "" {
			break
		}
		token = r.text("next_page_token")
	}
	require.Len(t, seen, 8)
	require.Equal(t, 3, pages)
	l.refusal(t, "page_token.invalid", bolt.secret, "GET", "/v1/organization/api-keys?page_token="+token, nil)
	l.refusal(t, "page_token.invalid", acme.secret, "GET", "/v1/organization/invoices?page_token="+token, nil)
	l.refusal(t, "page_token.invalid", acme.secret, "GET", "/v1/organization/api-keys?page_token="+token+"x", nil)
	require.Contains(t, l.must(t, 200, acme.secret, "GET", "/v1/organization/invoices", nil).raw, `"items":[]`)
}

func TestReadyOnTheRealDatabase(t *testing.T) {
	res, err := http.Get(newLive(t).URL + "/readyz")
	require.NoError(t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"ok","checks":[{"name":"database","status":"ok"},{"name":"outbox","status":"ok"}]}`, string(raw))
}
