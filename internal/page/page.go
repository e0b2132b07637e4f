// Package page owns paging of lists: the size of a page and the opaque token
// that continues one.
//
// A token carries the list's own cursor, sealed so that a caller can neither
// read a promise into it nor use it with another filter, another operation or
// another principal. The package does not know what a cursor holds; each list
// encodes its own keyset.
package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/tranche-cloud/tranche/internal/fault"
)

const (
	// Default is the number of items when the caller asks for none.
	Default = 50
	// Max is the largest number of items a caller may ask for.
	Max = 200

	maxCursor = 512 // bytes of a list's own cursor
	tagSize   = 16  // bytes of the truncated HMAC-SHA256
	version   = 1
)

// Scope is what a token is bound to.
type Scope struct {
	Principal string // who lists, for example auth.Principal.String
	Operation string // the operationId
	Filter    string // the canonical filter, see Filter
}

// Sealer makes and checks page tokens. It is safe for concurrent use.
type Sealer struct{ key []byte }

// NewSealer returns a sealer that uses the key, at least 32 bytes. Every replica
// needs the same one; a changed key only makes open pages start again.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) < 32 {
		return nil, fmt.Errorf("page token key has %d bytes, want at least 32", len(key))
	}
	return &Sealer{key: append([]byte(nil), key...)}, nil
}

// Seal returns the token that continues a list at the cursor. The empty cursor
// (there is no further page) gives the empty token. It fails for a cursor over
// 512 bytes, which is a mistake of the list and not of the caller.
func (s *Sealer) Seal(scope Scope, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	if len(cursor) > maxCursor {
		return "", errors.New("page cursor exceeds 512 bytes")
	}
	body := append([]byte{version}, cursor...)
	return base64.RawURLEncoding.EncodeToString(append(body, s.tag(scope, body)...)), nil
}

// Open returns the cursor of a token; "" for "", the first page. It fails with
// page_token.invalid for a token that this sealer did not make for this scope.
func (s *Sealer) Open(scope Scope, token string) (string, error) {
	if token == "" {
		return "", nil
	}
	// Checked by length first, so that a huge token costs nothing to refuse.
	if len(token) > base64.RawURLEncoding.EncodedLen(1+maxCursor+tagSize) {
		return "", refused()
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < 2+tagSize || raw[0] != version {
		return "", refused()
	}
	body, tag := raw[:len(raw)-tagSize], raw[len(raw)-tagSize:]
	if !hmac.Equal(tag, s.tag(scope, body)) {
		return "", refused()
	}
	return string(body[1:]), nil
}

func (s *Sealer) tag(scope Scope, body []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	// Each part is preceded by its length, so that no two scopes read alike.
	for _, part := range []string{scope.Principal, scope.Operation, scope.Filter} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		mac.Write([]byte(part))
	}
	mac.Write(body)
	return mac.Sum(nil)[:tagSize]
}

func refused() error {
	return fault.New(fault.Invalid, "page_token.invalid",
		"The page token is not valid for this list and these filters.").
		Suggest("Use next_page_token unchanged with the same filters, or start again without page_token.").
		With(fault.Field{Pointer: "page_token", Code: "invalid", Detail: "not a token of this list"})
}

// Filter returns the canonical text of a list's filters: the query parameters
// without page_token and page_size, sorted.
func Filter(query url.Values) string {
	kept := url.Values{}
	for name, values := range query {
		if name != "page_token" && name != "page_size" {
			kept[name] = values
		}
	}
	return kept.Encode()
}

// Size returns the number of items for the requested page size: 50 for 0,
// otherwise the request itself. It fails with request.invalid outside 0…200.
func Size(requested int) (int, error) {
	if requested == 0 {
		return Default, nil
	}
	if requested < 0 || requested > Max {
		return 0, fault.New(fault.Invalid, "request.invalid",
			"page_size must be between 1 and "+strconv.Itoa(Max)+".").
			With(fault.Field{Pointer: "page_size", Code: "range", Detail: "1 to " + strconv.Itoa(Max)})
	}
	return requested, nil
}
