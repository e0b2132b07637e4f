package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/internal/store"
)

// settings are the flags of the roles and commands; each command binds those it
// reads.
type settings struct {
	databaseURL      string
	ownerDatabaseURL string
	connections      int32
	listen           string
	metricsListen    string
	gatewayListen    string
	gatewayNames     []string
	temporalAddress  string
	namespace        string
	keyDir           string
	issuer           string
	audience         string
	hanFont          string
	stripeURL        string
	paymentReturnURL string
	dev              bool
	logLevel         slog.Level
}

func (s *settings) bindDatabase(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.databaseURL, "database-url", "", "Postgres as the login role tranche")
	f.Int32Var(&s.connections, "database-connections", 12, "most connections of this process")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "DEBUG, INFO, WARN or ERROR")
}

func (s *settings) bindKeys(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.keyDir, "key-dir", "/var/lib/tranche/keys", "folder of the installation's secrets")
}

func (s *settings) bindRoles(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address of the HTTP API")
	f.StringVar(&s.metricsListen, "metrics-listen", "", "address of /metrics and /livez (none: not served)")
	f.StringVar(&s.gatewayListen, "gateway-listen", "127.0.0.1:8443", "address of the agent streams")
	f.StringSliceVar(&s.gatewayNames, "gateway-names", nil, "further names and addresses in the gateway's certificate")
	f.StringVar(&s.temporalAddress, "temporal-address", "127.0.0.1:7233", "Temporal's frontend")
	f.StringVar(&s.namespace, "temporal-namespace", "tranche", "Temporal namespace, made if missing")
	f.StringVar(&s.issuer, "issuer", "", "URL of this installation in access tokens (none: http://LISTEN)")
	f.StringVar(&s.audience, "audience", "tranche", "audience of access tokens")
	f.StringVar(&s.hanFont, "han-font", "", "TrueType file with Chinese characters for invoices as PDF (none: they print as replacement signs)")
	f.StringVar(&s.stripeURL, "stripe-url", "", "address of Stripe's API (none: Stripe's own); its secrets are "+stripeKeyFile+" and "+stripeWebhookFile+" in --key-dir")
	f.StringVar(&s.paymentReturnURL, "payment-return-url", "", "https address where customers land after confirming a charge")
	f.BoolVar(&s.dev, "dev", false, "development installation: test keys, wide limits, steerable business clock")
}

// logger writes JSON lines to standard error.
func (s *settings) logger(role string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: s.logLevel})).With("role", role)
}

func (s *settings) key(name string) string { return filepath.Join(s.keyDir, name) }

// openStore connects to the database, waiting for one that is away. A database
// that refuses this binary ends the process with its own exit code.
func (s *settings) openStore(ctx context.Context, log *slog.Logger) (*store.Store, error) {
	if s.databaseURL == "" {
		return nil, &exitError{exitUsage, errors.New("--database-url (TRANCHE_DATABASE_URL) is missing")}
	}
	told := false
	for {
		st, err := store.Open(ctx, s.databaseURL, s.connections, log)
		if err == nil {
			return st, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !store.IsAway(err) {
			return nil, &exitError{exitRefuse, fmt.Errorf("open the database: %w", err)}
		}
		if !told {
			log.Warn("the database is away, waiting", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
