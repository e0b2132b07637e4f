package server

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	temporalschema "go.temporal.io/server/schema"
	v12 "go.temporal.io/server/schema/postgresql/v12"

	"github.com/tranche-cloud/tranche/devstack/internal/temporald"
)

// versionTable is what the server reads at start; its own tool makes it, which
// does not come as a package.
const versionTable = `
create table schema_version (
  version_partition int not null,
  db_name varchar(255) not null,
  creation_time timestamp,
  curr_version varchar(64),
  min_compatible_version varchar(64),
  primary key (version_partition, db_name)
)`

// slim drops what serves searches only: nobody searches workflows here, and the
// indexes are most of the cost of a workflow's row.
const slim = `
do $$ declare i text; begin
  for i in select indexrelid::regclass::text from pg_index
    where indrelid = 'executions_visibility'::regclass and not indisprimary
  loop execute 'drop index ' || i; end loop;
end $$`

// Prepare installs the server's schema in both databases, which must exist and
// belong to the user of the DSNs; one that has it is left as it is.
func Prepare(ctx context.Context, mainDSN, visibilityDSN string) error {
	if err := install(ctx, mainDSN, temporald.Database, "temporal", v12.Version); err != nil {
		return err
	}
	return install(ctx, visibilityDSN, temporald.VisibilityDatabase, "visibility", v12.VisibilityVersion, slim)
}

// install runs the schema's script, and then more, in one transaction.
func install(ctx context.Context, dsn, database, folder, version string, more ...string) error {
	script, err := fs.ReadFile(temporalschema.Assets(), "postgresql/v12/"+folder+"/schema.sql")
	if err != nil {
		return fmt.Errorf("read the schema of %s: %w", database, err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", database, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))

	var installed bool
	err = conn.QueryRow(ctx, `select to_regclass('public.schema_version') is not null`).Scan(&installed)
	if err != nil {
		return fmt.Errorf("look for the schema of %s: %w", database, err)
	}
	if installed {
		return nil
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Without arguments a text of many statements is sent as it is.
		for _, text := range append([]string{string(script), versionTable}, more...) {
			if _, err := tx.Exec(ctx, text); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `insert into schema_version values (0, $1, now(), $2, $2)`, database, version)
		return err
	})
	if err != nil {
		return fmt.Errorf("install the schema of %s: %w", database, err)
	}
	return nil
}
