-- Idempotency keys: one row in the transaction of the work it protects.

-- name: InsertIdempotencyKey :execrows
-- The bound on waiting for locks holds from here to the end of the transaction.
with patience as materialized (select set_config('lock_timeout', @lock_timeout::text, true))
insert into idempotency_keys (org_id, principal, method, path, key, fingerprint)
select @org_id, @principal, @method, @path, @key, @fingerprint from patience
on conflict do nothing;

-- name: GetIdempotencyKey :one
select fingerprint, status, headers, body from idempotency_keys
where org_id = @org_id and method = @method and path = @path and key = @key;

-- name: SaveIdempotencyAnswer :exec
update idempotency_keys set status = @status, headers = @headers, body = @body
where org_id = @org_id and method = @method and path = @path and key = @key;

-- name: DeleteIdempotencyKeys :execrows
delete from idempotency_keys where created_at < clock_timestamp() - make_interval(secs => @older_than_s::double precision);
