// Package ca owns the certificate authority of the agent link: a root that may
// be kept offline, an issuing key on the gateway, certificates of hosts (at most
// 24 hours, named by a spiffe URI) and of the gateway itself.
//
// It does not own approval or revocation: internal/app decides who gets a
// certificate, and the host row says who lost it. Instants are machine time and
// arguments; nothing here reads a clock. Standard library only.
package ca

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Lifetimes. A host renews at two thirds of its certificate's life; an expired
// one may still ask for renewal, and nothing else, for RenewGrace.
const (
	HostLife   = 24 * time.Hour
	ServerLife = 30 * 24 * time.Hour
	RenewGrace = 14 * 24 * time.Hour

	rootLife    = 20 * 365 * 24 * time.Hour
	issuingLife = 5 * 365 * 24 * time.Hour
	// skew is how far a peer's clock may be behind ours.
	skew = 5 * time.Minute
)

// The files of an authority's folder. ca-root.key may be moved offline.
const (
	rootCertFile    = "ca-root.pem"
	rootKeyFile     = "ca-root.key"
	issuingCertFile = "ca.pem"
	issuingKeyFile  = "ca.key"
)

// Fingerprint is the SHA-256 of the root certificate (DER). A join token carries
// it, so that an agent trusts the right gateway at first contact.
type Fingerprint [sha256.Size]byte

// String is lower-case hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// IsZero reports whether there is none.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// FingerprintOf is the fingerprint of one certificate.
func FingerprintOf(c *x509.Certificate) Fingerprint { return sha256.Sum256(c.Raw) }

// Init creates root and issuing key in dir, mode 0600, unless they exist. It
// fails if only a part of the issuing files is there: it never replaces a key.
func Init(dir string, at time.Time) error {
	found := 0
	for _, f := range []string{rootCertFile, issuingCertFile, issuingKeyFile} {
		if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
			found++
		}
	}
	switch found {
	case 3:
		return nil
	case 0:
		return create(dir, at)
	}
	return fmt.Errorf("the agent CA in %s is incomplete: restore its files, or remove all of them to make a new one", dir)
}

func create(dir string, at time.Time) error {
	rootKey, err := newKey()
	if err != nil {
		return err
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	root, err := sign(authority("Tranche agent root", at, rootLife, 1), nil, rootKey.Public(), rootKey)
	if err != nil {
		return err
	}
	issuing, err := sign(authority("Tranche agent issuing", at, issuingLife, 0), root, key.Public(), rootKey)
	if err != nil {
		return err
	}
	return errors.Join(
		writeKey(dir, rootKeyFile, rootKey), writeKey(dir, issuingKeyFile, key),
		write(dir, rootCertFile, encode(root)), write(dir, issuingCertFile, encode(issuing)),
	)
}

// ReadTrust returns the fingerprint of the root in dir.
func ReadTrust(dir string) (Fingerprint, error) {
	root, err := readCert(dir, rootCertFile)
	if err != nil {
		return Fingerprint{}, err
	}
	return FingerprintOf(root), nil
}

// Authority issues certificates. It is safe for concurrent use.
type Authority struct {
	root, issuing *x509.Certificate
	key           crypto.Signer
	roots         *x509.CertPool
	between       *x509.CertPool
}

// Open reads the issuing key and both certificates of dir.
func Open(dir string) (*Authority, error) {
	root, err := readCert(dir, rootCertFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, issuingCertFile), filepath.Join(dir, issuingKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read the issuing key: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the issuing key cannot sign")
	}
	a := &Authority{root: root, issuing: pair.Leaf, key: key, roots: x509.NewCertPool(), between: x509.NewCertPool()}
	a.roots.AddCert(root)
	a.between.AddCert(pair.Leaf)
	return a, nil
}

// Trust is the fingerprint of the root.
func (a *Authority) Trust() Fingerprint { return FingerprintOf(a.root) }

// Bundle is what agents trust, as PEM.
func (a *Authority) Bundle() []byte { return encode(a.root) }

// Issued is a fresh host certificate with its chain.
type Issued struct {
	PEM      []byte // leaf, then issuing
	Serial   string
	NotAfter time.Time
}

// IssueHost certifies a public key (SubjectPublicKeyInfo) as a host's, from at
// for HostLife. Nothing but the key is taken from the request.
func (a *Authority) IssueHost(publicKey []byte, installation string, host id.Host, at time.Time) (Issued, error) {
	pub, err := x509.ParsePKIXPublicKey(publicKey)
	if err != nil {
		return Issued{}, fmt.Errorf("parse public key: %w", err)
	}
	name := &url.URL{Scheme: "spiffe", Host: installation, Path: "/host/" + host.String()}
	leaf, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: host.String()}, URIs: []*url.URL{name},
		NotBefore: at.Add(-skew), NotAfter: at.Add(HostLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.issuing, pub, a.key)
	if err != nil {
		return Issued{}, err
	}
	return Issued{PEM: append(encode(leaf), encode(a.issuing)...), Serial: leaf.SerialNumber.Text(16), NotAfter: leaf.NotAfter}, nil
}

// Server makes a fresh key and certificate for the gateway under the given DNS
// names and addresses. The chain includes the root, for agents that know only
// its fingerprint.
func (a *Authority) Server(names []string, at time.Time) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "tranche gateway"},
		NotBefore: at.Add(-skew), NotAfter: at.Add(ServerLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, n)
	}
	leaf, err := sign(template, a.issuing, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw, a.issuing.Raw, a.root.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// Identity is who a verified client certificate says the peer is.
type Identity struct {
	Host      id.Host
	NotAfter  time.Time
	PublicKey []byte // SubjectPublicKeyInfo
}

// VerifyHost checks a client's chain at the given instant and returns whose it
// is. A certificate past its end passes up to grace later. It fails for another
// root, another installation, another purpose.
func (a *Authority) VerifyHost(chain []*x509.Certificate, installation string, at time.Time, grace time.Duration) (Identity, error) {
	if len(chain) == 0 {
		return Identity{}, errors.New("no client certificate")
	}
	leaf := chain[0]
	if at.After(leaf.NotAfter) && !at.After(leaf.NotAfter.Add(grace)) {
		at = leaf.NotAfter
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: a.roots, Intermediates: a.between, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Identity{}, fmt.Errorf("verify client certificate: %w", err)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" || leaf.URIs[0].Host != installation {
		return Identity{}, errors.New("the client certificate names no host of this installation")
	}
	host, err := id.Parse[id.Host](strings.TrimPrefix(leaf.URIs[0].Path, "/host/"))
	return Identity{host, leaf.NotAfter, leaf.RawSubjectPublicKeyInfo}, err
}
