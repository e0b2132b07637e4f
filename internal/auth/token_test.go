package auth_test

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type bundle struct {
	key      ed25519.PrivateKey
	clock    *clock.Fake
	issuer   *auth.Issuer
	verifier *auth.Verifier
}

func signingKey(fill byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{fill}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func setup(t testing.TB) bundle {
	t.Helper()
	b := bundle{key: signingKey(1), clock: clock.NewFake(noon)}
	var err error
	b.issuer, err = auth.NewIssuer(auth.IssuerConfig{
		Issuer: "https://tranche.test", Audience: "tranche-api", Key: b.key, Clock: b.clock,
	})
	require.NoError(t, err)
	b.verifier, err = auth.NewVerifier(auth.VerifierConfig{
		Issuer: "https://tranche.test", Audience: "tranche-api",
		Keys: []ed25519.PublicKey{public(b.key)}, Clock: b.clock,
	})
	require.NoError(t, err)
	return b
}

func tenant() auth.Principal {
	return auth.Principal{
		Kind: auth.Org, Org: id.New[id.Org](), Projects: []id.Project{id.New[id.Project]()},
		Scopes: []auth.Scope{auth.InstancesRead, auth.UsageRead}, Key: id.New[id.Key](), Epoch: 7,
	}
}

func TestATokenCarriesItsPrincipal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	noProjects := tenant()
	noProjects.Projects = []id.Project{}
	everything := tenant()
	everything.Projects = nil
	for _, p := range []auth.Principal{
		tenant(), noProjects, everything,
		{Kind: auth.Operator, Scopes: auth.OperatorScopes(), Key: id.New[id.Key]()},
	} {
		token, life, err := b.issuer.Mint(p)
		require.NoError(t, err)
		require.Equal(t, auth.MaxTokenLife, life)
		got, err := b.verifier.Verify(token.Reveal())
		require.NoError(t, err)
		p.FromToken = true
		require.Equal(t, p, got)
	}
}

func TestATokenEndsAfterItsLifeAndTheLeeway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token, life, err := b.issuer.Mint(tenant())
	require.NoError(t, err)
	b.clock.Set(noon.Add(life + 29*time.Second))
	_, err = b.verifier.Verify(token.Reveal())
	require.NoError(t, err)
	b.clock.Set(noon.Add(life + 31*time.Second))
	_, err = b.verifier.Verify(token.Reveal())
	require.Equal(t, "auth.expired", fault.CodeOf(err))
	b.clock.Set(noon.Add(-31 * time.Second))
	_, err = b.verifier.Verify(token.Reveal())
	require.Equal(t, "auth.invalid", fault.CodeOf(err))
}

func TestBothKeysAreAcceptedDuringARotation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := signingKey(2)
	issuer, err := auth.NewIssuer(auth.IssuerConfig{
		Issuer: "https://tranche.test", Audience: "tranche-api", Key: next, Clock: b.clock, TTL: time.Minute,
	})
	require.NoError(t, err)
	verifier, err := auth.NewVerifier(auth.VerifierConfig{
		Issuer: "https://tranche.test", Audience: "tranche-api",
		Keys: []ed25519.PublicKey{public(b.key), public(next)}, Clock: b.clock,
	})
	require.NoError(t, err)
	for _, from := range []*auth.Issuer{b.issuer, issuer} {
		token, _, err := from.Mint(tenant())
		require.NoError(t, err)
		_, err = verifier.Verify(token.Reveal())
		require.NoError(t, err)
	}
	token, _, err := issuer.Mint(tenant())
	require.NoError(t, err)
	_, err = b.verifier.Verify(token.Reveal())
	require.Equal(t, "auth.invalid", fault.CodeOf(err), "before the new key is announced")
}

// forgery is a token made by hand.
type forgery struct {
	header, claims map[string]any
	sign           func(signed []byte) []byte
}

func segment(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(text)
}

