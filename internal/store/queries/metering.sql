-- Checkpoints of what is proven, hours of GPUs, reconciliation and its discrepancies.

-- name: CheckpointRuns :many
-- The hours of up to size runs that were proven further than their checkpoints say, by
-- assignment. The heartbeat of a host proves what it reported running.
with due as (
  select p.org_id, p.assignment_id, p.instance_id, p.run, p.started_at, e.proven_to,
    coalesce(c.hour, date_trunc('hour', p.started_at at time zone 'UTC') at time zone 'UTC') as first_hour
  from run_proofs p
  left join lateral (select l.last_proof_biz from host_liveness l
    join observed_slices o on o.host_id = l.host_id and o.assignment_id = p.assignment_id and o.run_state = 'running' and o.state <> 'unknown'
    where l.host_id = p.host_id and p.ended_at is null) h on true
  cross join lateral (select greatest(p.last_proof_at, h.last_proof_biz) as proven_to) e
  left join lateral (select hour, to_at from usage_checkpoints x where x.org_id = p.org_id and x.assignment_id = p.assignment_id
    order by hour desc limit 1) c on true
  where p.assignment_id > @after::uuid and (p.ended_at is null or p.ended_at > @since::timestamptz) and e.proven_to > coalesce(c.to_at, p.started_at)
  order by p.assignment_id limit @size
)
insert into usage_checkpoints (org_id, assignment_id, instance_id, run, hour, from_at, to_at)
select d.org_id, d.assignment_id, d.instance_id, d.run, g.hour, greatest(g.hour, d.started_at), least(g.hour + interval '1 hour', d.proven_to)
from due d cross join lateral generate_series(d.first_hour, d.proven_to, interval '1 hour') as g(hour)
where greatest(g.hour, d.started_at) < least(g.hour + interval '1 hour', d.proven_to)
on conflict (org_id, assignment_id, hour) do update set to_at = greatest(usage_checkpoints.to_at, excluded.to_at)
returning assignment_id;

-- name: PruneCheckpoints :execrows
delete from usage_checkpoints where (org_id, assignment_id, hour) in (
  select org_id, assignment_id, hour from usage_checkpoints where hour < @before::timestamptz limit @size);

-- name: PruneGPUHours :execrows
delete from gpu_hours where (gpu_id, hour, mode) in (select gpu_id, hour, mode from gpu_hours where hour < @before::timestamptz limit @size);

-- name: ObserveGPUs :exec
-- The time since the last look counts as what is seen now, up to the gap; a longer one
-- was not observed.
with now as (select biz_now() as at),
seen as (
  select g.id, g.host_id, g.model, g.mode_observed as mode, n.at,
    date_trunc('hour', n.at at time zone 'UTC') at time zone 'UTC' as hour,
    (select max(observed_at) from gpu_hours x where x.gpu_id = g.id and x.hour >= n.at - interval '2 hours') as before,
    (g.health = 'healthy' and g.mode_state = 'settled' and not g.cordoned and h.state = 'ready' and h.liveness = 'live') as sellable
  from now n cross join gpus g join hosts h on h.id = g.host_id
  where g.present and h.state not in ('pending', 'retired', 'lost')
)
insert into gpu_hours as t (gpu_id, hour, host_id, model, mode, observed_us, sellable_us, observed_at)
select s.id, s.hour, s.host_id, s.model, s.mode, d.us, case when s.sellable then d.us else 0 end, s.at
from seen s cross join lateral (
  select case when s.before is null or s.at - s.before > make_interval(secs => @gap_seconds::double precision) then 0
    else greatest(0, extract(epoch from s.at - greatest(s.before, s.hour)) * 1000000)::bigint end as us) d
on conflict (gpu_id, hour, mode) do update set observed_us = least(3600000000, t.observed_us + excluded.observed_us),
  sellable_us = least(3600000000, t.sellable_us + excluded.sellable_us), observed_at = excluded.observed_at;

-- name: GPUHoursOf :many
select h.model, h.mode, h.host_id, o.name as host_name, sum(h.observed_us)::bigint as observed_us, sum(h.sellable_us)::bigint as sellable_us,
  count(distinct h.gpu_id)::bigint as gpus
from gpu_hours h join hosts o on o.id = h.host_id
where h.hour >= @from_at::timestamptz and h.hour < @to_at::timestamptz
group by 1, 2, 3, 4 order by 1, 2, 4;

