-- Usage segments: recorded under the instance row's lock, never deleted.

-- name: ReadClosedUntil :one
-- A finalize that is on its way (FOR UPDATE) is waited for.
select (case when isfinite(closed_until) then closed_until else timestamptz 'epoch' end)::timestamptz as closed_until
from billing_accounts where org_id = @org_id for share;

-- name: LastSegment :one
select seq, run, assignment_id, start_id, close_reason, upper_inf(during)::boolean as is_open,
  coalesce(upper(during), lower(during))::timestamptz as to_at
from usage_segments
where org_id = @org_id and subject_id = @subject_id and meter = @meter
order by seq desc limit 1;

-- name: InsertInstanceSegment :execrows
insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, assignment_id,
  units, sku_id, sku_snapshot, price_book_id, locked_price_version_id, region, isolation_gpu, isolation_host,
  subject_name, labels, open_reason, evidence, simulated, billing_period, during)
select i.org_id, @segment_id, 'instance', i.id, i.project_id, @meter, @start_id, @seq, @run, sqlc.narg('assignment_id'),
  1, i.sku_id,
  jsonb_build_object('code', s.code, 'gpu_model', s.gpu_model, 'mode', s.mode, 'profile', s.profile, 'gpu_count', s.gpu_count,
    'memory_mib', s.memory_mib, 'sm_count', s.sm_count, 'sm_percent', s.sm_percent),
  i.price_book_id, i.locked_price_version_id, o.region_id, s.isolation_gpu, s.isolation_host,
  i.name, i.labels, @open_reason, @evidence, i.simulated, @billing_period,
  tstzrange(@at::timestamptz, null, '[)')
from instances i
join skus s on s.id = i.sku_id
join offers o on o.id = i.offer_id
where i.org_id = @org_id and i.id = @instance_id;

-- name: CloseSegment :execrows
-- The shortest segment is one microsecond: an empty one cannot be stored.
update usage_segments set
  during = tstzrange(lower(during), greatest(@at::timestamptz, lower(during) + interval '1 microsecond'), '[)'),
  close_reason = @close_reason, fault_party = @fault_party, revision = revision + 1
where org_id = @org_id and subject_id = @subject_id and meter = @meter and upper_inf(during);

-- name: UsageInWindow :many
select u.id, u.project_id, u.subject_kind, u.subject_id, u.meter, u.start_id, u.seq, u.run, u.units,
  lower(u.during)::timestamptz as from_at, coalesce(upper(u.during), lower(u.during))::timestamptz as to_at,
  upper_inf(u.during)::boolean as is_open,
  u.subject_name, p.name as project_name, u.sku_id, s.code as sku_code, s.gpu_model, s.mode, s.profile, s.gpu_count,
  u.isolation_gpu, u.isolation_host, u.region, u.price_book_id, u.locked_price_version_id,
  coalesce(l.amount::text, '')::text as locked_price, u.pricing_kind, u.simulated, u.recorded_at
from usage_segments u
join projects p on p.org_id = u.org_id and p.id = u.project_id
join skus s on s.id = u.sku_id
left join prices l on l.price_version_id = u.locked_price_version_id and l.sku_id = u.sku_id and l.meter = u.meter
where u.org_id = @org_id
  and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and (sqlc.narg('project_id')::uuid is null or u.project_id = sqlc.narg('project_id'))
  and (cardinality(@subject_ids::uuid[]) = 0 or u.subject_id = any(@subject_ids::uuid[]))
order by u.subject_id, u.meter, u.seq;
