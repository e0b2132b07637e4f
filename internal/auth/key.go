package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// Realm is the kind of an API key, readable in its text.
type Realm string

// The realms.
const (
	KeyLive     Realm = "live" // an organization's key
	KeyTest     Realm = "test" // an organization's key of a development installation
	KeyOperator Realm = "op"   // an operator's key
)

const (
	brand       = "trn_"
	secretBytes = 32
	// MaxKeyLength bounds the text of a key; longer input is refused unread.
	MaxKeyLength = 128
)

// lowercase Crockford base32, as in ids.
var base32Text = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Key is an API key with its secret. It prints as its public part.
type Key struct {
	Realm Realm
	ID    id.Key
	// secret is a pointer-held value, so that no printer reaches it.
	secret Secret
}

// MintKey returns a fresh key with a 256-bit random secret. It panics if the
// operating system has no randomness.
func MintKey(realm Realm) Key { return MintKeyAs(realm, id.New[id.Key]()) }

// MintKeyAs is MintKey for an id that exists already.
func MintKeyAs(realm Realm, key id.Key) Key {
	var b [secretBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("auth: no randomness: " + err.Error())
	}
	return Key{Realm: realm, ID: key, secret: NewSecret(base32Text.EncodeToString(b[:]))}
}

// Text returns trn_<realm>_<id>_<secret><checksum>. It is shown once.
func (k Key) Text() Secret {
	body := k.public() + "_" + k.secret.Reveal()
	return NewSecret(body + checksum(body))
}

// String returns the public part, for logs and lists.
func (k Key) String() string { return k.public() }

func (k Key) public() string {
	return brand + string(k.Realm) + "_" + strings.TrimPrefix(k.ID.String(), k.ID.Prefix()+"_")
}

// checksum catches typing errors and cut-off pastes before any lookup. It is no
// secret and proves nothing.
func checksum(body string) string {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc32.ChecksumIEEE([]byte(body)))
	return base32Text.EncodeToString(b[:])
}

// ParseKey reads the text of a key. It fails with auth.invalid for anything that
// Text would not have made, a wrong checksum included; no lookup is needed to
// refuse it.
func ParseKey(text string) (Key, error) {
	if len(text) > MaxKeyLength {
		return Key{}, invalidCredential(nil)
	}
	realm, rest, ok := strings.Cut(strings.TrimPrefix(text, brand), "_")
	public, tail, ok2 := strings.Cut(rest, "_")
	size := base32Text.EncodedLen(secretBytes)
	if !ok || !ok2 || !strings.HasPrefix(text, brand) || len(tail) <= size {
		return Key{}, invalidCredential(nil)
	}
	switch Realm(realm) {
	case KeyLive, KeyTest, KeyOperator:
	default:
		return Key{}, invalidCredential(nil)
	}
	kid, err := id.Parse[id.Key](id.Key{}.Prefix() + "_" + public)
	if err != nil {
		return Key{}, invalidCredential(err)
	}
	raw, err := base32Text.DecodeString(tail[:size])
	if err != nil {
		return Key{}, invalidCredential(fmt.Errorf("read the secret: %w", err))
	}
	key := Key{Realm: Realm(realm), ID: kid, secret: NewSecret(base32Text.EncodeToString(raw))}
	// Comparing the whole text also refuses a second spelling of the same bits.
	if !hmac.Equal([]byte(key.Text().Reveal()), []byte(text)) {
		return Key{}, invalidCredential(nil)
	}
	return key, nil
}

// LooksLikeKey reports whether a bearer credential claims to be an API key; the
// others are access tokens.
func LooksLikeKey(text string) bool { return strings.HasPrefix(text, brand) }

// Hasher makes the keyed hash of a key that the database stores. A stolen
// database without the pepper does not even allow guessing.
type Hasher struct{ pepper []byte }

// NewHasher returns a hasher for the server's pepper, at least 32 bytes.
func NewHasher(pepper []byte) (Hasher, error) {
	if len(pepper) < 32 {
		return Hasher{}, fmt.Errorf("key pepper has %d bytes, want at least 32", len(pepper))
	}
	return Hasher{append([]byte(nil), pepper...)}, nil
}

// Hash returns the 32 bytes to store. The secret has 256 random bits, so a slow
// hash would only slow down ourselves.
func (h Hasher) Hash(k Key) []byte {
	mac := hmac.New(sha256.New, h.pepper)
	mac.Write([]byte(k.Text().Reveal()))
	return mac.Sum(nil)
}

// Matches reports whether the stored hash is that of the key, in constant time.
func (h Hasher) Matches(k Key, stored []byte) bool { return hmac.Equal(h.Hash(k), stored) }

// String keeps the pepper out of logs.
func (h Hasher) String() string { return redacted }

// GoString keeps the pepper out of logs.
func (h Hasher) GoString() string { return redacted }

func invalidCredential(cause error) error {
	return fault.New(fault.Unauthenticated, "auth.invalid", "The credential is not valid.").
		Suggest("Check that the API key or token is complete and belongs to this installation.").Because(cause)
}

func expiredCredential() error {
	return fault.New(fault.Unauthenticated, "auth.expired", "The credential has expired.").
		Suggest("Exchange the API key for a new token, or ask for a new key.")
}

// Missing is the refusal of a request without a credential.
func Missing() error {
	return fault.New(fault.Unauthenticated, "auth.missing", "This operation needs a credential.").
		Suggest("Send the header Authorization: Bearer <API key or access token>.")
}

// Invalid is the refusal of a credential that names no live key.
func Invalid() error { return invalidCredential(nil) }

// Expired is the refusal of a credential past its end.
func Expired() error { return expiredCredential() }