-- name: SoldOf :many
-- Per host and SKU: what was billed of it, unit·µs.
select u.sku_id, s.code, s.gpu_model, s.mode, s.gpu_count, s.memory_mib, a.host_id, coalesce(h.name, '') as host_name,
  coalesce((select min(g.memory_mib) from gpus g where g.model = s.gpu_model), s.memory_mib)::bigint as gpu_memory_mib,
  sum(u.units * (extract(epoch from upper(w.during) - lower(w.during)) * 1000000)::bigint)::bigint as used_us
from billable_segments u
cross join lateral (select u.during * tstzrange(@from_at::timestamptz, least(@to_at::timestamptz, biz_now()), '[)') as during) w
join skus s on s.id = u.sku_id
left join assignments a on a.org_id = u.org_id and a.id = u.assignment_id
left join hosts h on h.id = a.host_id
where u.meter = 'gpu' and u.billing_period = @period and not isempty(w.during)
group by 1, 2, 3, 4, 5, 6, 7, 8 order by 3, 4, 8, 2;

-- name: BillingOrganizations :many
select org_id from billing_accounts where org_id > @after order by org_id limit @size;

-- name: BilledOfDay :many
select u.subject_id, u.subject_name, u.meter, u.run, lower(u.during)::timestamptz as from_at,
  coalesce(upper(u.during), timestamptz '9000-01-01')::timestamptz as to_at
from billable_segments u
where u.org_id = @org_id and u.subject_kind = 'instance' and u.meter in ('gpu', 'gpu_retained') and u.billing_period = @period
  and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
order by u.subject_id, lower(u.during);

-- name: ProvenOfDay :many
select c.instance_id, c.run, c.from_at, c.to_at from usage_checkpoints c
where c.org_id = @org_id and c.hour >= @from_at and c.hour < @to_at order by c.instance_id, c.from_at;

-- name: ReadingsOfDay :many
-- Counters are evidence too: they may be all there is of an outage.
select s.instance_id, s.run, (s.at - make_interval(secs => s.interval_ms / 1000.0) * b.scale)::timestamptz as from_at, s.at as to_at
from slice_samples s cross join business_clock b
where s.org_id = @org_id and s.gap = '' and s.at > @from_at and s.at <= @to_at and s.source = 'cgroup' order by s.instance_id, s.at;

-- name: RunsOfDay :many
-- Until when each run should have gone on, as the log of operations tells: its stop or
-- delete, its own end, the next run, or the end of the day.
select p.instance_id, p.run, p.started_at, least(p.ended_at, o.accepted_at, n.started_at, x.from_at, @to_at::timestamptz)::timestamptz as ends_at,
  coalesce(o.accepted_at, @to_at::timestamptz)::timestamptz as stopped_at
from run_proofs p
left join lateral (select min(created_at) as accepted_at from operations where org_id = p.org_id and subject_id = p.instance_id
  and kind in ('instance.stop', 'instance.delete') and created_at >= p.started_at) o on true
left join lateral (select min(q.started_at) as started_at from run_proofs q where q.org_id = p.org_id and q.instance_id = p.instance_id
  and q.started_at > p.started_at) n on true
left join lateral (select min(i.from_at) as from_at from interruptions i where i.org_id = p.org_id and i.assignment_id = p.assignment_id) x on true
where p.org_id = @org_id and p.started_at < @to_at::timestamptz and (p.ended_at is null or p.ended_at > @from_at::timestamptz)
order by p.instance_id, p.started_at;

-- name: ExcludedOfDay :many
select subject_id, cause, lower(during)::timestamptz as from_at, upper(during)::timestamptz as to_at
from usage_exclusions
where org_id = @org_id and meter = 'gpu' and lifted_at is null and during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)');

-- name: SaveReconciliations :exec
insert into reconciliations (org_id, day, subject_id, meter, billed_us, proven_us, over_us, under_us, leakage_us, reasons)
select @org_id, @day, t.subject_id, 'gpu', t.billed, t.proven, t.over, t.under, t.leakage, t.reasons::jsonb
from (select unnest(@subject_ids::uuid[]) as subject_id, unnest(@billed::bigint[]) as billed, unnest(@proven::bigint[]) as proven,
  unnest(@over::bigint[]) as over, unnest(@under::bigint[]) as under, unnest(@leakage::bigint[]) as leakage,
  unnest(@reasons::text[]) as reasons) as t
