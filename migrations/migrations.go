// Package migrations owns the database schema: forward-only SQL files applied
// by goose under a session lock, and the cluster-wide roles they need.
//
// It does not query anything: that is internal/store. Only `tranched migrate`
// and the test helper apply migrations; every other process refuses a database
// of another version (Current against Version).
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the "pgx" driver goose talks through
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// FS holds the migrations in order of their number.
//
//go:embed 0*.sql
var FS embed.FS

// Bootstrap creates the roles; a superuser runs it once per cluster. It may run again.
//
//go:embed bootstrap.sql
var Bootstrap string

// lockID serialises migrators of one database; any constant of ours will do.
const lockID = 7263548901

// Up brings the database of dsn, whose role must be the owner, to Version.
// Several may run at once: one applies, the others wait and find nothing to do.
func Up(ctx context.Context, ownerDSN string, log *slog.Logger) error {
	db, err := sql.Open("pgx", ownerDSN)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	p, err := provider(db, log)
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Version is the number of the newest migration in this binary.
func Version() int64 {
	names, err := fs.Glob(FS, "0*.sql")
	if err != nil || len(names) == 0 {
		panic("migrations: none embedded")
	}
	var v int64
	if _, err := fmt.Sscanf(names[len(names)-1], "%d_", &v); err != nil {
		panic("migrations: file name without a number: " + names[len(names)-1])
	}
	return v
}

func provider(db *sql.DB, log *slog.Logger) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID))
	if err != nil {
		return nil, fmt.Errorf("make the migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(log))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}
