-- Four eyes: who asked for what, and who agreed.

-- name: ApprovalRule :one
select above_minor from approval_rules where kind = @kind and currency = @currency;

-- name: LockApprovalRules :exec
-- Also against the first rule of a kind, which has no row to lock.
select pg_advisory_xact_lock(hashtextextended('approval_rules', 0));

-- name: ApprovalRules :many
select kind, currency, above_minor, updated_by, updated_at from approval_rules order by kind, currency;

-- name: PutApprovalRule :exec
insert into approval_rules as r (kind, currency, above_minor, updated_by) values (@kind, @currency, @above_minor, @updated_by)
on conflict (kind, currency) do update set above_minor = excluded.above_minor, updated_by = excluded.updated_by, updated_at = clock_timestamp();

-- name: CountOperators :one
select count(*)::integer from operator_keys where revoked_at is null and (expires_at is null or expires_at > clock_timestamp());

-- name: LiveApproval :one
select id, state, decided_by, expires_at from approvals
where kind = @kind and body_hash = @body_hash and requested_by = @requested_by and state in ('pending', 'approved')
  and expires_at > clock_timestamp();

-- name: ExpireApprovals :exec
update approvals set state = 'rejected', decided_at = clock_timestamp() where state in ('pending', 'approved') and expires_at <= clock_timestamp();

-- name: InsertApproval :execrows
insert into approvals (id, kind, body, body_hash, amount_minor, currency, requested_by, expires_at)
values (@approval_id, @kind, @body, @body_hash, @amount_minor, @currency, @requested_by,
  clock_timestamp() + make_interval(secs => @life_seconds::double precision))
on conflict (kind, body_hash, requested_by) where state in ('pending', 'approved') do nothing;

-- name: GetApproval :one
select * from approvals where id = @approval_id;

-- name: ListApprovals :many
select * from approvals where (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid) order by id desc limit @size;

-- name: DecideApproval :execrows
update approvals set state = @state, decided_by = @decided_by, decided_at = clock_timestamp(), revision = revision + 1
where id = @approval_id and state = 'pending' and expires_at > clock_timestamp();

-- name: SpendApproval :execrows
update approvals set state = 'executed', executed_at = clock_timestamp(), revision = revision + 1
where id = @approval_id and state = 'approved' and expires_at > clock_timestamp();
