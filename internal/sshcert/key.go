// Package sshcert owns short-lived SSH user certificates: the control plane signs one
// for a user and an instance, and the SSH gateway of the host verifies it without
// asking anybody. It also says which user keys are good enough, for both ends.
//
// It does not decide who may enter an instance (the caller of Sign did), and keeps no
// list: a certificate ends by its time. Times are whole seconds, as in the format
// (OpenSSH, PROTOCOL.certkeys).
package sshcert

import (
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"
)

// MinRSABits is the shortest RSA key that is accepted of a user.
const MinRSABits = 3072

// ErrKey is what ParseKey and Sign fail with, wrapped, for a key that nobody may use;
// the text says what to do instead.
var ErrKey = errors.New("unusable SSH key")

// ErrAuthority is what NewAuthority fails with, wrapped, for a key that cannot sign.
var ErrAuthority = errors.New("unusable key of the SSH authority")

// Key is a user's public key.
type Key struct {
	ssh.PublicKey
	Comment string
}

// Line returns the key in the form of authorized_keys, without options.
func (k Key) Line() string {
	line := strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(k.PublicKey)), "\n")
	if k.Comment == "" {
		return line
	}
	return line + " " + k.Comment
}

// Fingerprint returns SHA256:… as ssh-keygen shows it.
func (k Key) Fingerprint() string { return ssh.FingerprintSHA256(k.PublicKey) }

// ParseKey reads one line of the authorized_keys form. Options in front of the key are
// refused rather than ignored, for they are meant to take power away. It fails with
// ErrKey.
func ParseKey(line string) (Key, error) {
	line = strings.TrimSpace(line)
	if strings.ContainsAny(line, "\r\n\x00") {
		return Key{}, fmt.Errorf("%w: more than one line", ErrKey)
	}
	key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	switch {
	case err != nil:
		return Key{}, fmt.Errorf("%w: not a line of the form \"ssh-ed25519 AAAA… comment\", as in ~/.ssh/id_ed25519.pub", ErrKey)
	case len(options) > 0:
		return Key{}, fmt.Errorf("%w: options such as %q are not offered: give the key alone", ErrKey, options[0])
	}
	if err := good(key); err != nil {
		return Key{}, err
	}
	return Key{PublicKey: key, Comment: comment}, nil
}

// good judges a user's key by kind and length.
func good(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
		ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521:
		return nil
	case ssh.KeyAlgoRSA:
		if holder, ok := key.(ssh.CryptoPublicKey); ok {
			if long, ok := holder.CryptoPublicKey().(*rsa.PublicKey); ok && long.N.BitLen() >= MinRSABits {
				return nil
			}
		}
		return fmt.Errorf("%w: an RSA key needs %d bits: make one with ssh-keygen -t ed25519", ErrKey, MinRSABits)
	}
	return fmt.Errorf("%w: kind %s is not accepted: make one with ssh-keygen -t ed25519", ErrKey, key.Type())
}

// Authority signs certificates. Its key is ed25519.
type Authority struct{ signer ssh.Signer }

// NewAuthority makes an authority from its private key.
func NewAuthority(key ed25519.PrivateKey) (*Authority, error) {
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuthority, err)
	}
	return &Authority{signer: signer}, nil
}

// Public returns the line by which gateways know the authority.
func (a *Authority) Public() string { return Key{PublicKey: a.signer.PublicKey()}.Line() }
