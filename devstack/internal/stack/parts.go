package stack

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
	"github.com/tranche-cloud/tranche/devstack/internal/process"
	"github.com/tranche-cloud/tranche/devstack/internal/temporald"
)

func (s *Stack) startPostgres(ctx context.Context) error {
	cluster, err := postgres.Open(ctx, postgres.Config{
		Dir: s.Dir, Port: s.Ports.Postgres, Durable: s.Durable, Log: s.log("postgres"),
	})
	if err != nil {
		return err
	}
	s.Postgres = cluster
	if err := s.run(ctx, cluster.Server()); err != nil {
		return err
	}
	for _, role := range []string{databaseOwner, databaseLogin, temporalOwner} {
		if err := cluster.EnsureRole(ctx, role); err != nil {
			return err
		}
	}
	if err := cluster.Exec(ctx, postgres.Superuser, roles); err != nil {
		return err
	}
	return cluster.EnsureDatabase(ctx, database, databaseOwner)
}

// roles are what the schema takes for granted: the login of the control plane
// takes one of the two others in each transaction.
const roles = `
do $$ begin
  if not exists (select from pg_roles where rolname = 'tranche_org') then create role tranche_org nologin; end if;
  if not exists (select from pg_roles where rolname = 'tranche_system') then create role tranche_system nologin; end if;
end $$;
alter role tranche noinherit;
grant tranche_org, tranche_system to tranche`

func (s *Stack) temporal() temporald.Config {
	return temporald.Config{
		Host: "127.0.0.1", Port: s.Ports.Postgres, User: temporalOwner, Password: s.Postgres.Password(),
		FrontendPort: s.Ports.Temporal, MembershipPort: s.Ports.Membership, Namespace: namespace,
	}
}

func (s *Stack) startTemporal(ctx context.Context) error {
	for _, name := range []string{temporald.Database, temporald.VisibilityDatabase} {
		if err := s.Postgres.EnsureDatabase(ctx, name, temporalOwner); err != nil {
			return err
		}
	}
	c := s.temporal()
	return s.run(ctx, process.Spec{
		Name: "temporal", Path: s.binary("tranche-dev"),
		Args: []string{"temporal",
			"--postgres-port", strconv.Itoa(c.Port), "--user", c.User, "--namespace", c.Namespace,
			"--port", strconv.Itoa(c.FrontendPort), "--membership-port", strconv.Itoa(c.MembershipPort)},
		// Its heap is small and its garbage much: collecting less often saves a
		// fifth of its processor time for 130 MiB.
		Env:   []string{"TRANCHE_DEV_TEMPORAL_PASSWORD=" + c.Password, "GOGC=400"},
		Log:   s.log("temporal"),
		Ready: func(ctx context.Context) error { return temporald.Ping(ctx, c.Address(), c.Namespace) },
	})
}

// WipeTemporal drops the databases of the Temporal server and starts it on empty
// ones, as after the loss of its disk.
func (s *Stack) WipeTemporal(ctx context.Context) error {
	if err := s.end(ctx, "temporal"); err != nil {
		return err
	}
	for _, name := range []string{temporald.Database, temporald.VisibilityDatabase} {
		if err := s.Postgres.DropDatabase(ctx, name); err != nil {
			return err
		}
	}
	return s.startTemporal(ctx)
}

// operatorKey finds the key in what `admin create-operator` prints.
var operatorKey = regexp.MustCompile(`\btrn_op_\w+`)

// migrate brings keys, schema and the first operator.
func (s *Stack) migrate(ctx context.Context) error {
	if _, err := s.Tranched(ctx, "admin", "init-keys"); err != nil {
		return err
	}
	// The roles that the schema names come before it; extensions with it.
	if _, err := s.Tranched(ctx, "migrate"); err != nil {
		return err
	}
	if old, err := readState(s.Dir); err == nil && old.AdminToken != "" {
		s.admin = old.AdminToken
	} else {
		out, err := s.Tranched(ctx, "admin", "create-operator", "--name", "dev")
		if err != nil {
			return err
		}
		if s.admin = operatorKey.FindString(string(out)); s.admin == "" {
			return errors.New("create-operator printed no key")
		}
	}
	// Simulated hosts are few, and every mode has but one or two: organizations
	// share them.
	if err := s.Postgres.Exec(ctx, database, `update pools set tenancy = 'shared'`); err != nil {
		return err
	}
	return state{Ports: s.Ports, AdminToken: s.admin}.write(s.Dir)
}

// Tranched runs a command of tranched to its end and returns what it prints.
func (s *Stack) Tranched(ctx context.Context, args ...string) ([]byte, error) {
	return process.Run(ctx, process.Spec{
		Name: "tranched " + args[0], Path: s.binary("tranched"), Args: args, Env: s.environment(),
	})
}

// Doctor runs the audit program and returns its report and what it says by its
// exit status: nil is clean.
func (s *Stack) Doctor(ctx context.Context, args ...string) ([]byte, error) {
	return s.Tranched(ctx, append([]string{"doctor"}, args...)...)
}

// environment configures tranched. Secrets go this way, not by the command line,
// which everybody on the machine may read.
func (s *Stack) environment() []string {
	return []string{
		"TRANCHE_DATABASE_URL=" + s.Postgres.DSN(databaseLogin, database),
		"TRANCHE_OWNER_DATABASE_URL=" + s.Postgres.DSN(databaseOwner, database),
		"TRANCHE_KEY_DIR=" + filepath.Join(s.Dir, "keys"),
		"TRANCHE_LISTEN=" + address(s.Ports.API),
		"TRANCHE_GATEWAY_LISTEN=" + address(s.Ports.Gateway),
		"TRANCHE_TEMPORAL_ADDRESS=" + s.temporal().Address(),
		"TRANCHE_TEMPORAL_NAMESPACE=" + namespace,
		"TRANCHE_ISSUER=" + s.URL(),
		"TRANCHE_DEV=true",
	}
}

func (s *Stack) startControlPlane(ctx context.Context) error {
	if s.OneProcess {
		return s.startRole(ctx, "all", 0)
	}
	roles, groupCtx := errgroup.WithContext(ctx)
	for i, role := range []string{"api", "worker", "gateway"} {
		roles.Go(func() error { return s.startRole(groupCtx, role, i) })
	}
	return roles.Wait()
}

func (s *Stack) startRole(ctx context.Context, role string, index int) error {
	metrics := address(s.Ports.Metrics + index)
	ready := func(ctx context.Context) error { return dial(ctx, metrics) }
	switch role {
	case "api", "all":
		ready = func(ctx context.Context) error { return get(ctx, s.URL()+"/.well-known/jwks.json") }
	case "gateway":
		ready = func(ctx context.Context) error { return dial(ctx, address(s.Ports.Gateway)) }
	}
	return s.run(ctx, process.Spec{
		Name: role, Path: s.binary("tranched"), Args: []string{role},
		Env: append(s.environment(), "TRANCHE_METRICS_LISTEN="+metrics), Log: s.log(role), Ready: ready,
	})
}

// TemporalAddress is where the embedded Temporal server takes clients.
func (s *Stack) TemporalAddress() string { return s.temporal().Address() }

// TemporalNamespace is the namespace of its workflows.
func (s *Stack) TemporalNamespace() string { return namespace }
