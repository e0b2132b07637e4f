package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
	"github.com/tranche-cloud/tranche/migrations"
)

// maxClockSkew is how far a process may differ from the database before it
// refuses work (10-domain §5).
const maxClockSkew = 5 * time.Second

// Store is a pool of connections of the application's login role.
type Store struct {
	pool   *pgxpool.Pool
	notify *notifier
	log    *slog.Logger
}

// Open connects to dsn, whose role must be the NOINHERIT login of the control
// plane. maxConns bounds the pool; 0 means 10. It fails with fault.Unavailable if
// the database cannot be reached, has another schema version, the role could
// bypass row-level security, or the clocks differ by more than five seconds.
func Open(ctx context.Context, dsn string, maxConns int32, log *slog.Logger) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fault.New(fault.Invalid, "request.invalid", "The database address cannot be read.").Because(err)
	}
	cfg.MaxConns = 10
	if maxConns > 0 {
		cfg.MaxConns = maxConns
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "tranche"
	cfg.ConnConfig.RuntimeParams["timezone"] = "UTC"
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		c.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID,
			Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, unavailable(err)
	}
	s := &Store{pool: pool, log: log, notify: newNotifier(ctx, pool, log)}
	if err := s.Check(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

// Close sends what is still to be notified and ends the connections.
func (s *Store) Close() {
	s.notify.close()
	s.pool.Close()
}

// Check asks the database whether this process may work on it: schema version,
// role privileges, clock. It fails with fault.Unavailable and says what to do.
func (s *Store) Check(ctx context.Context) error {
	var version int64
	var tooMighty bool
	var now time.Time
	err := s.pool.QueryRow(ctx, `select
		(select coalesce(max(version_id), 0) from goose_db_version where is_applied)::bigint,
		(select rolsuper or rolbypassrls from pg_roles where rolname = current_user),
		clock_timestamp()`).Scan(&version, &tooMighty, &now)
	if err != nil {
		return unavailable(err)
	}
	if want := migrations.Version(); version != want {
		return unavailable(fmt.Errorf("the database has schema %d, this binary needs %d", version, want)).
			Suggest("Run `tranched migrate` of this release.")
	}
	if tooMighty {
		return unavailable(errors.New("the login role is SUPERUSER or BYPASSRLS")).
			Suggest("Connect as the role tranche: tenants are kept apart by row-level security.")
	}
	if d := time.Since(now).Abs(); d > maxClockSkew {
		return unavailable(fmt.Errorf("the clock differs from the database's by %s", d)).
			Suggest("Synchronise this machine's clock.")
	}
	return nil
}

// tx is what both kinds of transaction share.
type tx struct {
	raw pgx.Tx
	q   *db.Queries
	// told collects the wake-ups to send after commit.
	told []notice
}

// OrgTx is a transaction that sees one organization.
type OrgTx struct {
	tx
	org id.Org
}

// Org is the organization this transaction sees.
func (t *OrgTx) Org() id.Org { return t.org }

// SystemTx is a transaction that sees every organization.
type SystemTx struct{ tx }

// InOrg runs fn in one read-committed transaction as tranche_org, confined to org.
// It commits if fn returns nil. Errors come back as faults where the constraint is
// known; a serialization failure or deadlock as fault.Unavailable (retryable). Its
// statements are planned once a connection, as in InSystem.
func (s *Store) InOrg(ctx context.Context, org id.Org, fn func(*OrgTx) error) error {
	if org.IsZero() {
		return fault.New(fault.Internal, "internal", "A tenant transaction needs an organization.")
	}
	if sh := s.shared(ctx); sh != nil {
		return sh.inOrg(ctx, org, fn)
	}
	return s.in(ctx, `select set_config('role', 'tranche_org', true), set_config('tranche.org_id', $1, true),
			set_config('plan_cache_mode', 'force_generic_plan', true)`,
		uuid.UUID(org).String(), func(t tx) ([]notice, error) {
			o := &OrgTx{tx: t, org: org}
			err := fn(o)
			return o.told, err
		})
}

// InSystem runs fn in one read-committed transaction as tranche_system. The reason
// is a constant that says which duty needs to see every organization; it is the
// application_name seen in pg_stat_activity. Its statements are planned once a
// connection, not once a value: planning cost a fifth of the database's time.
func (s *Store) InSystem(ctx context.Context, reason string, fn func(*SystemTx) error) error {
	if sh := s.shared(ctx); sh != nil {
		return sh.inSystem(ctx, reason, fn)
	}
	return s.in(ctx, `select set_config('role', 'tranche_system', true), set_config('application_name', $1, true),
			set_config('plan_cache_mode', 'force_generic_plan', true)`,
		"tranche: "+reason, func(t tx) ([]notice, error) {
			o := &SystemTx{tx: t}
			err := fn(o)
			return o.told, err
		})
}

// Escalate goes on in the same transaction as tranche_system: for the few writes
// of an accepting transaction that no tenant may do alone. The reason is logged.
func (t *OrgTx) Escalate(ctx context.Context, reason string, fn func(*SystemTx) error) error {
	if _, err := t.raw.Exec(ctx, `select set_config('role', 'tranche_system', true)`); err != nil {
		return mapError(err)
	}
	sys := &SystemTx{tx: tx{raw: t.raw, q: t.q}}
	if err := fn(sys); err != nil {
		return fmt.Errorf("%s: %w", reason, err)
	}
	t.told = append(t.told, sys.told...)
	_, err := t.raw.Exec(ctx, `select set_config('role', 'tranche_org', true)`)
	return mapError(err)
}

func (s *Store) in(ctx context.Context, setup, arg string, fn func(tx) ([]notice, error)) error {
	raw, err := s.pool.Begin(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = raw.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := raw.Exec(ctx, setup, arg); err != nil {
		return mapError(err)
	}
	told, err := fn(tx{raw: raw, q: db.New()})
	if err != nil {
		return mapError(err)
	}
	if err := raw.Commit(ctx); err != nil {
		return mapError(err)
	}
	s.notify.send(told)
	return nil
}

// BusinessNow is the business clock's instant, after whatever lock this
// transaction already holds (10-domain §5).
func (t *tx) BusinessNow(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := t.raw.QueryRow(ctx, `select biz_now()`).Scan(&at)
	return at.UTC(), mapError(err)
}
