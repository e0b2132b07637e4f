-- What agents report of slices and runs, and what they are to do.

-- name: AssignmentOn :one
select a.org_id, a.instance_id, a.run, a.fence, a.state, a.ordered_biz
from assignments a where a.id = @assignment_id and a.host_id = @host_id;

-- name: UpsertObserved :one
-- Reports are ordered by (session, sequence); an older one changes nothing.
insert into observed_slices (host_id, slice_key, assignment_id, fence, run, state, run_state, gpu_uuid, gpu_mode, profile,
  start_unit, size_units, device_uuid, memory_mib, sm_count, reason_code, reason_detail, credited, progress, progress_at,
  session, sequence)
values (@host_id, @slice_key, @assignment_id, @fence, @run, @state, @run_state, @gpu_uuid, @gpu_mode, @profile,
  @start_unit, @size_units, @device_uuid, @memory_mib, @sm_count, @reason_code, @reason_detail, @credited, @progress,
  case when @progress <> '' then clock_timestamp() end, @session, @sequence)
on conflict (host_id, slice_key) do update set
  assignment_id = excluded.assignment_id, fence = excluded.fence, run = excluded.run, state = excluded.state,
  run_state = excluded.run_state, gpu_uuid = excluded.gpu_uuid, gpu_mode = excluded.gpu_mode, profile = excluded.profile,
  start_unit = excluded.start_unit, size_units = excluded.size_units, device_uuid = excluded.device_uuid,
  memory_mib = excluded.memory_mib, sm_count = excluded.sm_count, reason_code = excluded.reason_code,
  reason_detail = excluded.reason_detail, credited = excluded.credited, progress = excluded.progress,
  progress_at = case when (observed_slices.fence, observed_slices.run) = (excluded.fence, excluded.run)
    then coalesce(excluded.progress_at, observed_slices.progress_at) else excluded.progress_at end,
  missing_since = null, missing_boot = '', session = excluded.session, sequence = excluded.sequence,
  seen_at = clock_timestamp(),
  since = case when (observed_slices.state, observed_slices.run_state, observed_slices.fence, observed_slices.run)
    = (excluded.state, excluded.run_state, excluded.fence, excluded.run) then observed_slices.since else clock_timestamp() end
where (observed_slices.session, observed_slices.sequence) < (excluded.session, excluded.sequence)
returning since;

-- name: ForgetObserved :exec
delete from observed_slices where host_id = @host_id and assignment_id = @assignment_id;

-- name: SettleFullReport :many
-- Rows that a complete report no longer names: what is not ours, or released, is
-- gone; a live assignment's row stays and says that its state is not known. The
-- assignments that became so are returned.
with stale as (
  select o.host_id, o.slice_key, coalesce(a.state not in ('released', 'quarantined'), false) as held
  from observed_slices o left join assignments a on a.id = o.assignment_id
  where o.host_id = @host_id and (o.session, o.sequence) < (@session::bigint, @sequence::bigint)
), marked as (
  update observed_slices o set state = 'unknown', since = clock_timestamp(), missing_since = clock_timestamp(),
    missing_boot = @boot_id::text
  from stale s where s.held and o.host_id = s.host_id and o.slice_key = s.slice_key
    and (o.missing_since is null or (o.missing_boot <> @boot_id::text and o.run_state not in ('exited', 'failed')))
  returning o.assignment_id
), dropped as (
  delete from observed_slices o using stale s
  where not s.held and o.host_id = s.host_id and o.slice_key = s.slice_key
)
select assignment_id from marked where assignment_id is not null order by assignment_id;

-- name: AbsentAssignments :many
-- What complete reports of the present boot have not named for thirty seconds. One
-- round ends at most two runs, or a tenth of what the host holds.
with held as (
  select count(*) as n from assignments a where a.host_id = @host_id and a.state in ('claimed', 'applied')
)
select a.id
from observed_slices o
join assignments a on a.id = o.assignment_id and a.host_id = o.host_id and a.state in ('claimed', 'applied')
where o.host_id = @host_id and o.missing_boot = @boot_id and o.missing_since <= clock_timestamp() - interval '30 seconds'
  and o.run_state not in ('exited', 'failed')
order by o.missing_since, a.id
limit (select greatest(2, n / 10) from held);

-- name: CountAbsent :one
select count(*) from observed_slices o
join assignments a on a.id = o.assignment_id and a.host_id = o.host_id and a.state in ('claimed', 'applied')
where o.host_id = @host_id and o.missing_since is not null and o.run_state not in ('exited', 'failed');

-- name: MarkAbsent :exec
-- The run of an assignment that its host has shown not to have any more.
update observed_slices set state = 'claimed', run_state = 'failed', reason_code = @reason_code, reason_detail = @reason_detail, credited = true
where host_id = @host_id and assignment_id = @assignment_id;

-- name: SessionBoot :one
select boot_id from host_sessions where host_id = @host_id and session = @session;

-- name: LastProof :one
select last_proof_at from run_proofs where assignment_id = @assignment_id and ended_at is null;

-- name: ReviveHost :execrows
update hosts set liveness = 'live', revision = revision + 1 where id = @host_id and liveness <> 'live';

-- name: NoteApplied :exec
update host_sessions set applied_version = @applied_version where host_id = @host_id and session = @session;

