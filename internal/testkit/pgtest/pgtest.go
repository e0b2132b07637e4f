// Package pgtest gives each test a fresh, migrated database on a real Postgres.
//
// It owns a private cluster in memory, shared by all test processes of a user
// and stopped when none has used it for a minute, and one template database per
// state of the migrations, from which a test's database is copied in some tens
// of milliseconds. It never skips: a machine without Postgres fails the test.
//
// It does not fill databases; fixtures belong to the packages that own the rows.
package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranche-cloud/tranche/migrations"
)

// Database is one database of one test. It is dropped when the test ends.
type Database struct {
	// Name of the database in the cluster.
	Name string
	// OwnerDSN connects as tranche_owner, who migrates and may read all rows.
	OwnerDSN string
	// AppDSN connects as tranche, the login of every server process, which is
	// subject to row-level security.
	AppDSN string
	// SuperDSN connects as the superuser, for catalog tests and faults.
	SuperDSN string
}

// New returns a fresh database with all migrations applied. It fails the test
// when Postgres is missing or the migrations do not apply.
func New(t testing.TB) Database {
	t.Helper()
	return create(t, "template_migrated")
}

// Empty returns a fresh database with the roles but without any migration.
func Empty(t testing.TB) Database {
	t.Helper()
	return create(t, "template_empty")
}

// Pool returns a pool of at most four connections as the application's login,
// closed when the test ends.
func (d Database) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, d.AppDSN)
}

// OwnerPool is Pool as tranche_owner.
func (d Database) OwnerPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, d.OwnerDSN)
}

func pool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	// Packages are tested in parallel and share one server.
	config.MaxConns = 4
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func create(t testing.TB, kind string) Database {
	t.Helper()
	c, err := running()
	if err != nil {
		t.Fatalf("start the Postgres of the tests: %v", err)
	}
	names, err := templates()
	if err != nil {
		t.Fatalf("prepare the template databases: %v", err)
	}
	name := "test_" + random()
	err = c.admin(t.Context(), fmt.Sprintf(
		"create database %s template %s strategy file_copy owner tranche_owner", name, names[kind]))
	if err != nil {
		t.Fatalf("create the database of the test: %v", err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if err := c.admin(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	return Database{
		Name:     name,
		OwnerDSN: c.dsn("tranche_owner", name),
		AppDSN:   c.dsn("tranche", name),
		SuperDSN: c.dsn("postgres", name),
	}
}

// templates makes the template databases of this state of the migrations, once
// per cluster, and returns their names by kind.
var templates = sync.OnceValues(func() (map[string]string, error) {
	c, err := running()
	if err != nil {
		return nil, err
	}
	sum, err := fingerprint()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.dsn("postgres", "postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	// One process makes them, the others wait. The lock ends with the session.
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(7262436301)"); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, kind := range []string{"template_empty", "template_migrated"} {
		names[kind] = kind + "_" + sum
		if err := c.ensureTemplate(ctx, conn, names[kind], kind == "template_migrated"); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return names, nil
})

// fingerprint names the state of the migrations.
func fingerprint() (string, error) {
	h := sha256.New()
	h.Write([]byte(migrations.Bootstrap))
	err := fs.WalkDir(migrations.FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.FS, path)
		fmt.Fprintf(h, "\x00%s\x00%s", path, text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:6]), err
}

func (c *cluster) ensureTemplate(ctx context.Context, conn *pgx.Conn, name string, migrate bool) error {
	var exists bool
	err := conn.QueryRow(ctx,
		"select exists (select from pg_database where datname = $1 and datistemplate)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	// A half-made one is left by a process that was killed.
	if _, err := conn.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return err
	}
	if err := c.fill(ctx, name, migrate); err != nil {
		return err
	}
	// Copying needs a database without connections, so none is allowed any more.
	_, err = conn.Exec(ctx, "alter database "+name+" is_template true allow_connections false")
	return err
}

// fill runs what an operator runs once as superuser, then the migrations.
func (c *cluster) fill(ctx context.Context, name string, migrate bool) error {
	conn, err := pgx.Connect(ctx, c.dsn("postgres", name))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, migrations.Bootstrap)
	if err == nil {
		_, err = conn.Exec(ctx, "alter database "+name+" owner to tranche_owner")
	}
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("bootstrap roles: %w", err)
	}
	if !migrate {
		return nil
	}
	return migrations.Up(ctx, c.dsn("tranche_owner", name), slog.New(slog.DiscardHandler))
}

// admin runs one statement outside any database of a test.
func (c *cluster) admin(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, c.dsn("postgres", "postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func random() string {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic("pgtest: no randomness: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}
