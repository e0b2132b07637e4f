-- Changes of the mode of a GPU (SetMode), as rows.

-- name: LockGPU :one
select g.id, g.host_id, g.cell_id, g.uuid, g.mode_observed, g.mode_state, g.cordoned, g.present
from gpus g where g.id = @gpu_id for no key update;

-- name: InsertModeChange :one
insert into mode_changes (id, gpu_id, cell_id, mode_before, mode, policy, drain_by, requested_by, next_wake_at)
values (@change_id, @gpu_id, @cell_id, @mode_before, @mode, @policy, sqlc.narg('drain_by'), @requested_by,
  clock_timestamp() + interval '30 seconds')
returning *;

-- name: ModeChange :one
select sqlc.embed(m), g.host_id, g.uuid from mode_changes m join gpus g on g.id = m.gpu_id where m.id = @change_id;

-- name: LockModeChange :one
select sqlc.embed(m), g.host_id, g.uuid from mode_changes m join gpus g on g.id = m.gpu_id
where m.id = @change_id for no key update of m;

-- name: OpenModeChange :one
select id from mode_changes where gpu_id = @gpu_id and status in ('draining', 'switching');

-- name: SaveModeChange :execrows
update mode_changes set status = @status, epoch = @epoch, cancel_asked = @cancel_asked, problem_code = @problem_code,
  problem_detail = @problem_detail, next_wake_at = sqlc.narg('next_wake_at'),
  switched_at = case when @status = 'switching' then coalesce(switched_at, clock_timestamp()) else switched_at end,
  finished_at = case when @status in ('succeeded', 'failed', 'cancelled') then coalesce(finished_at, clock_timestamp()) end,
  revision = revision + 1
where id = @change_id and revision = @revision;

-- name: CordonGPU :exec
update gpus set cordoned = @cordoned, mode_desired = coalesce(sqlc.narg('mode_desired'), mode_desired), generation = generation + 1,
  revision = revision + 1
where id = @gpu_id;

-- name: RaiseModeEpoch :one
update gpus set mode_epoch = mode_epoch + 1 where id = @gpu_id returning mode_epoch;

-- name: ModeSight :one
select g.mode_observed, g.mode_state, g.mode_problem, g.health, g.health_cause, g.present, h.state, h.liveness
from gpus g join hosts h on h.id = g.host_id where g.id = @gpu_id;

-- name: ModeHolders :many
select distinct a.org_id, a.instance_id, a.id as assignment_id, a.state
from claim_slots s join claims c on c.id = s.claim_id and c.kind = 'assignment' join assignments a on a.id = c.holder_id
where s.gpu_id = @gpu_id order by a.id;

-- name: DueModeChanges :many
select id, gpu_id from mode_changes where next_wake_at <= clock_timestamp() order by next_wake_at limit @size;

-- name: OpenModeChangesOn :many
select m.gpu_id from mode_changes m join gpus g on g.id = m.gpu_id
where g.host_id = @host_id and m.status in ('draining', 'switching');
