package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/temporald"
	"github.com/tranche-cloud/tranche/devstack/internal/temporald/server"
)

// passwordVariable keeps the password out of the command line.
const passwordVariable = "TRANCHE_DEV_TEMPORAL_PASSWORD"

func temporalCommand() *cobra.Command {
	c := temporald.Config{Host: "127.0.0.1"}
	cmd := &cobra.Command{
		Use:    "temporal",
		Short:  "Run the embedded Temporal server (a child of the stack)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if c.Password = os.Getenv(passwordVariable); c.Password == "" {
				return errors.New(passwordVariable + " is not set")
			}
			dsn := func(database string) string {
				u := url.URL{Scheme: "postgres", User: url.UserPassword(c.User, c.Password),
					Host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), Path: "/" + database, RawQuery: "sslmode=disable"}
				return u.String()
			}
			if err := server.Prepare(ctx, dsn(temporald.Database), dsn(temporald.VisibilityDatabase)); err != nil {
				return err
			}
			return server.Run(ctx, c, func() { fmt.Println("serving on", c.Address()) })
		},
	}
	cmd.Flags().IntVar(&c.Port, "postgres-port", 15432, "port of Postgres on 127.0.0.1")
	cmd.Flags().StringVar(&c.User, "user", "temporal", "owner of both databases")
	cmd.Flags().StringVar(&c.Namespace, "namespace", "tranche", "namespace to register")
	cmd.Flags().IntVar(&c.FrontendPort, "port", 17233, "port of the frontend; the next three are taken too")
	cmd.Flags().IntVar(&c.MembershipPort, "membership-port", 16933, "first of four membership ports, below 32765")
	return cmd
}