on conflict (org_id, day, subject_id, meter) do update set billed_us = excluded.billed_us, proven_us = excluded.proven_us,
  over_us = excluded.over_us, under_us = excluded.under_us, leakage_us = excluded.leakage_us, reasons = excluded.reasons,
  recorded_at = clock_timestamp();

-- name: ReconciledDay :many
select org_id, subject_id, billed_us, proven_us, over_us, under_us, leakage_us, reasons from reconciliations
where day = @day and (sqlc.narg('org_id')::uuid is null or org_id = sqlc.narg('org_id')) order by org_id, subject_id;

-- name: LastReconciledDay :one
select coalesce(max(day), timestamptz 'epoch')::timestamptz from reconciliations;

-- name: OpenDiscrepancy :execrows
insert into discrepancies (org_id, id, subject_id, subject_name, meter, run, billing_period, during, evidence, opened_at)
values (@org_id, @discrepancy_id, @subject_id, @subject_name, @meter, @run, @billing_period,
  tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'), @evidence, biz_now())
on conflict (org_id, subject_id, meter, during) do nothing;

-- name: DiscrepancyForUpdate :one
select org_id, id, subject_id, meter, run, lower(during)::timestamptz as from_at, upper(during)::timestamptz as to_at, status, verdict
from discrepancies where id = @discrepancy_id for update;

-- name: ResolveDiscrepancy :exec
update discrepancies set status = 'resolved', verdict = @verdict, reason = @reason, resolved_by = @resolved_by, resolved_at = biz_now()
where org_id = @org_id and id = @discrepancy_id and status = 'open';

-- name: SettledDiscrepancies :many
-- Open, though nothing is excluded for them any more: evidence came in.
select d.org_id, d.id from discrepancies d
where d.status = 'open' and d.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and not exists (select 1 from usage_exclusions x where x.org_id = d.org_id and x.ref = d.id and x.lifted_at is null);

-- name: ListDiscrepancies :many
select org_id, id, subject_id, subject_name, meter, run, billing_period, lower(during)::timestamptz as from_at, upper(during)::timestamptz as to_at,
  evidence, status, verdict, reason, resolved_by, opened_at, resolved_at
from discrepancies
where (sqlc.narg('org_id')::uuid is null or org_id = sqlc.narg('org_id')) and (@status::text = '' or status = @status)
  and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid)
order by id desc limit @size;

-- name: OpenDiscrepanciesOf :one
select count(*)::bigint from discrepancies where org_id = @org_id and billing_period = @period and status = 'open';

-- name: BusinessScale :one
select scale from business_clock;

-- name: HostsOfUsage :many
select u.subject_id, u.meter, u.seq, a.host_id
from usage_segments u join assignments a on a.org_id = u.org_id and a.id = u.assignment_id
where u.org_id = @org_id and u.billing_period = @period;

-- name: OrganizationsUsing :many
-- Who has usage in a month, by the accounts there are.
select b.org_id, b.currency from billing_accounts b
where exists (select 1 from usage_segments u where u.org_id = b.org_id and u.billing_period = @period) order by b.org_id;

-- name: AccrualsToCheck :many
-- Accruals whose usage cannot have changed since: what is recorded, taken back, or ended
-- in arrears later waits for the next accrual.
select f.org_id, f.period, f.accrued_minor, f.accrued_at::timestamptz as accrued_at
from period_funding f cross join lateral (
  select b.base_real + (f.accrued_at - b.base_business) / b.scale as machine from business_clock b) m
where f.close_no = 0 and f.invoice_id is null and f.accrued_at > biz_now() - interval '45 days'
  and not exists (select 1 from usage_segments u where u.org_id = f.org_id and u.billing_period = f.period and lower(u.during) < f.accrued_at
    and (u.recorded_at > m.machine
      or u.close_reason in ('silence', 'our_fault') and upper(u.during) between f.accrued_at - interval '2 days' and f.accrued_at))
  and not exists (select 1 from usage_exclusions x where x.org_id = f.org_id and lower(x.during) < f.accrued_at
    and greatest(x.recorded_at, x.lifted_at) > m.machine)
order by f.accrued_at desc, f.org_id limit @size;
