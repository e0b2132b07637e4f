package agentlink

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/id"
)

const (
	tokenBrand  = "trn_join_"
	secretBytes = 32
	// tokenBytes: id, secret, fingerprint of the root, checksum.
	tokenBytes = 16 + secretBytes + 32 + 4
)

var tokenText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// ErrToken is what ParseJoinToken fails with for a text that MintJoinToken would
// not have made.
var ErrToken = errors.New("this is not a join token, or it is not complete")

// JoinToken lets a host ask to join, and tells its agent which gateway to trust.
// It prints as its public part.
type JoinToken struct {
	ID     id.JoinToken
	Trust  ca.Fingerprint
	secret *[secretBytes]byte
}

// MintJoinToken returns a token with a fresh 256-bit secret. It panics if the
// operating system has no randomness.
func MintJoinToken(trust ca.Fingerprint) JoinToken {
	var secret [secretBytes]byte
	if _, err := rand.Read(secret[:]); err != nil {
		panic("agentlink: no randomness: " + err.Error())
	}
	return JoinToken{ID: id.New[id.JoinToken](), Trust: trust, secret: &secret}
}

// Text is the token as it is handed over, trn_join_…; each call of it is a place
// where a secret leaves the program.
func (t JoinToken) Text() string {
	b := make([]byte, 0, tokenBytes)
	b = append(b, t.ID[:]...)
	b = append(b, t.secret[:]...)
	b = append(b, t.Trust[:]...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return tokenBrand + tokenText.EncodeToString(b)
}

// ParseJoinToken reads Text, white space around it ignored. It fails with ErrToken.
func ParseJoinToken(text string) (JoinToken, error) {
	body, ok := strings.CutPrefix(strings.TrimSpace(text), tokenBrand)
	if !ok || len(body) != tokenText.EncodedLen(tokenBytes) {
		return JoinToken{}, ErrToken
	}
	b, err := tokenText.DecodeString(body)
	if err != nil || binary.BigEndian.Uint32(b[tokenBytes-4:]) != crc32.ChecksumIEEE(b[:tokenBytes-4]) {
		return JoinToken{}, ErrToken
	}
	t := JoinToken{secret: new([secretBytes]byte)}
	copy(t.ID[:], b)
	copy(t.secret[:], b[16:])
	copy(t.Trust[:], b[16+secretBytes:])
	if t.Text() != tokenBrand+body {
		return JoinToken{}, ErrToken // a second spelling of the same bits
	}
	return t, nil
}

// Hash is what the database stores: the secret has 256 random bits, so a plain
// hash cannot be guessed back.
func (t JoinToken) Hash() []byte {
	sum := sha256.Sum256(t.secret[:])
	return sum[:]
}

// Matches compares with a stored hash in constant time.
func (t JoinToken) Matches(stored []byte) bool { return hmac.Equal(t.Hash(), stored) }

// Format prints the public part for every verb.
func (t JoinToken) Format(w fmt.State, _ rune) {
	_, _ = io.WriteString(w, tokenBrand+strings.TrimPrefix(t.ID.String(), t.ID.Prefix()+"_"))
}
