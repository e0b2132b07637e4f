-- Usage segments: recorded under the lock of their meter, never deleted, never shortened once closed.

-- name: ReadClosedUntil :one
-- A finalize that is on its way (FOR UPDATE) is waited for.
select (case when isfinite(closed_until) then closed_until else timestamptz 'epoch' end)::timestamptz as closed_until, close_no
from billing_accounts where org_id = @org_id for share;

-- name: LockMeter :exec
select lock_meter(@subject_id::uuid, @meter::text);

-- name: SealMeter :one
select seal_usage(@org_id::uuid, @subject_id::uuid, @meter::text, @until_at::timestamptz)::bigint;

-- name: CloseMeter :one
select close_usage(@org_id::uuid, @subject_id::uuid, @meter::text, @run::integer, @at::timestamptz, @close_reason::text, @fault_party::text)::boolean;

-- name: ExcludeUsage :one
select exclude_usage(@org_id::uuid, @subject_id::uuid, @meter::text, @run::integer,
  tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'), @cause::text, sqlc.narg('ref')::uuid)::bigint;

-- name: LiftUsage :one
select lift_usage(@org_id::uuid, @subject_id::uuid, @meter::text, @run::integer, tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'), @causes::text[])::bigint;

-- name: OpenAcrossMonths :many
-- Open segments whose month has ended, oldest first.
select org_id, subject_id, meter from usage_segments
where upper_inf(during) and lower(during) < @before::timestamptz and month_end(lower(during)) < @before::timestamptz
order by lower(during), id limit @size;

-- name: LastSegment :one
-- The last in time; late evidence may have made earlier ones with a higher seq.
select (max(s.seq) over ())::bigint as seq, s.run, s.assignment_id, s.close_reason, upper_inf(s.during)::boolean as is_open,
  coalesce(upper(s.during), lower(s.during))::timestamptz as to_at
from usage_segments s
where s.org_id = @org_id and s.subject_id = @subject_id and s.meter = @meter
order by lower(s.during) desc limit 1;

-- name: SilentSince :one
-- Since when a run is not billed for want of proof.
select coalesce(max(upper(during)), timestamptz 'epoch')::timestamptz from usage_segments
where org_id = @org_id and subject_id = @subject_id and meter = @meter and assignment_id is not distinct from sqlc.narg('assignment_id')
  and close_reason = 'silence';

-- name: StartOfRun :one
select start_id from usage_segments
where org_id = @org_id and subject_id = @subject_id and meter = @meter and run = @run
order by seq limit 1;

-- name: BilledFrom :many
-- What is recorded of a meter from an instant on, also where it is excluded.
select lower(during)::timestamptz as from_at, coalesce(upper(during), lower(during))::timestamptz as to_at, upper_inf(during)::boolean as is_open
from usage_segments
where org_id = @org_id and subject_id = @subject_id and meter = @meter
  and during && tstzrange(@from_at::timestamptz, null, '[)')
order by lower(during);

-- name: BoundsOfRun :one
-- Evidence of an assignment counts between the start of its run and the first thing that
-- ended it.
select a.org_id, a.instance_id, a.run, coalesce(p.started_at, a.ordered_biz)::timestamptz as starts_at,
  (p.assignment_id is not null)::boolean as proven,
  least(p.ended_at, biz_at(a.releasing_at), x.from_at, o.accepted_at, timestamptz '9000-01-01')::timestamptz as ends_at
from assignments a
left join run_proofs p on p.org_id = a.org_id and p.assignment_id = a.id
left join lateral (select min(from_at) as from_at from interruptions where org_id = a.org_id and assignment_id = a.id) x on true
left join lateral (select min(created_at) as accepted_at from operations where org_id = a.org_id and subject_id = a.instance_id
  and kind in ('instance.stop', 'instance.delete') and created_at >= a.ordered_biz) o on true
where a.id = @assignment_id;

-- name: AdvanceProof :exec
-- Late evidence proves a run that has no known end until then.
update run_proofs set last_proof_at = greatest(last_proof_at, @at::timestamptz)
where assignment_id = @assignment_id and ended_at is null;

-- name: UnbilledReadings :many
-- Of the assignments that were read at the end of an interval, those that were proven
-- before and are not billed for it: a report of theirs is missing.
select distinct a.id
from unnest(@assignment_ids::uuid[]) as r(id)
join assignments a on a.id = r.id and a.host_id = @host_id
join run_proofs p on p.org_id = a.org_id and p.assignment_id = a.id and p.started_at < @to_at::timestamptz
  and (p.ended_at is null or p.ended_at > @from_at::timestamptz)
where not exists (select 1 from billable_segments u where u.org_id = a.org_id and u.subject_id = a.instance_id and u.meter = 'gpu'
  and u.during @> tstzrange(greatest(@from_at::timestamptz, p.started_at), least(@to_at::timestamptz, p.ended_at), '[)'))
order by a.id;

-- name: InsertInstanceSegment :execrows
insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, assignment_id,
  units, sku_id, sku_snapshot, price_book_id, locked_price_version_id, region, isolation_gpu, isolation_host,
  subject_name, labels, open_reason, close_reason, evidence, simulated, billing_period, close_no, during)
select i.org_id, @segment_id, 'instance', i.id, i.project_id, @meter, @start_id, @seq, @run, sqlc.narg('assignment_id'),
  1, i.sku_id,
  jsonb_build_object('code', s.code, 'gpu_model', s.gpu_model, 'mode', s.mode, 'profile', s.profile, 'gpu_count', s.gpu_count,
    'memory_mib', s.memory_mib, 'sm_count', s.sm_count, 'sm_percent', s.sm_percent),
  case when i.price_book_id is not null then coalesce((select b.price_book_id from organization_price_books b
    where b.org_id = i.org_id and b.during @> @at::timestamptz), i.price_book_id) end,
  i.locked_price_version_id, o.region_id, s.isolation_gpu, s.isolation_host,
  i.name, i.labels, @open_reason, @close_reason, @evidence, i.simulated, @billing_period, @close_no,
  tstzrange(@at::timestamptz, sqlc.narg('to_at')::timestamptz, '[)')
from instances i
join skus s on s.id = i.sku_id
join offers o on o.id = i.offer_id
where i.org_id = @org_id and i.id = @instance_id;

-- name: UsageInWindow :many
-- As of a close: without what was accepted after it.
select u.id, u.project_id, u.subject_kind, u.subject_id, u.meter, u.start_id, u.seq, u.run, u.units,
  lower(u.during)::timestamptz as from_at, coalesce(upper(u.during), lower(u.during))::timestamptz as to_at,
  upper_inf(u.during)::boolean as is_open,
  u.subject_name, p.name as project_name, u.sku_id, s.code as sku_code, s.gpu_model, s.mode, s.profile, s.gpu_count,
  u.isolation_gpu, u.isolation_host, u.region, u.labels, u.price_book_id, u.locked_price_version_id,
  coalesce(l.amount::text, '')::text as locked_price, u.pricing_kind, u.simulated, u.recorded_at
from usage_segments u
join projects p on p.org_id = u.org_id and p.id = u.project_id
join skus s on s.id = u.sku_id
left join prices l on l.price_version_id = u.locked_price_version_id and l.sku_id = u.sku_id and l.meter = u.meter
where u.org_id = @org_id
  and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and u.close_no <= @as_of::integer
  and (sqlc.narg('project_id')::uuid is null or u.project_id = sqlc.narg('project_id'))
  and (cardinality(@subject_ids::uuid[]) = 0 or u.subject_id = any(@subject_ids::uuid[]))
order by u.subject_id, u.meter, u.seq;

-- name: ExclusionsInWindow :many
select subject_id, meter, lower(during)::timestamptz as from_at, upper(during)::timestamptz as to_at, recorded_at
from usage_exclusions
where org_id = @org_id
  and during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and close_no <= @as_of::integer and (lifted_close_no is null or lifted_close_no > @as_of)
order by subject_id, meter, from_at;

-- name: LateCloses :many
-- After which closes something of a period was accepted, or taken back.
select close_no from (
  select u.close_no from usage_segments u where u.org_id = @org_id and u.billing_period = @period and u.close_no > 0
  union select x.close_no from usage_exclusions x where x.org_id = @org_id and x.close_no > 0
    and x.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  union select x.lifted_close_no from usage_exclusions x where x.org_id = @org_id and x.lifted_close_no > 0
    and x.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
) as late (close_no) order by close_no;
