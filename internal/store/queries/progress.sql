-- Progress of instances: the row a step works on, its assignments, and the feeds.

-- name: LockInstance :one
select i.org_id, i.id, i.project_id, i.cell_id, i.pool_id, i.name, i.offer_id, i.sku_id, i.recovery, i.desired, i.run,
  i.generation, i.converged_generation, i.revision, i.attempts, i.recovering, i.ports, i.excluded_hosts, i.next_wake_at, i.deadline_at,
  i.status, i.status_code, i.status_detail, i.ever_ran, i.operation_id, i.started_at, i.deleted_at,
  (c.base_real + (i.intent_at - c.base_business) / c.scale)::timestamptz as intent_real,
  exists (select 1 from quota_claims q where q.org_id = i.org_id and q.instance_id = i.id)::boolean as quota_held,
  exists (select 1 from interruptions x where x.instance_id = i.id and x.to_at is null)::boolean as interrupted
from instances i cross join business_clock c
where i.id = @instance_id
for no key update of i;

-- name: ReadInstance :one
select i.org_id, i.id, i.project_id, i.cell_id, i.pool_id, i.name, i.offer_id, i.sku_id, i.recovery, i.desired, i.run,
  i.generation, i.converged_generation, i.revision, i.attempts, i.recovering, i.ports, i.excluded_hosts, i.next_wake_at, i.deadline_at,
  i.status, i.status_code, i.status_detail, i.ever_ran, i.operation_id, i.started_at, i.deleted_at,
  (c.base_real + (i.intent_at - c.base_business) / c.scale)::timestamptz as intent_real,
  exists (select 1 from quota_claims q where q.org_id = i.org_id and q.instance_id = i.id)::boolean as quota_held,
  exists (select 1 from interruptions x where x.instance_id = i.id and x.to_at is null)::boolean as interrupted
from instances i cross join business_clock c
where i.id = @instance_id;

-- name: HeldAssignments :many
select a.id, a.run, a.host_id, a.fence, a.state, a.ordered_at, h.liveness,
  (case when o.state is null or o.state = 'unknown' then 'none' else o.run_state end)::text as run_state,
  coalesce(o.reason_code, '')::text as reason_code,
  coalesce(o.reason_detail, '')::text as reason_detail,
  coalesce(o.credited, false)::boolean as credited, coalesce(o.progress, '')::text as progress, o.progress_at
from assignments a
join hosts h on h.id = a.host_id
left join observed_slices o
  on o.host_id = a.host_id and o.assignment_id = a.id and o.fence = a.fence and o.run = a.run
where a.org_id = @org_id and a.instance_id = @instance_id and a.state <> 'released'
order by a.id;

-- name: SaveInstance :execrows
update instances set
  desired = @desired, run = @run, converged_generation = @converged_generation,
  intent_at = case when @generation::bigint <> generation then greatest(biz_now(), intent_at) else intent_at end,
  generation = @generation,
  attempts = @attempts, recovering = @recovering, excluded_hosts = @excluded_hosts, next_wake_at = @next_wake_at, deadline_at = @deadline_at,
  status = @status, status_code = @status_code, status_detail = @status_detail, ever_ran = @ever_ran,
  operation_id = @operation_id, started_at = @started_at,
  deleted_at = case when @status = 'deleted' and deleted_at is null then greatest(biz_now(), intent_at) else deleted_at end,
  revision = revision + 1
where org_id = @org_id and id = @instance_id and revision = @revision;

-- name: RecoveringIn :many
select i.id from instances i join hosts h on h.pool_id = i.pool_id
where h.id = @host_id and i.recovering order by i.id limit @size;

-- name: CloseInterruption :exec
-- The lost time ends where the usage of the run that came up begins, or now.
update interruptions set to_at = greatest(from_at, coalesce(sqlc.narg('at')::timestamptz, biz_now())) where org_id = @org_id and instance_id = @instance_id and to_at is null;

-- name: InterruptionsOf :many
select * from interruptions where org_id = @org_id and instance_id = @instance_id order by from_at desc, id desc limit @size;

-- name: AssignmentInstance :one
select instance_id from assignments where id = @assignment_id;

-- name: OrderRelease :one
update assignments set state = 'releasing', fence = fence + 1, releasing_at = clock_timestamp(), revision = revision + 1
where id = @assignment_id and state in ('claimed', 'applied')
returning host_id, cell_id;

-- name: MarkReleased :one
update assignments set state = 'released', released_at = clock_timestamp(), revision = revision + 1
where id = @assignment_id and state = 'releasing' and fence <= @fence
returning org_id, host_id, cell_id;

-- name: LockClaimHolders :many
select g.id, g.cordoned from gpus g
where g.id in (
  select s.gpu_id from claims c join claim_slots s on s.claim_id = c.id
  where c.kind = 'assignment' and c.holder_id = @assignment_id)
order by g.id for no key update of g;

-- name: DeleteAssignmentClaim :exec
delete from claims where kind = 'assignment' and holder_id = @assignment_id;

-- name: EndRunProof :exec
-- No end was reported before the tombstone: the run went on until its release was ordered.
update run_proofs p set
  last_proof_at = greatest(p.last_proof_at, least(biz_at(a.releasing_at), biz_now())),
  ended_at = greatest(p.last_proof_at, least(biz_at(a.releasing_at), biz_now()))
from assignments a
where p.assignment_id = @assignment_id and p.ended_at is null and a.id = p.assignment_id and a.releasing_at is not null;

-- name: DropQuotaClaim :exec
delete from quota_claims where org_id = @org_id and instance_id = @instance_id;

-- name: AppendOutbox :exec
insert into outbox (kind, key, reason) values (@kind, @key, @reason);

-- name: AppendHostDesired :exec
insert into host_desired (cell_id, host_id) values (@cell_id, @host_id);

-- name: AppendEvent :exec
insert into events (org_id, project_id, cell_id, type, subject_id, data, at)
values (@org_id, @project_id, @cell_id, @type, @subject_id, @data, biz_now());

-- name: StepOperation :exec
update operations set status = 'running', step = @step, percent = greatest(percent, @percent::integer), revision = revision + 1
where org_id = @org_id and id = @operation_id and status in ('queued', 'running')
  and (status, step) <> ('running', @step);

-- name: EndOperation :execrows
update operations set status = @status, step = '', percent = case when @status = 'succeeded' then 100 else percent end,
  problem = @problem, finished_at = greatest(biz_now(), created_at), revision = revision + 1
where org_id = @org_id and id = @operation_id and status in ('queued', 'running');

-- name: LockHost :exec
select id from hosts where id = @host_id for no key update;

-- name: AppendOutboxLater :exec
insert into outbox (kind, key, reason, next_attempt_at)
values (@kind, @key, @reason, clock_timestamp() + make_interval(secs => @delay_seconds::double precision));
