package auth

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/id"
)

const (
	// MaxTokenLife is the longest life of an access token.
	MaxTokenLife = 15 * time.Minute
	// MaxTokenLength bounds the text of a token, in bytes; longer input is
	// refused unread.
	MaxTokenLength = 8 << 10

	leeway    = 30 * time.Second
	tokenType = "at+jwt"
)

// claims are all that a token of ours holds (RFC 9068).
type claims struct {
	jwt.RegisteredClaims
	ClientID string        `json:"client_id"`
	Kind     PrincipalKind `json:"kind"`
	Org      id.Org        `json:"org,omitzero"`
	Projects []id.Project  `json:"projects,omitempty"`
	Limited  bool          `json:"limited,omitempty"` // to Projects, even when there are none
	Scope    string        `json:"scope"`
	Epoch    int64         `json:"epoch"`
}

// AdminAudience is the audience of the operators' API of an installation: a token
// for one API is none for the other.
func AdminAudience(audience string) string { return audience + "-admin" }

func audienceFor(audience string, kind PrincipalKind) string {
	if kind == Operator {
		return AdminAudience(audience)
	}
	return audience
}

// IssuerConfig says how an installation signs its tokens.
type IssuerConfig struct {
	Issuer   string             // the installation's URL
	Audience string             // of the tenants' API; operators' is AdminAudience of it
	Key      ed25519.PrivateKey // the signing key
	TTL      time.Duration      // life of a token, at most MaxTokenLife; 0 means that
	Clock    clock.Clock
}

// Issuer signs access tokens. It is safe for concurrent use.
type Issuer struct {
	config IssuerConfig
	keyID  string
}

// NewIssuer fails when the configuration is incomplete or the life too long.
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	if config.TTL == 0 {
		config.TTL = MaxTokenLife
	}
	switch {
	case config.Issuer == "" || config.Audience == "" || config.Clock == nil:
		return nil, errors.New("token issuer needs an issuer, an audience and a clock")
	case len(config.Key) != ed25519.PrivateKeySize:
		return nil, errors.New("token issuer needs an Ed25519 private key")
	case config.TTL < time.Second || config.TTL > MaxTokenLife:
		return nil, fmt.Errorf("token life %s is outside 1s…%s", config.TTL, MaxTokenLife)
	}
	return &Issuer{config: config, keyID: KeyID(config.Key.Public().(ed25519.PublicKey))}, nil
}

// Mint returns a token for the principal and its life.
func (i *Issuer) Mint(p Principal) (Secret, time.Duration, error) {
	now := i.config.Clock.Now()
	scopes := make([]string, len(p.Scopes))
	for n, s := range p.Scopes {
		scopes[n] = string(s)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.config.Issuer,
			Subject:   p.Key.String(),
			Audience:  jwt.ClaimStrings{audienceFor(i.config.Audience, p.Kind)},
			ExpiresAt: jwt.NewNumericDate(now.Add(i.config.TTL)),
			IssuedAt:  jwt.NewNumericDate(now),
			ID:        id.New[id.Request]().String(),
		},
		ClientID: p.Key.String(), Kind: p.Kind, Org: p.Org, Projects: p.Projects,
		Limited: p.Projects != nil, Scope: strings.Join(scopes, " "), Epoch: p.Epoch,
	})
	token.Header["typ"] = tokenType
	token.Header["kid"] = i.keyID
	text, err := token.SignedString(i.config.Key)
	if err != nil {
		return Secret{}, 0, fmt.Errorf("sign an access token: %w", err)
	}
	return NewSecret(text), i.config.TTL, nil
}

// VerifierConfig says which tokens an installation accepts.
type VerifierConfig struct {
	Issuer   string
	Audience string
	// Keys are the accepted signing keys; during a rotation there are two.
	Keys  []ed25519.PublicKey
	Clock clock.Clock
}

// Verifier checks access tokens against keys in memory; a token never makes it
// fetch anything. It is safe for concurrent use.
type Verifier struct {
	config VerifierConfig
	keys   map[string]ed25519.PublicKey
	parser *jwt.Parser
}

// NewVerifier fails when the configuration is incomplete.
func NewVerifier(config VerifierConfig) (*Verifier, error) {
	if config.Issuer == "" || config.Audience == "" || config.Clock == nil || len(config.Keys) == 0 {
		return nil, errors.New("token verifier needs an issuer, an audience, a clock and a key")
	}
	keys := map[string]ed25519.PublicKey{}
	for _, key := range config.Keys {
		if len(key) != ed25519.PublicKeySize {
			return nil, errors.New("token verifier needs Ed25519 public keys")
		}
		keys[KeyID(key)] = key
	}
	return &Verifier{config: config, keys: keys, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithIssuer(config.Issuer),
		jwt.WithAudience(config.Audience, AdminAudience(config.Audience)),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(config.Clock.Now),
		jwt.WithStrictDecoding(),
	)}, nil
}

