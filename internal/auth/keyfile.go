package auth

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// ReadSigningKey reads an Ed25519 private key from a PEM file (PKCS #8), as
// `openssl genpkey -algorithm ed25519` writes it. It fails when other users of
// the machine may read the file.
func ReadSigningKey(path string) (ed25519.PrivateKey, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s holds no PEM block PRIVATE KEY", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read signing key %s: %w", path, err)
	}
	signing, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key that is not Ed25519", path)
	}
	return signing, nil
}

// EncodeSigningKey returns the PEM text that ReadSigningKey reads.
func EncodeSigningKey(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode signing key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ReadKey reads a symmetric key of at least 32 bytes (key pepper, page token
// key, key-encryption key) written as hex or base64. It fails when other users
// of the machine may read the file.
func ReadKey(path string) ([]byte, error) {
	text, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	trimmed := strings.TrimSpace(string(text))
	key, err := hex.DecodeString(trimmed)
	if err != nil {
		key, err = base64.StdEncoding.DecodeString(trimmed)
	}
	if err != nil {
		return nil, fmt.Errorf("%s holds neither hex nor base64", path)
	}
	if len(key) < 32 {
		return nil, fmt.Errorf("%s holds %d bytes, want at least 32", path, len(key))
	}
	return key, nil
}

func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("key file %s is open to every user (mode %04o): chmod it to 0600", path, info.Mode().Perm())
	}
	return os.ReadFile(path)
}
