package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/sshgw"
	"github.com/tranche-cloud/tranche/internal/clock"
)

// publicKeyFile holds the gateway's public key for the helper.
const publicKeyFile = "host_key.pub"

// gatewayFlags are the flags of sshgw.
type gatewayFlags struct {
	dir    string
	logs   string
	listen string
}

func sshgwCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "sshgw",
		Short: "Let tenants in by SSH, as an unprivileged process of its own",
		Long: "Let tenants in by SSH, as an unprivileged process of its own.\n\n" +
			"Who may enter is read from DIR/state, which the helper writes. DIR/gateway is the gateway's\n" +
			"own: its host key and the audit records that the link collects.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context()) },
	}
	cmd.Flags().StringVar(&f.dir, "ssh-dir", "", "folder that is shared with the helper")
	cmd.Flags().StringVar(&f.logs, "logs", "", "folder of the instances' log files; empty serves none")
	cmd.Flags().StringVar(&f.listen, "listen", ":2222", "host:port for tenants")
	return cmd
}

func (f *gatewayFlags) serve(ctx context.Context) error {
	if f.dir == "" {
		return errors.New("sshgw needs --ssh-dir, the folder that it shares with the helper")
	}
	own := filepath.Join(f.dir, "gateway")
	if err := os.MkdirAll(own, 0o750); err != nil {
		return fmt.Errorf("make the gateway's folder: %w", err)
	}
	audit, err := sshgw.OpenSpool(filepath.Join(own, "audit"))
	if err != nil {
		return err
	}
	c := clock.Real()
	if err := audit.Recover(c.Now()); err != nil {
		return err
	}
	server, err := sshgw.New(sshgw.Config{
		State: filepath.Join(f.dir, "state"), HostKey: filepath.Join(own, "host_key"), Logs: f.logs, Audit: audit.Add,
		Clock: c, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	public := filepath.Join(own, publicKeyFile)
	if err := os.WriteFile(public, []byte(server.HostKey()+"\n"), 0o644); err != nil { //nolint:gosec // public
		return fmt.Errorf("show the gateway's public key: %w", err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen for SSH on %s: %w", f.listen, err)
	}
	return server.Serve(ctx, l)
}
