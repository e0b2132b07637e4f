package sshcert_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/sshcert"
)

var (
	now  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	here = netip.MustParseAddr("203.0.113.7")
)

func signer(t require.TestingT) ssh.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return s
}

func authority(t require.TestingT) (*sshcert.Authority, ssh.Signer) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	a, err := sshcert.NewAuthority(key)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return a, s
}

func request(t require.TestingT, instance id.Instance) sshcert.Request {
	return sshcert.Request{
		Key: signer(t).PublicKey(), Instance: instance, Kind: sshcert.Shell, Holder: "key_1", Serial: 7, Life: 5 * time.Minute,
	}
}

func TestACertificateLetsItsHolderIn(t *testing.T) {
	t.Parallel()
	a, ca := authority(t)
	instance := id.New[id.Instance]()
	cert, err := a.Sign(request(t, instance), now)
	require.NoError(t, err)
	grant, err := sshcert.Verify([]ssh.PublicKey{ca.PublicKey()}, cert, instance, here, now)
	require.NoError(t, err)
	require.Equal(t, sshcert.Grant{Kind: sshcert.Shell, Holder: "key_1", Serial: 7, Terminal: true, Forward: true}, grant)

	logs := request(t, instance)
	logs.Kind, logs.Source = sshcert.Logs, []netip.Prefix{netip.MustParsePrefix("203.0.113.9/24")}
	cert, err = a.Sign(logs, now)
	require.NoError(t, err)
	grant, err = sshcert.Verify([]ssh.PublicKey{ca.PublicKey()}, cert, instance, netip.MustParseAddr("::ffff:203.0.113.7"), now)
	require.NoError(t, err)
	require.Equal(t, sshcert.Grant{Kind: sshcert.Logs, Holder: "key_1", Serial: 7}, grant)
}

func TestEveryForgeryIsRefused(t *testing.T) {
	t.Parallel()
	a, ca := authority(t)
	_, other := authority(t)
	instance := id.New[id.Instance]()
	for name, tc := range map[string]struct {
		spoil  func(*ssh.Certificate)
		by     ssh.Signer
		unsign bool // spoil after signing
	}{
		"another instance":      {spoil: func(c *ssh.Certificate) { c.ValidPrincipals = []string{id.New[id.Instance]().String()} }},
		"every instance":        {spoil: func(c *ssh.Certificate) { c.ValidPrincipals = nil }},
		"two instances":         {spoil: func(c *ssh.Certificate) { c.ValidPrincipals = append(c.ValidPrincipals, "root") }},
		"a host's":              {spoil: func(c *ssh.Certificate) { c.CertType = ssh.HostCert }},
		"no type":               {spoil: func(c *ssh.Certificate) { c.CertType = 0 }},
		"expired":               {spoil: func(c *ssh.Certificate) { c.ValidAfter -= 600; c.ValidBefore -= 600 }},
		"expires now":           {spoil: func(c *ssh.Certificate) { c.ValidBefore = uint64(now.Unix()) }},
		"of the future":         {spoil: func(c *ssh.Certificate) { c.ValidAfter = uint64(now.Unix()) + 1 }},
		"too long":              {spoil: func(c *ssh.Certificate) { c.ValidBefore = c.ValidAfter + 631 }},
		"for ever":              {spoil: func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity }},
		"since for ever":        {spoil: func(c *ssh.Certificate) { c.ValidAfter = 0 }},
		"back to front":         {spoil: func(c *ssh.Certificate) { c.ValidAfter, c.ValidBefore = math.MaxUint64-5, 300 }},
		"unknown option":        {spoil: func(c *ssh.Certificate) { c.CriticalOptions["verify-required"] = "" }},
		"forced command":        {spoil: func(c *ssh.Certificate) { c.CriticalOptions["force-command"] = "true" }},
		"another address":       {spoil: func(c *ssh.Certificate) { c.CriticalOptions["source-address"] = "198.51.100.0/24,::1" }},
		"an unreadable address": {spoil: func(c *ssh.Certificate) { c.CriticalOptions["source-address"] = "everywhere" }},
		"no address":            {spoil: func(c *ssh.Certificate) { c.CriticalOptions["source-address"] = "" }},
		"another authority":     {by: other, spoil: func(*ssh.Certificate) {}},
		"its own authority":     {by: other, unsign: true, spoil: func(c *ssh.Certificate) { c.SignatureKey = ca.PublicKey() }},
		"changed serial":        {unsign: true, spoil: func(c *ssh.Certificate) { c.Serial++ }},
		"changed extension":     {unsign: true, spoil: func(c *ssh.Certificate) { c.Extensions["permit-x"] = "" }},
		"changed key":           {unsign: true, spoil: func(c *ssh.Certificate) { c.Key = other.PublicKey() }},
		"no authority":          {unsign: true, spoil: func(c *ssh.Certificate) { c.SignatureKey = nil }},
	} {
		cert, err := a.Sign(request(t, instance), now)
		require.NoError(t, err)
		if !tc.unsign {
			tc.spoil(cert)
		}
		by := ca
		if tc.by != nil {
			by = tc.by
		}
		require.NoError(t, cert.SignCert(rand.Reader, by))
		if tc.unsign {
			tc.spoil(cert)
		}
		_, err = sshcert.Verify([]ssh.PublicKey{ca.PublicKey()}, cert, instance, here, now)
		require.ErrorIs(t, err, sshcert.ErrRefused, name)
	}
	cert, err := a.Sign(request(t, instance), now)
	require.NoError(t, err)
	_, err = sshcert.Verify(nil, cert, instance, here, now)
	require.ErrorIs(t, err, sshcert.ErrRefused, "nobody is trusted")
	_, err = sshcert.Verify([]ssh.PublicKey{ca.PublicKey()}, cert, id.Instance{}, here, now)
	require.ErrorIs(t, err, sshcert.ErrRefused, "no instance")
}