// Verify returns the principal of a token. It fails with auth.expired for a
// token of ours past its end and with auth.invalid for every other defect. The
// caller still compares Epoch with the key's row.
func (v *Verifier) Verify(text string) (Principal, error) {
	if len(text) > MaxTokenLength {
		return Principal{}, invalidCredential(errors.New("token over 8 KiB"))
	}
	var c claims
	if _, err := v.parser.ParseWithClaims(text, &c, v.key); err != nil {
		if onlyExpired(err) {
			return Principal{}, expiredCredential()
		}
		return Principal{}, invalidCredential(err)
	}
	p, err := v.principal(c)
	if err != nil {
		return Principal{}, invalidCredential(err)
	}
	return p, nil
}

// key picks the verifying key and refuses every header but the three we write.
func (v *Verifier) key(token *jwt.Token) (any, error) {
	for name := range token.Header {
		if name != "alg" && name != "typ" && name != "kid" {
			return nil, fmt.Errorf("token header %q", name)
		}
	}
	if token.Header["typ"] != tokenType {
		return nil, errors.New("token type is not " + tokenType)
	}
	kid, _ := token.Header["kid"].(string)
	key, ok := v.keys[kid]
	if !ok {
		return nil, errors.New("token is signed by an unknown key")
	}
	return key, nil
}

// principal checks what the library does not: that every claim is there, that
// the audience is that of its kind alone, and that nobody signed a longer life.
func (v *Verifier) principal(c claims) (Principal, error) {
	if c.IssuedAt == nil || len(c.Audience) != 1 {
		return Principal{}, errors.New("token lacks iat or has several audiences")
	}
	if c.Audience[0] != audienceFor(v.config.Audience, c.Kind) {
		return Principal{}, errors.New("token is for the other audience")
	}
	if life := c.ExpiresAt.Sub(c.IssuedAt.Time); life <= 0 || life > MaxTokenLife {
		return Principal{}, fmt.Errorf("token life is %s", life)
	}
	key, err := id.Parse[id.Key](c.Subject)
	if err != nil {
		return Principal{}, fmt.Errorf("token subject: %w", err)
	}
	switch {
	case c.Kind == Org && !c.Org.IsZero():
	case c.Kind == Operator && c.Org.IsZero():
	default:
		return Principal{}, errors.New("token kind and organization do not fit")
	}
	p := Principal{Kind: c.Kind, Org: c.Org, Key: key, Epoch: c.Epoch, FromToken: true}
	if c.Limited {
		p.Projects = append([]id.Project{}, c.Projects...)
	}
	for s := range strings.FieldsSeq(c.Scope) {
		p.Scopes = append(p.Scopes, Scope(s))
	}
	return p, nil
}

// onlyExpired reports whether age is the token's only defect.
func onlyExpired(err error) bool {
	if !errors.Is(err, jwt.ErrTokenExpired) {
		return false
	}
	return !slices.ContainsFunc([]error{
		jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenUsedBeforeIssued,
		jwt.ErrTokenNotValidYet, jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenSignatureInvalid,
	}, func(other error) bool { return errors.Is(err, other) })
}

// KeyID returns the RFC 7638 thumbprint of a public key, which names it in token
// headers and in the key set.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + encoded(key) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func encoded(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }

// JWKS returns the key set document (RFC 8037) of the accepted keys, ordered by
// their ids.
func JWKS(keys []ed25519.PublicKey) ([]byte, error) {
	type jwk struct {
		Type      string `json:"kty"`
		Curve     string `json:"crv"`
		X         string `json:"x"`
		KeyID     string `json:"kid"`
		Algorithm string `json:"alg"`
		Use       string `json:"use"`
	}
	byID := map[string]jwk{}
	for _, key := range keys {
		kid := KeyID(key)
		byID[kid] = jwk{"OKP", "Ed25519", encoded(key), kid, jwt.SigningMethodEdDSA.Alg(), "sig"}
	}
	document := struct {
		Keys []jwk `json:"keys"`
	}{Keys: []jwk{}}
	for _, kid := range slices.Sorted(maps.Keys(byID)) {
		document.Keys = append(document.Keys, byID[kid])
	}
	return json.Marshal(document)
}