func (f forgery) text(t testing.TB) string {
	t.Helper()
	signed := segment(t, f.header) + "." + segment(t, f.claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(f.sign([]byte(signed)))
}

// honest returns what the issuer would have made, to be spoiled in one place.
func (b bundle) honest() forgery {
	org, kid := id.New[id.Org](), id.New[id.Key]()
	return forgery{
		header: map[string]any{"alg": "EdDSA", "typ": "at+jwt", "kid": auth.KeyID(public(b.key))},
		claims: map[string]any{
			"iss": "https://tranche.test", "aud": "tranche-api", "sub": kid.String(), "client_id": kid.String(),
			"iat": noon.Unix(), "exp": noon.Add(10 * time.Minute).Unix(), "jti": "x",
			"kind": "org", "org": org.String(), "scope": "instances:read", "epoch": 1,
		},
		sign: func(signed []byte) []byte { return ed25519.Sign(b.key, signed) },
	}
}

func hs256(secret []byte) func([]byte) []byte {
	return func(signed []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(signed)
		return mac.Sum(nil)
	}
}

func TestEveryForgedTokenIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.verifier.Verify(b.honest().text(t))
	require.NoError(t, err, "the unspoiled token is good")

	header := func(name string, value any) func(*forgery) {
		return func(f *forgery) { f.header[name] = value }
	}
	claim := func(name string, value any) func(*forgery) {
		return func(f *forgery) { f.claims[name] = value }
	}
	drop := func(name string) func(*forgery) { return func(f *forgery) { delete(f.claims, name) } }
	unsigned := func(alg string) func(*forgery) {
		return func(f *forgery) {
			f.header["alg"] = alg
			f.sign = func([]byte) []byte { return nil }
		}
	}
	for name, spoil := range map[string]func(*forgery){
		"alg none":                  unsigned("none"),
		"alg NoNe":                  unsigned("NoNe"),
		"no signature":              unsigned("EdDSA"),
		"HS256 with the public key": func(f *forgery) { f.header["alg"] = "HS256"; f.sign = hs256(public(b.key)) },
		"HS256 with an empty key":   func(f *forgery) { f.header["alg"] = "HS256"; f.sign = hs256(nil) },
		"another key under our kid": func(f *forgery) { f.sign = func(s []byte) []byte { return ed25519.Sign(signingKey(9), s) } },
		"a foreign kid":             func(f *forgery) { f.header["kid"] = auth.KeyID(public(signingKey(9))) },
		"a kid that is a path":      header("kid", "../../dev/null"),
		"a kid that is a number":    header("kid", 1),
		"no kid":                    func(f *forgery) { delete(f.header, "kid") },
		"crit":                      header("crit", []string{"exp"}),
		"an embedded key":           header("jwk", map[string]any{"kty": "OKP"}),
		"a key URL":                 header("jku", "https://evil.test/keys"),
		"typ JWT":                   header("typ", "JWT"),
		"no typ":                    func(f *forgery) { delete(f.header, "typ") },
		"alg RS256":                 header("alg", "RS256"),
		"alg ES256":                 header("alg", "ES256"),
		"another issuer":            claim("iss", "https://evil.test"),
		"no issuer":                 drop("iss"),
		"another audience":          claim("aud", "tranche-console"),
		"several audiences":         claim("aud", []string{"tranche-api", "tranche-console"}),
		"a tenant's for operators":  claim("aud", auth.AdminAudience("tranche-api")),
		"an operator's for tenants": func(f *forgery) {
			f.claims["kind"] = "operator"
			delete(f.claims, "org")
		},
		"no audience":                   drop("aud"),
		"no exp":                        drop("exp"),
		"exp null":                      claim("exp", nil),
		"exp as text":                   claim("exp", "9999999999"),
		"no iat":                        drop("iat"),
		"iat in the future":             claim("iat", noon.Add(time.Hour).Unix()),
		"a life over 15 minutes":        claim("exp", noon.Add(16*time.Minute).Unix()),
		"a life of years":               claim("exp", noon.AddDate(9, 0, 0).Unix()),
		"exp before iat":                claim("exp", noon.Add(-time.Second).Unix()),
		"nbf in the future":             claim("nbf", noon.Add(time.Hour).Unix()),
		"no subject":                    drop("sub"),
		"a subject that is no key":      claim("sub", id.New[id.Org]().String()),
		"no kind":                       drop("kind"),
		"kind root":                     claim("kind", "root"),
		"an organization without an id": drop("org"),
		"an operator with one":          claim("kind", "operator"),
		"org as a number":               claim("org", 5),
		"projects as text":              claim("projects", "all"),
		"expired for another audience": func(f *forgery) {
			f.claims["exp"], f.claims["iat"] = noon.Add(-time.Hour).Unix(), noon.Add(-time.Hour-time.Minute).Unix()
			f.claims["aud"] = "tranche-console"
		},
		"expired and signed by another": func(f *forgery) {
			f.claims["exp"] = noon.Add(-time.Hour).Unix()
			f.sign = func(s []byte) []byte { return ed25519.Sign(signingKey(9), s) }
		},
	} {
		f := b.honest()
		f.header, f.claims = maps.Clone(f.header), maps.Clone(f.claims)
		spoil(&f)
		_, err := b.verifier.Verify(f.text(t))
		require.Equal(t, "auth.invalid", fault.CodeOf(err), name)
		require.Equal(t, fault.Unauthenticated, fault.KindOf(err), name)
	}
}

func TestMalformedTokensAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := b.honest().text(t)
	parts := strings.Split(good, ".")
	for name, text := range map[string]string{
		"empty":               "",
		"dots":                "..",
		"two parts":           parts[0] + "." + parts[1],
		"four parts":          good + ".x",
		"padded":              good + "==",
		"no base64":           "é." + parts[1] + "." + parts[2],
		"header no JSON":      base64.RawURLEncoding.EncodeToString([]byte("nope")) + "." + parts[1] + "." + parts[2],
		"claims of another":   parts[0] + "." + segment(t, map[string]any{"kind": "operator"}) + "." + parts[2],
		"huge":                parts[0] + "." + strings.Repeat("A", 1<<20) + "." + parts[2],
		"a signature cut off": good[:len(good)-2],
		"JSON serialization":  `{"payload":"` + parts[1] + `"}`,
		"five parts, as JWE":  strings.Repeat("AA.", 4) + "AA",
		"an API key":          auth.MintKey(auth.KeyLive).Text().Reveal(),
	} {
		_, err := b.verifier.Verify(text)
		require.Equal(t, "auth.invalid", fault.CodeOf(err), name)
	}
}

func TestAnOversizedTokenIsRefusedEvenWhenSigned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := b.honest()
	f.claims["scope"] = strings.Repeat("instances:read ", 600)
	text := f.text(t)
	require.Greater(t, len(text), auth.MaxTokenLength)
	_, err := b.verifier.Verify(text)
	require.Equal(t, "auth.invalid", fault.CodeOf(err))
}

func TestTheKeySetListsPublicKeysOnly(t *testing.T) {
	t.Parallel()
	one, two := signingKey(1), signingKey(2)
	text, err := auth.JWKS([]ed25519.PublicKey{public(one), public(two)})
	require.NoError(t, err)
	var document struct{ Keys []map[string]string }
	require.NoError(t, json.Unmarshal(text, &document))
	require.Len(t, document.Keys, 2)
	for _, key := range document.Keys {
		require.ElementsMatch(t, []string{"kty", "crv", "x", "kid", "alg", "use"}, keysOf(key))
		x, err := base64.RawURLEncoding.DecodeString(key["x"])
		require.NoError(t, err)
		require.Equal(t, key["kid"], auth.KeyID(x))
	}
	empty, err := auth.JWKS(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"keys":[]}`, string(empty))
}

// The example of RFC 8037, appendix A.3.
func TestTheKeyIDIsTheStandardThumbprint(t *testing.T) {
	t.Parallel()
	x, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	require.NoError(t, err)
	require.Equal(t, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", auth.KeyID(x))
}

func TestASigningKeyIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	text, err := auth.EncodeSigningKey(signingKey(3))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "signing.pem")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	key, err := auth.ReadSigningKey(path)
	require.NoError(t, err)
	require.True(t, crypto.PrivateKey(signingKey(3)).(ed25519.PrivateKey).Equal(key))
}

func TestIncompleteConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := auth.IssuerConfig{Issuer: "i", Audience: "a", Key: b.key, Clock: b.clock}
	for name, spoil := range map[string]func(*auth.IssuerConfig){
		"no issuer":       func(c *auth.IssuerConfig) { c.Issuer = "" },
		"no audience":     func(c *auth.IssuerConfig) { c.Audience = "" },
		"no key":          func(c *auth.IssuerConfig) { c.Key = nil },
		"no clock":        func(c *auth.IssuerConfig) { c.Clock = nil },
		"a life too long": func(c *auth.IssuerConfig) { c.TTL = auth.MaxTokenLife + 1 },
		"a negative life": func(c *auth.IssuerConfig) { c.TTL = -1 },
	} {
		config := good
		spoil(&config)
		_, err := auth.NewIssuer(config)
		require.Error(t, err, name)
	}
	_, err := auth.NewVerifier(auth.VerifierConfig{Issuer: "i", Audience: "a", Clock: b.clock})
	require.Error(t, err, "no keys")
	_, err = auth.NewVerifier(auth.VerifierConfig{Issuer: "i", Audience: "a", Clock: b.clock, Keys: []ed25519.PublicKey{{1}}})
	require.Error(t, err, "a short key")
}

func FuzzVerify(f *testing.F) {
	b := setup(f)
	good := b.honest().text(f)
	f.Add(good)
	f.Add("a.b.c")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := b.verifier.Verify(text)
		if err != nil {
			require.Contains(t, []string{"auth.invalid", "auth.expired"}, fault.CodeOf(err))
			return
		}
		require.Equal(t, good, text, "only a signed token is accepted")
		require.Equal(t, auth.Org, p.Kind)
	})
}

func keysOf(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}
