package stack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Clock is the business clock of a stack: what billing calls now.
type Clock struct {
	Now   time.Time
	Scale int // business seconds a real second
}

// Clock reads the business clock.
func (s *Stack) Clock(ctx context.Context) (Clock, error) {
	return readClock(ctx, s.Postgres.DSN(databaseOwner, database))
}

// SetScale lets business time run faster from now on, 1 to 100,000 times.
func (s *Stack) SetScale(ctx context.Context, scale int) (Clock, error) {
	return changeClock(ctx, s.Postgres.DSN(databaseOwner, database), scale, time.Time{})
}

// JumpTo moves business time forward; it never goes back.
func (s *Stack) JumpTo(ctx context.Context, at time.Time) (Clock, error) {
	return changeClock(ctx, s.Postgres.DSN(databaseOwner, database), 0, at)
}

func readClock(ctx context.Context, dsn string) (Clock, error) {
	var c Clock
	err := withConn(ctx, dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select biz_now(), scale from business_clock`).Scan(&c.Now, &c.Scale)
	})
	if err != nil {
		return Clock{}, fmt.Errorf("read the business clock: %w", err)
	}
	c.Now = c.Now.UTC()
	return c, nil
}

// changeClock starts the clock anew at what it shows, or at a later instant;
// a zero scale keeps the scale.
func changeClock(ctx context.Context, dsn string, scale int, at time.Time) (Clock, error) {
	const change = `
update business_clock set
  base_business = greatest(base_business + (t.at - base_real) * scale, $2),
  base_real = t.at,
  scale = coalesce(nullif($1, 0), scale)
from (select clock_timestamp() as at) as t
where $2::timestamptz is null or $2 >= base_business + (t.at - base_real) * scale`
	var to *time.Time
	if !at.IsZero() {
		to = &at
	}
	err := withConn(ctx, dsn, func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, change, scale, to)
		if err == nil && tag.RowsAffected() == 0 {
			return errors.New("business time does not go back")
		}
		return err
	})
	if err != nil {
		return Clock{}, fmt.Errorf("set the business clock: %w", err)
	}
	return readClock(ctx, dsn)
}

func withConn(ctx context.Context, dsn string, work func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return work(conn)
}
