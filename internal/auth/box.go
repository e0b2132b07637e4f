package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

const boxVersion = 1

// Box seals secrets for storage (AES-256-GCM) and fingerprints them for display.
// It is safe for concurrent use.
type Box struct {
	kek []byte
	// fingerprints use a key of their own, derived from the same secret.
	fingerprint []byte
}

// NewBox returns a box under the key-encryption key, at least 32 bytes.
func NewBox(kek []byte) (*Box, error) {
	if len(kek) < 32 {
		return nil, fmt.Errorf("key-encryption key has %d bytes, want at least 32", len(kek))
	}
	fingerprint, err := hkdf.Key(sha256.New, kek, nil, "tranche fingerprint", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the fingerprint key: %w", err)
	}
	return &Box{kek: append([]byte(nil), kek...), fingerprint: fingerprint}, nil
}

// Seal encrypts the secret of an owner. The owner (an organization's id) selects
// the data key; the place (for example instance id and variable name) is bound
// to the result, so that a sealed value moved to another row does not open.
func (b *Box) Seal(plain Secret, owner, place string) ([]byte, error) {
	aead, err := b.cipher(owner)
	if err != nil {
		return nil, err
	}
	sealed := make([]byte, 1+aead.NonceSize(), 1+aead.NonceSize()+len(plain.Reveal())+aead.Overhead())
	sealed[0] = boxVersion
	if _, err := io.ReadFull(rand.Reader, sealed[1:]); err != nil {
		return nil, fmt.Errorf("seal a secret: %w", err)
	}
	return aead.Seal(sealed, sealed[1:], []byte(plain.Reveal()), []byte(place)), nil //nolint:gosec // G407: the nonce was read from the system just above
}

// Open decrypts what Seal made for the same owner and place, and fails for
// anything else.
func (b *Box) Open(sealed []byte, owner, place string) (Secret, error) {
	aead, err := b.cipher(owner)
	if err != nil {
		return Secret{}, err
	}
	if len(sealed) < 1+aead.NonceSize() || sealed[0] != boxVersion {
		return Secret{}, errors.New("open a secret: not a sealed value")
	}
	nonce, body := sealed[1:1+aead.NonceSize()], sealed[1+aead.NonceSize():]
	plain, err := aead.Open(nil, nonce, body, []byte(place))
	if err != nil {
		return Secret{}, fmt.Errorf("open a secret: %w", err)
	}
	return NewSecret(string(plain)), nil
}

// Fingerprint returns a short text that tells an owner whether two secrets are
// equal, and nothing else. Equal secrets of two owners differ.
func (b *Box) Fingerprint(plain Secret, owner string) string {
	mac := hmac.New(sha256.New, b.fingerprint)
	fmt.Fprintf(mac, "%d:%s%s", len(owner), owner, plain.Reveal())
	return "fp_" + hex.EncodeToString(mac.Sum(nil)[:8])
}

// cipher derives the owner's data key: one owner's sealed values never share a
// key with another's.
func (b *Box) cipher(owner string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, b.kek, nil, "tranche data key "+owner, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a data key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return cipher.NewGCM(block)
}
