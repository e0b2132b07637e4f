// Package id owns the identifiers of the product: a UUIDv7 in the database, a
// typed TypeID text such as inst_01h45… at every edge. Each noun has a Go type
// of its own, so a host id cannot be passed where an instance id is wanted.
//
// It does not own offer slugs (offers are named by people) nor secrets: an id is
// never proof of anything.
package id

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// kind names the noun of an id by its prefix.
type kind interface{ prefix() string }

// ID is the identifier of one noun. The zero value means "none".
type ID[K kind] [16]byte

// ErrMalformed is what Parse fails with, wrapped, for any text that is not an
// id of the wanted noun.
var ErrMalformed = errors.New("malformed id")

// New returns a fresh UUIDv7 id: 48 bits of Unix milliseconds, 74 random bits
// (RFC 9562 §5.7). It panics if the operating system has no randomness.
func New[I ~[16]byte]() I { return At[I](time.Now()) }

// At returns a fresh id whose leading 48 bits are at, in Unix milliseconds.
func At[I ~[16]byte](at time.Time) I {
	var b [16]byte
	if _, err := rand.Read(b[6:]); err != nil {
		panic("id: no randomness: " + err.Error())
	}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli())<<16)
	copy(b[:6], ms[:6])
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return I(b)
}

// IsZero reports whether the id is absent.
func (v ID[K]) IsZero() bool { return v == ID[K]{} }

// UUID returns the database form.
func (v ID[K]) UUID() [16]byte { return v }

// Prefix returns the noun's prefix without the underscore, for example inst.
func (v ID[K]) Prefix() string { var k K; return k.prefix() }

// String returns the TypeID text, prefix_26 characters; "" for the zero id.
func (v ID[K]) String() string {
	if v.IsZero() {
		return ""
	}
	return v.Prefix() + "_" + encode(v)
}

// MarshalText is String as bytes.
func (v ID[K]) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText accepts what String makes, "" included. It fails with
// ErrMalformed for anything else.
func (v *ID[K]) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*v = ID[K]{}
		return nil
	}
	var k K
	body, ok := strings.CutPrefix(string(text), k.prefix()+"_")
	if !ok {
		return fmt.Errorf("%w: want the prefix %s_", ErrMalformed, k.prefix())
	}
	b, err := decode(body)
	if err != nil {
		return err
	}
	if b == ([16]byte{}) {
		// Zero means "none" to everyone here, so nobody may name it.
		return fmt.Errorf("%w: zero", ErrMalformed)
	}
	*v = b
	return nil
}

// Parse reads one id of the wanted noun. It fails with ErrMalformed for "" and
// for any text that String would not have made.
func Parse[I interface {
	~[16]byte
}, P interface {
	*I
	UnmarshalText([]byte) error
}](text string) (I, error) {
	var v I
	if text == "" {
		return v, fmt.Errorf("%w: empty", ErrMalformed)
	}
	return v, P(&v).UnmarshalText([]byte(text))
}

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// encode writes 128 bits as 26 base32 characters, the first carrying 3 bits.
func encode(b [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var out [26]byte
	for i := 25; i >= 0; i-- {
		out[i] = alphabet[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}

func decode(s string) ([16]byte, error) {
	var b [16]byte
	if len(s) != 26 || s[0] > '7' {
		return b, fmt.Errorf("%w: want 26 base32 characters of at most 128 bits", ErrMalformed)
	}
	var hi, lo uint64
	for i := range len(s) {
		d := strings.IndexByte(alphabet, s[i])
		if d < 0 {
			return b, fmt.Errorf("%w: character %d is not base32", ErrMalformed, i+1)
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(d)
	}
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return b, nil
}
