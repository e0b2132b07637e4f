-- Instances as tenants see them, and the rows of an accepted create.

-- name: LockQuota :one
-- Creates of one organization queue here; the row is the first lock after the key's.
select u.instances, u.gpus, o.quota_instances, o.quota_gpus
from quota_usage u join organizations o on o.id = u.org_id
where u.org_id = @org_id for update of u;

-- name: InsertInstance :one
-- Everything that an accepted create is, in one statement: it runs under the lock
-- of the organization's quota, and its instant is read there.
with n as materialized (
  select biz_now() as at
), op as (
  insert into operations (org_id, id, project_id, kind, subject_id, generation, request_id, created_at, deadline_at)
  select @org_id, @operation_id, @project_id, 'instance.create', @instance_id, 1, @request_id, n.at, @deadline_at from n
), held as (
  insert into quota_claims (org_id, instance_id, gpus) values (@org_id, @instance_id, @gpus)
), event as (
  insert into events (org_id, project_id, cell_id, type, subject_id, data, at)
  select @org_id, @project_id, p.cell_id, 'instance.created', @instance_id, @event_data, n.at from n, pools p where p.id = @pool_id
), wake as (
  insert into outbox (kind, key, reason) values ('instance', @outbox_key, 'create')
), audit as (
  insert into audit_log (org_id, actor, credential, operation, resource, result, request_id)
  values (@org_id, @actor, @credential, 'instance.create', @outbox_key, @result, @request_id)
)
insert into instances (org_id, id, project_id, cell_id, pool_id, name, offer_id, sku_id, image, command, env, env_sealed,
  ssh_keys, ports, shm_mib, registry_login_id, labels, client_token, recovery, desired, status, operation_id, price_book_id, locked_price_version_id, locked_price,
  currency, simulated, created_at, accepted_at, intent_at, next_wake_at, deadline_at)
select @org_id, @instance_id, @project_id, p.cell_id, p.id, @name, @offer_id, @sku_id, @image, @command::text[], @env,
  @env_sealed, @ssh_keys::text[], @ports, @shm_mib, sqlc.narg(registry_login_id), @labels, sqlc.narg(client_token), @recovery, 'running', 'queued', @operation_id, @price_book_id,
  @price_version_id, cast(@price::text as numeric), @currency, @simulated, n.at, n.at, n.at,
  clock_timestamp() + interval '30 seconds', @deadline_at
from n, pools p where p.id = @pool_id
returning created_at;

-- name: InstanceRows :many
-- The price shown is the lower of the lock and today's list.
select sqlc.embed(i), sqlc.embed(s),
  coalesce(o.kind, '')::text as operation_kind, coalesce(o.status, '')::text as operation_status,
  coalesce(least(i.locked_price, (
    select p.amount from price_versions v join prices p on p.price_version_id = v.id and p.sku_id = i.sku_id and p.meter = 'gpu'
    where v.price_book_id = i.price_book_id and v.effective_from <= n.at order by v.effective_from desc limit 1
  ))::text, '')::text as price, n.at::timestamptz as at,
  coalesce((select jsonb_agg(jsonb_build_object('From', x.from_at, 'To', x.to_at, 'Cause', x.cause, 'Detail', x.detail,
      'Credited', x.credited) order by x.from_at desc)
    from (select * from interruptions y where y.org_id = i.org_id and y.instance_id = i.id
      order by y.from_at desc limit 20) x), '[]')::jsonb as interruptions
from (select biz_now() as at) n
cross join instances i
join skus s on s.id = i.sku_id
left join operations o on o.org_id = i.org_id and o.id = i.operation_id
where i.org_id = @org_id and i.project_id = @project_id
  and (sqlc.narg(instance_id)::uuid is null or i.id = sqlc.narg(instance_id)::uuid)
  and (sqlc.narg(status)::text is null or i.status = sqlc.narg(status)::text)
  and (@with_deleted::boolean or i.status <> 'deleted')
  and (i.deleted_at is null or i.deleted_at > n.at - interval '30 days')
  and (sqlc.narg(name)::text is null or i.name = sqlc.narg(name)::text)
  and (sqlc.narg(client_token)::text is null or i.client_token = sqlc.narg(client_token)::text)
  and (sqlc.narg(before)::uuid is null or i.id < sqlc.narg(before)::uuid)
order by i.id desc limit @size;

-- name: InstanceSlots :many
select a.instance_id, s.ordinal, s.gpu_mode, s.profile, s.start_unit, s.size_units, s.memory_mib, s.sm_count,
  coalesce(r.device_uuids, '{}')::text[] as device_uuids
from assignments a
join claims c on c.org_id = a.org_id and c.kind = 'assignment' and c.holder_id = a.id
join claim_slots s on s.org_id = c.org_id and s.claim_id = c.id
left join run_proofs r on r.org_id = a.org_id and r.assignment_id = a.id
where a.org_id = @org_id and a.instance_id = any(@instance_ids::uuid[]) and a.state <> 'released'
order by a.instance_id, a.id, s.ordinal, s.start_unit;

-- name: Revisions :many
-- What waiters of this process look at: one statement for all of them.
select id, revision from instances where id = any(@ids::uuid[])
union all
select id, revision from operations where id = any(@ids::uuid[])
union all
select id, revision from mode_changes where id = any(@ids::uuid[]);
