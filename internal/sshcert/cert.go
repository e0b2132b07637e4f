package sshcert

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Kind is what a certificate lets its holder do.
type Kind string

// The kinds.
const (
	Shell Kind = "shell" // sessions, files and forwarding
	Logs  Kind = "logs"  // reading the instance's log, nothing else
)

const (
	// MaxLife is the longest life that Sign gives and Verify accepts.
	MaxLife = 10 * time.Minute
	// Backdate is how much earlier than its making a certificate begins, for hosts
	// whose clock is behind.
	Backdate = 30 * time.Second

	logsExtension = "logs@tranche.cloud"
	sourceAddress = "source-address"
	permitPTY     = "permit-pty"
	permitForward = "permit-port-forwarding"
)

// ErrRequest is what Sign fails with, wrapped, for a request that no certificate
// answers.
var ErrRequest = errors.New("no such certificate")

// ErrRefused is what Verify fails with, wrapped. The text is for the operator's log;
// whoever knocks is told nothing.
var ErrRefused = errors.New("certificate refused")

// Request is what a certificate shall say.
type Request struct {
	Key      ssh.PublicKey // of the user
	Instance id.Instance   // the only principal
	Kind     Kind
	Holder   string // who asked, for the audit: an id of the control plane
	Serial   uint64 // for the audit; not zero
	Life     time.Duration
	Source   []netip.Prefix // where the holder must connect from; empty is anywhere
}

// Sign makes a certificate that begins Backdate before the instant and ends Life after
// it. It fails with ErrKey or ErrRequest.
func (a *Authority) Sign(r Request, at time.Time) (*ssh.Certificate, error) {
	if _, isCertificate := r.Key.(*ssh.Certificate); r.Key == nil || isCertificate {
		return nil, fmt.Errorf("%w: a plain public key is needed", ErrKey)
	}
	if err := good(r.Key); err != nil {
		return nil, err
	}
	switch {
	case r.Instance.IsZero():
		return nil, fmt.Errorf("%w: it names no instance", ErrRequest)
	case r.Kind != Shell && r.Kind != Logs:
		return nil, fmt.Errorf("%w: kind %q; there are shell and logs", ErrRequest, r.Kind)
	case r.Life < time.Second || r.Life > MaxLife:
		return nil, fmt.Errorf("%w: a life of %v; from one second to %v", ErrRequest, r.Life, MaxLife)
	case r.Serial == 0 || r.Holder == "" || len(r.Holder) > 128:
		return nil, fmt.Errorf("%w: the audit needs a serial and a holder of at most 128 bytes", ErrRequest)
	}
	cert := &ssh.Certificate{
		Key: r.Key, Serial: r.Serial, CertType: ssh.UserCert, KeyId: r.Holder,
		ValidPrincipals: []string{r.Instance.String()},
		ValidAfter:      uint64(at.Add(-Backdate).Unix()),
		ValidBefore:     uint64(at.Add(r.Life).Unix()),
		Permissions:     ssh.Permissions{CriticalOptions: map[string]string{}, Extensions: map[string]string{logsExtension: ""}},
	}
	if r.Kind == Shell {
		cert.Extensions = map[string]string{permitPTY: "", permitForward: ""}
	}
	if len(r.Source) > 0 {
		cert.CriticalOptions[sourceAddress] = join(r.Source)
	}
	if err := cert.SignCert(rand.Reader, a.signer); err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return cert, nil
}

func join(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.Masked().String()
	}
	return strings.Join(texts, ",")
}

// Grant is what a verified certificate allows.
type Grant struct {
	Kind     Kind
	Holder   string
	Serial   uint64
	Terminal bool // a pseudo-terminal
	Forward  bool // TCP forwarding
}

// Verify judges a certificate for an instance, as presented from an address at an
// instant. The proof that its holder has the key is the SSH handshake's part. It fails
// with ErrRefused.
func Verify(authorities []ssh.PublicKey, cert *ssh.Certificate, instance id.Instance, from netip.Addr, at time.Time) (Grant, error) {
	refuse := func(why string) (Grant, error) { return Grant{}, fmt.Errorf("%w: %s", ErrRefused, why) }
	switch {
	case cert.CertType != ssh.UserCert:
		return refuse("not a user's")
	case !known(authorities, cert.SignatureKey):
		return refuse("of an unknown authority")
	case instance.IsZero() || len(cert.ValidPrincipals) != 1 || cert.ValidPrincipals[0] != instance.String():
		return refuse("for another instance")
	case cert.ValidBefore <= cert.ValidAfter || cert.ValidBefore-cert.ValidAfter > uint64((MaxLife+Backdate)/time.Second):
		return refuse("its life is longer than any that is given")
	}
	if err := good(cert.Key); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if sources, limited := cert.CriticalOptions[sourceAddress]; limited && !within(sources, from) {
		return refuse("from an address that it does not name")
	}
	// Signature, time, and that no critical option is unknown.
	checker := ssh.CertChecker{SupportedCriticalOptions: []string{sourceAddress}, Clock: func() time.Time { return at }}
	if err := checker.CheckCert(instance.String(), cert); err != nil {
		return Grant{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	grant := Grant{Kind: Shell, Holder: cert.KeyId, Serial: cert.Serial}
	_, grant.Terminal = cert.Extensions[permitPTY]
	_, grant.Forward = cert.Extensions[permitForward]
	if _, logs := cert.Extensions[logsExtension]; logs {
		grant.Kind, grant.Terminal, grant.Forward = Logs, false, false
	}
	return grant, nil
}

// known reports whether a key is one of the authorities. Only ed25519 signs here.
func known(authorities []ssh.PublicKey, key ssh.PublicKey) bool {
	if key == nil || key.Type() != ssh.KeyAlgoED25519 {
		return false
	}
	for _, a := range authorities {
		if bytes.Equal(a.Marshal(), key.Marshal()) {
			return true
		}
	}
	return false
}

// within reports whether an address is in a list of addresses and CIDR blocks. What
// cannot be read matches nothing.
func within(list string, from netip.Addr) bool {
	from = from.Unmap()
	for text := range strings.SplitSeq(list, ",") {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(from) {
			return true
		}
		if addr, err := netip.ParseAddr(text); err == nil && addr.Unmap() == from {
			return true
		}
	}
	return false
}
