-- Organizations, projects, credentials.

-- name: InsertOrganization :one
insert into organizations (id, name, currency, quota_instances, quota_gpus, rate_read, rate_write, rate_launch, created_at)
values (@org_id, @name, @currency, @quota_instances, @quota_gpus, @rate_read, @rate_write, @rate_launch, biz_now())
returning created_at;

-- name: InsertQuotaUsage :exec
insert into quota_usage (org_id) values (@org_id);

-- name: InsertBillingAccount :exec
insert into billing_accounts (org_id, currency) values (@org_id, @currency);

-- name: AttachDefaultPriceBook :exec
insert into organization_price_books (org_id, price_book_id, during)
select @org_id, b.id, tstzrange(@since::timestamptz, null)
from price_books b where b.currency = @currency and b.is_default;

-- name: GetOrganization :one
select * from organizations where id = @org_id;

-- name: ListOrganizations :many
select * from organizations
where sqlc.narg(before)::uuid is null or id < sqlc.narg(before)::uuid
order by id desc limit @size;

-- name: InsertProject :one
insert into projects (org_id, id, name, created_at) values (@org_id, @project_id, @name, biz_now())
returning created_at;

-- name: GetProject :one
select * from projects where org_id = @org_id and id = @project_id;

-- name: ListProjects :many
select * from projects
where org_id = @org_id and (sqlc.narg(before)::uuid is null or id < sqlc.narg(before)::uuid)
order by id desc limit @size;

-- name: InsertAPIKey :one
insert into api_keys (org_id, id, project_id, name, prefix, hash, scopes, created_by, expires_at)
values (@org_id, @key_id, @project_id, @name, @prefix, @hash, @scopes, @created_by, @expires_at)
returning created_at;

-- name: ListAPIKeys :many
select org_id, id, project_id, name, scopes, created_by, created_at, expires_at, last_used_at, revoked_at
from api_keys
where org_id = @org_id and (sqlc.narg(before)::uuid is null or id < sqlc.narg(before)::uuid)
  and (sqlc.narg(project_id)::uuid is null or project_id = sqlc.narg(project_id)::uuid)
order by id desc limit @size;

-- name: RevokeAPIKey :one
update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()), revision = revision + 1
where org_id = @org_id and id = @key_id
  and (sqlc.narg(project_id)::uuid is null or project_id = sqlc.narg(project_id)::uuid)
returning id;

-- name: InsertOperatorKey :one
insert into operator_keys (id, name, role, hash, scopes)
values (@key_id, @name, @role, @hash, @scopes)
returning created_at;

-- name: FindAPIKey :one
select k.org_id, k.id, k.project_id, k.name, k.hash, k.scopes, k.expires_at, k.revoked_at, k.last_used_at,
  o.name as org_name, o.session_epoch, o.suspended_at, o.rate_read, o.rate_write, o.rate_launch
from api_keys k join organizations o on o.id = k.org_id
where k.id = @key_id;

-- name: FindOperatorKey :one
select id, name, hash, scopes, expires_at, revoked_at, last_used_at
from operator_keys where id = @key_id;

-- name: TouchAPIKey :exec
update api_keys set last_used_at = clock_timestamp()
where id = @key_id and (last_used_at is null or last_used_at < clock_timestamp() - interval '1 minute');

-- name: TouchOperatorKey :exec
update operator_keys set last_used_at = clock_timestamp()
where id = @key_id and (last_used_at is null or last_used_at < clock_timestamp() - interval '1 minute');
