package nodeagent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1/agentv1connect"
	"github.com/tranche-cloud/tranche/nodeagent/durable"
)

// The files of an identity, in the data folder.
const (
	identityDir = "identity"
	keyFile     = "key.pem"
	certFile    = "cert.pem"
	bundleFile  = "bundle.pem"
)

const (
	pingAfter   = 20 * time.Second
	pingWithin  = 20 * time.Second
	dialWithin  = 10 * time.Second
	shakeWithin = 30 * time.Second
	unaryWithin = 20 * time.Second
	maxFrame    = 8 << 20
)

// identity is the host's key and, once it is approved, its certificate.
type identity struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *tls.Certificate // nil until approved
	pool *x509.CertPool
}

// openIdentity reads the identity, making a key if there is none.
func openIdentity(dir string) (*identity, error) {
	id := &identity{dir: filepath.Join(dir, identityDir)}
	if err := os.MkdirAll(id.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make identity folder: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(id.dir, keyFile))
	if errors.Is(err, os.ErrNotExist) {
		text, err = newKey()
		if err == nil {
			err = id.write(keyFile, text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open identity: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("open identity: key.pem holds no key")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("open identity: %w", err)
	}
	var ok bool
	if id.key, ok = key.(*ecdsa.PrivateKey); !ok {
		return nil, errors.New("open identity: key.pem is not an ECDSA key")
	}
	return id, id.load()
}

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

// load reads certificate and bundle, if they are there.
func (id *identity) load() error {
	chain, err := os.ReadFile(filepath.Join(id.dir, certFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open identity: %w", err)
	}
	bundle, err := os.ReadFile(filepath.Join(id.dir, bundleFile))
	if err != nil {
		return fmt.Errorf("open identity: %w", err)
	}
	return id.use(chain, bundle)
}

func (id *identity) use(chain, bundle []byte) error {
	cert := &tls.Certificate{PrivateKey: id.key}
	for rest := chain; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert.Certificate = append(cert.Certificate, block.Bytes)
	}
	if len(cert.Certificate) == 0 {
		return errors.New("the certificate is empty")
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return fmt.Errorf("parse certificate: %w", err)
	}
	if !id.key.PublicKey.Equal(leaf.PublicKey) {
		return errors.New("the certificate is for another key")
	}
	cert.Leaf = leaf
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return errors.New("the trust bundle is empty")
	}
	id.cert, id.pool = cert, pool
	return nil
}

// keep stores a new certificate and its bundle, the bundle first.
func (id *identity) keep(chain, bundle []byte) error {
	if err := id.use(chain, bundle); err != nil {
		return err
	}
	if err := id.write(bundleFile, bundle); err != nil {
		return err
	}
	return id.write(certFile, chain)
}

// write replaces a file as a whole, mode 0600.
func (id *identity) write(name string, text []byte) error {
	if err := durable.Replace(filepath.Join(id.dir, name), text); err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}

// renewIn is how long from now until renewal is due: at two thirds of the
// certificate's life, up to a twentieth of it earlier.
func (id *identity) renewIn(now time.Time) time.Duration {
	life := id.cert.Leaf.NotAfter.Sub(id.cert.Leaf.NotBefore)
	return id.cert.Leaf.NotBefore.Add(life*2/3 - randomBelow(life/20)).Sub(now)
}

// client dials with the host's certificate.
func (id *identity) client(now func() time.Time) *http.Client {
	cert := id.cert
	return newClient(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: id.pool, Time: now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
	})
}

func newClient(cfg *tls.Config) *http.Client {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialWithin}).DialContext,
		TLSClientConfig:     cfg,
		TLSHandshakeTimeout: shakeWithin,
		Protocols:           new(http.Protocols),
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}
	transport.Protocols.SetHTTP2(true)
	return &http.Client{Transport: transport}
}

// askAgain bounds the wait between two joins that were refused.
const askAgain = 30 * time.Second

// enrol asks to join until an operator has approved the host. Only a fault of this
// machine is an error; a refusal may pass when the token file is replaced.
func (a *Agent) enrol(ctx context.Context) error {
	csr, err := requestFor(a.id)
	if err != nil {
		return err
	}
	for try := 0; a.id.cert == nil; try++ {
		wait := backoff(try)
		m, err := a.join(ctx, csr)
		switch {
		case err != nil:
			a.log.Warn("join failed", "error", err)
		case m.GetOutcome() == agentv1.JoinResponse_OUTCOME_APPROVED:
			a.log.Info("joined", "host_id", m.GetHostId())
			return a.id.keep(m.GetCertificatePem(), m.GetTrustBundlePem())
		case m.GetOutcome() == agentv1.JoinResponse_OUTCOME_PENDING:
			a.log.Info("waiting for approval", "host_id", m.GetHostId())
			try, wait = 0, time.Duration(max(1, m.GetRetryAfterS()))*time.Second
		default:
			a.log.Error("join refused", "reason", m.GetReason())
			wait = min(wait*4, askAgain)
		}
		if !a.pause(ctx, wait) {
			return ctx.Err()
		}
	}
	return nil
}

func (a *Agent) join(ctx context.Context, csr []byte) (*agentv1.JoinResponse, error) {
	text, err := a.cfg.Token()
	if err != nil {
		return nil, err
	}
	token, err := agentlink.ParseJoinToken(text)
	if err != nil {
		return nil, err
	}
	client := newClient(&tls.Config{
		MinVersion: tls.VersionTLS13, Time: a.cfg.Clock.Now,
		// The roots are not known yet: VerifyPinned checks the chain instead.
		InsecureSkipVerify: true, //nolint:gosec // replaced, not skipped
		VerifyConnection:   agentlink.VerifyPinned(token.Trust, a.cfg.Clock.Now),
	})
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, unaryWithin)
	defer cancel()
	r, err := agentv1connect.NewEnrolServiceClient(client, a.cfg.Gateway).Join(ctx, connect.NewRequest(&agentv1.JoinRequest{
		Token: text, CsrDer: csr, HostName: a.cfg.Name, MachineId: a.cfg.MachineID, AgentVersion: a.cfg.Version,
	}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// renew replaces the certificate, which may have expired.
func (a *Agent) renew(ctx context.Context) error {
	client := a.id.client(a.cfg.Clock.Now)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, unaryWithin)
	defer cancel()
	r, err := agentv1connect.NewEnrolServiceClient(client, a.cfg.Gateway).Renew(ctx, connect.NewRequest(&agentv1.RenewRequest{}))
	if err != nil {
		return fmt.Errorf("renew certificate: %w", err)
	}
	return a.id.keep(r.Msg.GetCertificatePem(), r.Msg.GetTrustBundlePem())
}

func requestFor(id *identity) ([]byte, error) { return agentlink.Request(id.key) }
