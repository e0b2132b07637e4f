package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/boundary"
	"github.com/tranche-cloud/tranche/agent/node"
	"github.com/tranche-cloud/tranche/internal/clock"
)

// linkFlags are the flags of link, beside those that it has in common with run.
type linkFlags struct {
	run     runFlags
	helper  string
	audit   string
	metrics string
	policy  string
}

func linkCommand() *cobra.Command {
	var f linkFlags
	cmd := &cobra.Command{
		Use:   "link",
		Short: "Link this host to the control plane, without rights of its own",
		Long: "Link this host to the control plane, without rights of its own.\n\n" +
			"It holds the stream, the certificate, the journal and the spool; what it has to do on the host\n" +
			"it asks of the helper. Run it as an unprivileged user.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.link(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.helper, "helper", "/run/tranche/helper.sock", "socket of the helper")
	flags.StringVar(&f.run.driver.dataDir, "data-dir", "", "folder of the link's state")
	flags.StringVar(&f.audit, "ssh-audit", "", "folder of the SSH gateway's audit records; empty collects none")
	flags.StringVar(&f.metrics, "metrics-listen", "", "host:port for Prometheus, for example 127.0.0.1:8084; empty is none")
	flags.StringVar(&f.policy, "health-policy", "", "file that replaces parts of the Xid policy")
	flags.StringVar(&f.run.name, "name", "", "name of this host (default: the machine's)")
	flags.StringVar(&f.run.gateway, "gateway", "https://127.0.0.1:8443", "address of the gateway")
	flags.StringVar(&f.run.tokenFile, "join-token-file", "", "file with the join token; read while the host is not enrolled")
	return cmd
}

func (f *linkFlags) link(ctx context.Context) (err error) {
	if f.run.driver.dataDir == "" {
		return errors.New("link needs --data-dir, the folder of its state")
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if f.run.name == "" {
		if f.run.name, err = os.Hostname(); err != nil {
			return fmt.Errorf("name of this host: %w", err)
		}
	}
	c, err := boundary.Dial(ctx, f.helper, clock.Real())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	n, err := node.Linked(ctx, c, node.Link{
		Dir: f.run.driver.dataDir, Audit: f.audit, MetricsListen: f.metrics, HealthPolicy: f.policy, Log: log,
	})
	if err != nil {
		return err
	}
	return f.run.keep(ctx, f.run.name, n, log)
}