func TestAnAuthorityOfAnotherKindIsNotTrusted(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	weak, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	a, _ := authority(t)
	instance := id.New[id.Instance]()
	cert, err := a.Sign(request(t, instance), now)
	require.NoError(t, err)
	require.NoError(t, cert.SignCert(rand.Reader, weak))
	_, err = sshcert.Verify([]ssh.PublicKey{weak.PublicKey()}, cert, instance, here, now)
	require.ErrorIs(t, err, sshcert.ErrRefused)
}

func TestACertificateHoldsExactlyInItsTime(t *testing.T) {
	t.Parallel()
	a, ca := authority(t)
	instance := id.New[id.Instance]()
	wanted := request(t, instance)
	rapid.Check(t, func(t *rapid.T) {
		wanted.Life = time.Duration(rapid.Int64Range(1, 600).Draw(t, "life")) * time.Second
		at := now.Add(time.Duration(rapid.Int64Range(-1200, 1200).Draw(t, "at")) * time.Second)
		cert, err := a.Sign(wanted, now)
		require.NoError(t, err)
		_, err = sshcert.Verify([]ssh.PublicKey{ca.PublicKey()}, cert, instance, here, at)
		valid := !at.Before(now.Add(-sshcert.Backdate)) && at.Before(now.Add(wanted.Life))
		require.Equal(t, valid, err == nil, "%v", err)
	})
}

func TestWhatNoCertificateAnswers(t *testing.T) {
	t.Parallel()
	a, _ := authority(t)
	instance := id.New[id.Instance]()
	good, err := a.Sign(request(t, instance), now)
	require.NoError(t, err)
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	shortKey, err := ssh.NewPublicKey(short.Public())
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		spoil func(*sshcert.Request)
		want  error
	}{
		"no instance":         {func(r *sshcert.Request) { r.Instance = id.Instance{} }, sshcert.ErrRequest},
		"no kind":             {func(r *sshcert.Request) { r.Kind = "" }, sshcert.ErrRequest},
		"no life":             {func(r *sshcert.Request) { r.Life = 0 }, sshcert.ErrRequest},
		"a long life":         {func(r *sshcert.Request) { r.Life = sshcert.MaxLife + 1 }, sshcert.ErrRequest},
		"no serial":           {func(r *sshcert.Request) { r.Serial = 0 }, sshcert.ErrRequest},
		"nobody":              {func(r *sshcert.Request) { r.Holder = "" }, sshcert.ErrRequest},
		"no key":              {func(r *sshcert.Request) { r.Key = nil }, sshcert.ErrKey},
		"a certificate":       {func(r *sshcert.Request) { r.Key = good }, sshcert.ErrKey},
		"an RSA key of 2,048": {func(r *sshcert.Request) { r.Key = shortKey }, sshcert.ErrKey},
	} {
		wanted := request(t, instance)
		tc.spoil(&wanted)
		_, err := a.Sign(wanted, now)
		require.ErrorIs(t, err, tc.want, name)
	}
}

func TestKeysAreReadAndJudged(t *testing.T) {
	t.Parallel()
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer(t).PublicKey())))
	key, err := sshcert.ParseKey("  " + line + " me@laptop\n")
	require.NoError(t, err)
	require.Equal(t, line+" me@laptop", key.Line())
	require.True(t, strings.HasPrefix(key.Fingerprint(), "SHA256:"))

	curve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	curveKey, err := ssh.NewPublicKey(curve.Public())
	require.NoError(t, err)
	_, err = sshcert.ParseKey(string(ssh.MarshalAuthorizedKey(curveKey)))
	require.NoError(t, err)

	a, _ := authority(t)
	cert, err := a.Sign(request(t, id.New[id.Instance]()), now)
	require.NoError(t, err)
	for name, text := range map[string]string{
		"empty":            "",
		"a comment":        "# none",
		"no key":           "ssh-ed25519 AAAA",
		"two lines":        line + "\n" + line,
		"an option":        "restrict " + line,
		"a forced command": `command="true" ` + line,
		"a certificate":    string(ssh.MarshalAuthorizedKey(cert)),
		"a private key":    "-----BEGIN OPENSSH PRIVATE KEY-----",
	} {
		_, err := sshcert.ParseKey(text)
		require.ErrorIs(t, err, sshcert.ErrKey, name)
	}
}

func TestOpenSSHReadsTheCertificate(t *testing.T) {
	t.Parallel()
	a, _ := authority(t)
	instance := id.New[id.Instance]()
	cert, err := a.Sign(request(t, instance), now)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "id-cert.pub")
	require.NoError(t, os.WriteFile(path, ssh.MarshalAuthorizedKey(cert), 0o600))
	shown, err := exec.CommandContext(t.Context(), "ssh-keygen", "-L", "-f", path).CombinedOutput()
	require.NoError(t, err, string(shown))
	for _, want := range []string{"user certificate", instance.String(), `Key ID: "key_1"`, "Serial: 7", "permit-pty", "permit-port-forwarding"} {
		require.Contains(t, string(shown), want)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJsmBHPCzsyPHWbtE0nT7VQnyTtuKuJmYmsYlrFFTYB1 me")
	f.Add(`from="x" ssh-rsa AAAA`)
	f.Fuzz(func(t *testing.T, line string) {
		key, err := sshcert.ParseKey(line)
		if err != nil {
			require.ErrorIs(t, err, sshcert.ErrKey)
			return
		}
		again, err := sshcert.ParseKey(key.Line())
		require.NoError(t, err)
		require.Equal(t, key.Fingerprint(), again.Fingerprint())
	})
}
