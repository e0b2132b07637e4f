package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

func newKeys() (root, issuing *ecdsa.PrivateKey, err error) {
	if root, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make root key: %w", err)
	}
	if issuing, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make issuing key: %w", err)
	}
	return root, issuing, nil
}

// authority is the template of a certificate that may sign others; below is how
// many authorities may follow in a chain.
func authority(name string, at time.Time, life time.Duration, below int) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: at.Add(-skew), NotAfter: at.Add(life),
		BasicConstraintsValid: true, IsCA: true, MaxPathLen: below, MaxPathLenZero: below == 0,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// sign makes a certificate; a nil parent signs itself.
func sign(template, parent *x509.Certificate, pub crypto.PublicKey, by crypto.Signer) (*x509.Certificate, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, by)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// serial is 127 random bits; it panics if the operating system has no randomness.
func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic("ca: no randomness: " + err.Error())
	}
	return n
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func readCert(dir, name string) (*x509.Certificate, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read the agent CA: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s holds no certificate", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return c, nil
}

// write refuses to replace a file.
func write(dir, name string, text []byte) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
