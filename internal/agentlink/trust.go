package agentlink

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
)

// VerifyPinned is a tls.Config.VerifyConnection for first contact: the server's
// chain must end in the root with this fingerprint and name the dialled server.
// Use it with InsecureSkipVerify, which only turns off the check against roots
// that the agent does not have yet.
func VerifyPinned(trust ca.Fingerprint, at func() time.Time) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		roots, between := x509.NewCertPool(), x509.NewCertPool()
		pinned := false
		for _, c := range s.PeerCertificates {
			if ca.FingerprintOf(c) == trust {
				roots.AddCert(c)
				pinned = true
				continue
			}
			between.AddCert(c)
		}
		if !pinned {
			return errors.New("the gateway does not present the authority that the join token names")
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, DNSName: s.ServerName, CurrentTime: at(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
		if err != nil {
			return fmt.Errorf("verify gateway certificate: %w", err)
		}
		return nil
	}
}

// Request makes a signing request for a key; only the key in it counts.
func Request(key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make signing request: %w", err)
	}
	return der, nil
}

// PublicKeyOf checks the signature of a signing request, which proves that the
// caller holds the key, and returns the key as SubjectPublicKeyInfo. Agents make
// keys of one kind; another, perhaps weak one is refused.
func PublicKeyOf(csrDER []byte) ([]byte, error) {
	csr, err := x509.ParseCertificateRequest(csrDER)
	if err != nil {
		return nil, fmt.Errorf("parse signing request: %w", err)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("check signing request: the key is not ECDSA on P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check signing request: %w", err)
	}
	return csr.RawSubjectPublicKeyInfo, nil
}
