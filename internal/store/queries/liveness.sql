-- Hosts that went silent, and the steps of a host.

-- name: SilentHosts :many
-- Silence counts only while somebody writes proofs down, and from when that began.
select h.id, h.cell_id, h.liveness,
  extract(epoch from clock_timestamp() - greatest(l.last_proof_at, w.since))::double precision as silence
from hosts h
join host_liveness l on l.host_id = h.id
join liveness_writers w on w.cell_id = h.cell_id
where h.liveness in ('live', 'suspect')
  and w.last_write_at > clock_timestamp() - interval '15 seconds'
  and (h.liveness = 'suspect' or clock_timestamp() - greatest(l.last_proof_at, w.since) > interval '30 seconds');

-- name: SetLiveness :execrows
update hosts set liveness = @liveness, revision = revision + 1 where id = @host_id and liveness = @was;

-- name: InstancesOnUnknownHosts :many
select distinct i.id
from hosts h
join assignments a on a.host_id = h.id and a.state in ('claimed', 'applied')
join instances i on i.org_id = a.org_id and i.id = a.instance_id
where h.liveness = 'unknown' and i.status = 'running'
limit @size;

-- name: SettleProofOfSilentRun :one
-- The heartbeats of its host are proof of a run that was not reported ended.
update run_proofs p set last_proof_at = greatest(p.last_proof_at, coalesce(
  (select l.last_proof_biz from host_liveness l where l.host_id = p.host_id), p.last_proof_at))
where p.assignment_id = @assignment_id and p.ended_at is null
returning p.last_proof_at::timestamptz as last_proof_at;

-- name: LockHostProgress :one
select h.id, h.cell_id, h.state, h.liveness, h.generation, h.converged_generation, h.next_wake_at,
  coalesce(s.session, 0)::bigint as session,
  coalesce(h.inventory_at is not null and h.inventory_at >= s.started_at, false)::boolean as inventory_complete
from hosts h left join host_sessions s on s.host_id = h.id
where h.id = @host_id for no key update of h;

-- name: SaveHostProgress :exec
update hosts set state = @state, converged_generation = @converged_generation, next_wake_at = @next_wake_at, revision = revision + 1
where id = @host_id;