-- name: BusinessAgo :one
-- Business instants of things that happened so many seconds ago by the database's
-- machine clock: no other machine's wall clock counts.
select biz_at(t - make_interval(secs => @received_ago::double precision))::timestamptz as received,
  biz_at(t - make_interval(secs => @started_ago::double precision))::timestamptz as started,
  biz_at(t - make_interval(secs => @ended_ago::double precision))::timestamptz as ended
from (select clock_timestamp() as t) as s;

-- name: MarkApplied :exec
update assignments set state = 'applied', applied_at = clock_timestamp(), reason_code = '', reason_detail = '',
  revision = revision + 1
where id = @assignment_id and state = 'claimed';

-- name: NoteAssignmentReason :exec
update assignments set reason_code = @reason_code, reason_detail = @reason_detail, revision = revision + 1
where id = @assignment_id and (reason_code, reason_detail) <> (@reason_code, @reason_detail);

-- name: ProveRun :one
-- The first proof fixes the start; later ones move the end of what is proven.
insert into run_proofs (org_id, assignment_id, instance_id, run, host_id, started_at, last_proof_at, device_uuids)
values (@org_id, @assignment_id, @instance_id, @run, @host_id, @started_at, @last_proof_at, @device_uuids)
on conflict (org_id, assignment_id) do update
  set last_proof_at = greatest(run_proofs.last_proof_at, excluded.last_proof_at), device_uuids = excluded.device_uuids
  where run_proofs.ended_at is null
returning started_at, last_proof_at;

-- name: EndRun :one
-- A run that ended at a known instant is proven until then; one whose end nobody
-- saw, until its last proof.
update run_proofs set
  last_proof_at = greatest(started_at, case when @end_known::boolean then @ended_at::timestamptz else last_proof_at end),
  ended_at = greatest(started_at, case when @end_known::boolean then @ended_at::timestamptz else last_proof_at end)
where assignment_id = @assignment_id and ended_at is null
returning ended_at::timestamptz as ended_at;

-- name: ProveHostRuns :exec
update run_proofs p set last_proof_at = greatest(p.last_proof_at, @at::timestamptz)
from observed_slices o
where p.host_id = @host_id and p.ended_at is null
  and o.host_id = p.host_id and o.assignment_id = p.assignment_id
  and o.run_state = 'running' and o.state <> 'unknown';

-- name: OpenInterruption :exec
-- One is open per instance: a second fault before the run is back prolongs the first.
insert into interruptions (org_id, id, instance_id, assignment_id, run, host_id, gpu_id, cause, detail, credited, from_at)
select a.org_id, @interruption_id, a.instance_id, a.id, a.run, a.host_id, (
    select s.gpu_id from claims c join claim_slots s on s.claim_id = c.id
    where c.kind = 'assignment' and c.holder_id = a.id order by s.ordinal, s.start_unit limit 1),
  @cause, @detail, @credited, @from_at
from assignments a where a.id = @assignment_id
on conflict (instance_id) where to_at is null do nothing;

-- name: DesiredOrders :many
select a.id as assignment_id, a.org_id, a.fence, a.instance_id, a.run, i.name, i.image, i.command, i.env, i.ssh_keys, i.shm_mib,
  (i.env_sealed is not null or exists (select 1 from registry_logins l where l.org_id = i.org_id))::boolean as has_secrets,
  (i.ports <> '[]')::boolean as publishes, c.vcpu, c.ram_mib,
  g.uuid as gpu_uuid, s.gpu_mode, s.profile_id, s.profile, s.start_unit, s.size_units, s.compute
from assignments a
join instances i on i.org_id = a.org_id and i.id = a.instance_id
join claims c on c.kind = 'assignment' and c.holder_id = a.id
join claim_slots s on s.claim_id = c.id
join gpus g on g.id = s.gpu_id
where a.host_id = @host_id and a.state in ('claimed', 'applied')
order by a.id, s.ordinal, s.start_unit;

-- name: DesiredPorts :many
select assignment_id, port, protocol, container_port from host_ports where host_id = @host_id order by assignment_id, port, protocol;

-- name: DesiredModes :many
-- Due: the GPU takes no new work and nothing is claimed on it.
select g.uuid, m.mode, m.epoch
from mode_changes m join gpus g on g.id = m.gpu_id
where g.host_id = @host_id and m.status = 'switching' and g.cordoned
  and not exists (select 1 from claim_slots s where s.gpu_id = g.id)
order by g.uuid;

-- name: DesiredTombstones :many
select id, fence from assignments where host_id = @host_id and state = 'releasing' order by id;

-- name: HostDesiredSince :many
-- Only rows below the oldest running transaction: a later commit cannot be skipped.
select tx::text as tx, id, host_id from host_desired
where (tx, id) > (cast(@after_tx::text as xid8), @after_id::bigint) and tx < pg_snapshot_xmin(pg_current_snapshot())
order by tx, id limit @size;

-- name: HostDesiredStart :one
select pg_snapshot_xmin(pg_current_snapshot())::text as tx;

-- name: PruneHostDesired :exec
-- Each stream starts from the rows of assignments, so the feed need not be kept.
delete from host_desired where created_at < clock_timestamp() - interval '1 hour';
