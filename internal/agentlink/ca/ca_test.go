package ca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/id"
)

const installation = "7b1c3a52"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T) (*ca.Authority, string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, ca.Init(dir, now.AddDate(0, -1, 0)))
	a, err := ca.Open(dir)
	require.NoError(t, err)
	return a, dir
}

func leaf(t *testing.T, a *ca.Authority, h id.Host, at time.Time) ([]*x509.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := agentlink.Request(key)
	require.NoError(t, err)
	spki, err := agentlink.PublicKeyOf(csr)
	require.NoError(t, err)
	issued, err := a.IssueHost(spki, installation, h, at)
	require.NoError(t, err)
	block, _ := pem.Decode(issued.PEM)
	c, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return []*x509.Certificate{c}, spki
}

// A host certificate names its host, lives a day, and is good for nothing else.
func TestHostCertificate(t *testing.T) {
	a, _ := authority(t)
	h := id.New[id.Host]()
	chain, key := leaf(t, a, h, now)
	require.Equal(t, "spiffe://"+installation+"/host/"+h.String(), chain[0].URIs[0].String())
	require.LessOrEqual(t, chain[0].NotAfter.Sub(now), 24*time.Hour)
	who, err := a.VerifyHost(chain, installation, now, 0)
	require.NoError(t, err)
	require.Equal(t, h, who.Host)
	require.Equal(t, key, who.PublicKey)
	_, err = a.VerifyHost(chain, "another", now, 0)
	require.Error(t, err)
	_, err = a.VerifyHost(chain, installation, now.Add(25*time.Hour), 0)
	require.Error(t, err, "expired")
	_, err = a.VerifyHost(chain, installation, now.Add(25*time.Hour), ca.RenewGrace)
	require.NoError(t, err, "expired and within grace")
	_, err = a.VerifyHost(chain, installation, now.Add(24*time.Hour+ca.RenewGrace+time.Second), ca.RenewGrace)
	require.Error(t, err)
	_, err = a.VerifyHost(nil, installation, now, 0)
	require.Error(t, err)
	other, _ := authority(t)
	_, err = other.VerifyHost(chain, installation, now, 0)
	require.Error(t, err, "of another authority")
	server, err := a.Server([]string{"localhost"}, now)
	require.NoError(t, err)
	_, err = a.VerifyHost([]*x509.Certificate{server.Leaf}, installation, now, 0)
	require.Error(t, err, "a gateway is no host")
}

// A signing request proves the key: a broken signature is refused.
func TestRequestProvesTheKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := agentlink.Request(key)
	require.NoError(t, err)
	csr[len(csr)-1] ^= 1
	_, err = agentlink.PublicKeyOf(csr)
	require.Error(t, err)
}

// Files are made once, private, never replaced, and never half.
func TestInit(t *testing.T) {
	a, dir := authority(t)
	require.NoError(t, ca.Init(dir, now), "again")
	b, err := ca.Open(dir)
	require.NoError(t, err)
	require.Equal(t, a.Trust(), b.Trust())
	trust, err := ca.ReadTrust(dir)
	require.NoError(t, err)
	require.Equal(t, a.Trust(), trust)
	for _, f := range []string{"ca.key", "ca-root.key"} {
		info, err := os.Stat(filepath.Join(dir, f))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "ca-root.key")), "the root may be kept elsewhere")
	_, err = ca.Open(dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.key")))
	require.Error(t, ca.Init(dir, now))
}
