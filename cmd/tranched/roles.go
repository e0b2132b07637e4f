package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/api"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/gateway"
	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/group"
	"github.com/tranche-cloud/tranche/internal/page"
	"github.com/tranche-cloud/tranche/workflows"
)

// shutdownWithin is how long requests and streams may take to end.
const shutdownWithin = 10 * time.Second

// process is what the roles of one process share.
type process struct {
	settings *settings
	log      *slog.Logger
	deps     app.Deps
	app      *app.App
	metrics  []http.Handler
	jobs     []group.Job
}

// role adds what it needs to the dependencies (before the use cases are made) and
// returns what starts it (after).
type role func(*process) (start func(context.Context) error, err error)

func roleCommand(name, short string, roles ...role) *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), s, name, roles) },
	}
	s.bindDatabase(cmd)
	s.bindKeys(cmd)
	s.bindRoles(cmd)
	return cmd
}

// run keeps the roles going until ctx ends or one fails for good.
func run(ctx context.Context, s *settings, name string, roles []role) error {
	p := &process{settings: s, log: s.logger(name)}
	st, err := s.openStore(ctx, p.log)
	if err != nil {
		return err
	}
	defer st.Close()
	originals, err := render.NewOriginals(s.hanFont)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("--han-font: %w", err)}
	}
	payments, err := s.paymentProviders()
	if err != nil {
		return err
	}
	p.deps = app.Deps{Store: st, Clock: clock.Real(), Log: p.log, Dev: s.dev, Originals: originals, Payments: payments}
	var starts []func(context.Context) error
	for _, r := range roles {
		start, err := r(p)
		if err != nil {
			return err
		}
		starts = append(starts, start)
	}
	p.app = app.New(p.deps)
	for _, start := range starts {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if s.metricsListen != "" {
		if err := p.serveMetrics(ctx, s.metricsListen); err != nil {
			return err
		}
	}
	p.log.Info("started", "dev", s.dev)
	err = group.Run(ctx, p.jobs...)
	if err == nil || errors.Is(err, context.Canceled) {
		p.log.Info("stopped")
		return nil
	}
	return err
}

func (p *process) job(f group.Job) { p.jobs = append(p.jobs, f) }

// apiRole serves HTTP.
func apiRole(p *process) (func(context.Context) error, error) {
	signing, err := auth.ReadSigningKey(p.settings.key("jwt.key"))
	if err != nil {
		return nil, keyTrouble(err)
	}
	public := []ed25519.PublicKey{signing.Public().(ed25519.PublicKey)}
	pages, err := p.readAPIKeys(signing, public)
	if err != nil {
		return nil, keyTrouble(err)
	}
	return func(ctx context.Context) error {
		config, err := api.ForApp(p.app, pages, public)
		if err != nil {
			return err
		}
		served, err := api.New(config)
		if err != nil {
			return err
		}
		p.metrics = append(p.metrics, served.Metrics())
		return p.serveHTTP(ctx, "api", served.Server(p.settings.listen))
	}, nil
}

// readAPIKeys reads the secrets that only the API uses.
func (p *process) readAPIKeys(signing ed25519.PrivateKey, public []ed25519.PublicKey) (*page.Sealer, error) {
	s := p.settings
	pepper, err := auth.ReadKey(s.key("pepper"))
	if err != nil {
		return nil, err
	}
	if p.deps.Hasher, err = auth.NewHasher(pepper); err != nil {
		return nil, err
	}
	if err := p.openBox(); err != nil {
		return nil, err
	}
	if p.deps.TrustRoot, err = ca.ReadTrust(s.keyDir); err != nil {
		return nil, err
	}
	issuer := s.issuer
	if issuer == "" {
		issuer = "http://" + s.listen
	}
	p.deps.Issuer, err = auth.NewIssuer(auth.IssuerConfig{
		Issuer: issuer, Audience: s.audience, Key: signing, Clock: p.deps.Clock,
	})
	if err != nil {
		return nil, err
	}
	p.deps.Verifier, err = auth.NewVerifier(auth.VerifierConfig{
		Issuer: issuer, Audience: s.audience, Keys: public, Clock: p.deps.Clock,
	})
	if err != nil {
		return nil, err
	}
	pageKey, err := auth.ReadKey(s.key("page"))
	if err != nil {
		return nil, err
	}
	return page.NewSealer(pageKey)
}

// openBox reads the key that secrets are sealed under: the API seals them, a gateway
// opens them for the hosts that need them.
func (p *process) openBox() error {
	if p.deps.Box != nil {
		return nil
	}
	kek, err := auth.ReadKey(p.settings.key("kek"))
	if err != nil {
		return err
	}
	p.deps.Box, err = auth.NewBox(kek)
	return err
}

// workerRole runs workflows, relay and loops.
func workerRole(p *process) (func(context.Context) error, error) {
	return func(context.Context) error {
		w, err := workflows.NewWorker(workflows.Config{
			Address: p.settings.temporalAddress, Namespace: p.settings.namespace, App: p.app, Log: p.log,
		})
		if err != nil {
			return err
		}
		p.metrics = append(p.metrics, workerMetrics(p.app))
		p.job(w.Run)
		return nil
	}, nil
}

// gatewayRole serves agents.
func gatewayRole(p *process) (func(context.Context) error, error) {
	authority, err := ca.Open(p.settings.keyDir)
	if err != nil {
		return nil, keyTrouble(err)
	}
	p.deps.Authority = authority
	if err := p.openBox(); err != nil {
		return nil, keyTrouble(err)
	}
	return func(ctx context.Context) error {
		g, err := gateway.New(ctx, gateway.Config{
			App: p.app, Listen: p.settings.gatewayListen, Names: p.settings.gatewayNames, Log: p.log,
		})
		if err != nil {
			return err
		}
		p.job(g.Run)
		return nil
	}, nil
}

func keyTrouble(err error) error {
	return fmt.Errorf("%w (`tranched admin init-keys` makes what is missing)", err)
}

// serveHTTP listens at once, so that a taken port is known at start, and serves
// until the process ends, requests under way included.
func (p *process) serveHTTP(ctx context.Context, name string, server *http.Server) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", server.Addr)
	if err != nil {
		return fmt.Errorf("listen for %s: %w", name, err)
	}
	p.log.Info("listens", "server", name, "address", listener.Addr().String())
	p.job(func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		select {
		case err := <-served:
			return fmt.Errorf("serve %s: %w", name, err)
		case <-ctx.Done():
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWithin)
		defer cancel()
		if err := server.Shutdown(closing); err != nil {
			p.log.Warn("requests were cut off", "server", name, "error", err)
			_ = server.Close()
		}
		return ctx.Err()
	})
	return nil
}
