package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
)

// tlsConfig asks for a client certificate and refuses, in the handshake, any that
// is not a host's of this installation. Having none is allowed there: a host that
// enrols has none yet. An expired one passes for as long as it may renew.
func (g *Gateway) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.serverCert() },
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return nil
			}
			_, err := g.authority.VerifyHost(s.PeerCertificates, g.installation, g.clock.Now(), ca.RenewGrace)
			if err != nil {
				g.log.Warn("agent refused", "error", err)
			}
			return err
		},
	}
}

// serverCert is the gateway's certificate, made anew at two thirds of its life.
func (g *Gateway) serverCert() (*tls.Certificate, error) {
	g.certMu.Lock()
	defer g.certMu.Unlock()
	now := g.clock.Now()
	if g.cert != nil && now.Before(g.cert.Leaf.NotAfter.Add(-ca.ServerLife/3)) {
		return g.cert, nil
	}
	cert, err := g.authority.Server(g.names, now)
	if err != nil {
		return nil, fmt.Errorf("make server certificate: %w", err)
	}
	g.cert = cert
	return cert, nil
}

type peerKey struct{}

// peer is who calls: host is nil without a certificate.
type peer struct {
	host *ca.Identity
	addr netip.Addr
}

// identify puts the peer into the context. The certificate is the only source of
// a host's identity; a handler never reads a host id from a message.
func (g *Gateway) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p peer
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			p.addr = at.Addr()
		}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			who, err := g.authority.VerifyHost(r.TLS.PeerCertificates, g.installation, g.clock.Now(), ca.RenewGrace)
			if err != nil {
				http.Error(w, "certificate refused", http.StatusUnauthorized)
				return
			}
			p.host = &who
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, p)))
	})
}

func peerOf(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}
