-- What hosts spool: samples and events, taken in once.

-- name: EnsureSpool :exec
insert into host_spools (host_id) values (@host_id) on conflict do nothing;

-- name: LockSpool :one
select taken from host_spools where host_id = @host_id for update;

-- name: AdvanceSpool :exec
update host_spools set taken = @taken, taken_at = clock_timestamp() where host_id = @host_id;

-- name: InsertSamples :exec
-- A sample of an assignment that is not this host's is left out.
insert into slice_samples (org_id, instance_id, assignment_id, run, host_id, spool_id, ordinal, at, interval_ms, source, gap, readings)
select a.org_id, a.instance_id, a.id, a.run, a.host_id, @spool_id, s.ordinal, @at, @interval_ms, s.source, s.gap, s.readings::jsonb
from (select unnest(@assignment_ids::uuid[]) as assignment_id, unnest(@sources::text[]) as source, unnest(@gaps::text[]) as gap,
    unnest(@readings::text[]) as readings, generate_subscripts(@assignment_ids::uuid[], 1) as ordinal) s
join assignments a on a.id = s.assignment_id and a.host_id = @host_id
on conflict do nothing;

-- name: SamplesOf :many
select * from slice_samples
where org_id = @org_id and instance_id = @instance_id and at >= @from_at and at < @to_at
order by at, spool_id, ordinal limit @size;

-- name: PruneSamples :execrows
delete from slice_samples where (host_id, spool_id, ordinal, at) in (
  select host_id, spool_id, ordinal, at from slice_samples where at < biz_now() - make_interval(days => @days::integer) limit @size);

-- name: AssignmentOwner :one
select a.org_id, a.instance_id, a.run, a.cell_id, i.project_id
from assignments a join instances i on i.org_id = a.org_id and i.id = a.instance_id
where a.id = @assignment_id and a.host_id = @host_id;

-- name: GPUOnHost :one
select id, health from gpus where host_id = @host_id and uuid = @uuid;

-- name: HostCell :one
select cell_id from hosts where id = @host_id;

-- name: AppendEventAt :exec
insert into events (org_id, project_id, cell_id, type, subject_id, data, at)
values (@org_id, sqlc.narg('project_id'), sqlc.narg('cell_id'), @type, @subject_id, @data, @at);
