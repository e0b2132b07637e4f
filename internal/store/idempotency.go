package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store/internal/db"
)

// IdempotencyKey names one repeatable request: who, which operation on which full
// path, and the caller's key. Fingerprint tells bodies apart.
type IdempotencyKey struct {
	Org                          id.Org // zero for operators
	Principal, Method, Path, Key string
	Fingerprint                  []byte
}

// IdempotentAnswer is the answer that a repeated request gets again.
type IdempotentAnswer struct {
	Fingerprint []byte
	Status      int
	Headers     map[string]string
	Body        []byte // JSON; secrets are not in it
}

// idempotencyWait bounds the wait for another transaction with the same key, and
// then for any lock of the work: a request that waits longer had better come back.
const idempotencyWait = 2 * time.Second

// ClaimIdempotencyKey inserts the row of the key. It returns nil when the caller
// is the first and shall do the work, or the answer stored before. While another
// transaction works on the same key it waits up to two seconds, then fails with
// idempotency.in_flight.
func (t *tx) ClaimIdempotencyKey(ctx context.Context, k IdempotencyKey) (*IdempotentAnswer, error) {
	n, err := t.insertKey(ctx, k)
	if err != nil {
		return nil, err
	}
	if n == 1 {
		return nil, nil
	}
	a, err := t.IdempotentAnswer(ctx, k)
	if err == nil && a == nil { // it was forgotten this moment
		err = KeyInFlight()
	}
	return a, err
}

// IdempotentAnswer reads the answer stored for a key, nil for none.
func (t *tx) IdempotentAnswer(ctx context.Context, k IdempotencyKey) (*IdempotentAnswer, error) {
	row, err := t.q.GetIdempotencyKey(ctx, t.raw, db.GetIdempotencyKeyParams{
		OrgID: uuid.UUID(k.Org), Method: k.Method, Path: k.Path, Key: k.Key,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, mapError(err)
	}
	a := &IdempotentAnswer{Fingerprint: row.Fingerprint, Body: row.Body}
	if row.Status != nil {
		a.Status = int(*row.Status)
	}
	if err := json.Unmarshal(row.Headers, &a.Headers); err != nil {
		return nil, fmt.Errorf("read the stored headers: %w", err)
	}
	return a, nil
}

func (t *tx) insertKey(ctx context.Context, k IdempotencyKey) (int64, error) {
	wait := strconv.FormatInt(idempotencyWait.Milliseconds(), 10) + "ms"
	n, err := t.q.InsertIdempotencyKey(ctx, t.raw, db.InsertIdempotencyKeyParams{
		OrgID: uuid.UUID(k.Org), Principal: k.Principal, Method: k.Method, Path: k.Path,
		Key: k.Key, Fingerprint: k.Fingerprint, LockTimeout: wait,
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55P03" {
		return 0, KeyInFlight().Because(err)
	}
	return n, mapError(err)
}

// SaveIdempotentAnswer stores the answer of the work that the key protects.
func (t *tx) SaveIdempotentAnswer(ctx context.Context, k IdempotencyKey, a IdempotentAnswer) error {
	headers, err := json.Marshal(a.Headers)
	if err != nil {
		return fmt.Errorf("write the headers of an answer: %w", err)
	}
	status := int32(a.Status)
	return mapError(t.q.SaveIdempotencyAnswer(ctx, t.raw, db.SaveIdempotencyAnswerParams{
		OrgID: uuid.UUID(k.Org), Method: k.Method, Path: k.Path, Key: k.Key,
		Status: &status, Headers: headers, Body: a.Body,
	}))
}

// ForgetIdempotencyKeys deletes keys older than age (machine time) and returns how
// many there were.
func (t *SystemTx) ForgetIdempotencyKeys(ctx context.Context, age time.Duration) (int64, error) {
	n, err := t.q.DeleteIdempotencyKeys(ctx, t.raw, age.Seconds())
	return n, mapError(err)
}

// KeyInFlight is the refusal of a request whose first copy is still at work.
func KeyInFlight() *fault.Error {
	return fault.New(fault.Conflict, "idempotency.in_flight", "A request with this Idempotency-Key is still at work.").
		Suggest("Send the same request again in a second.").After(time.Second)
}
