-- Hosts, their GPUs, join tokens and sessions of agents.

-- name: InsertJoinToken :one
insert into join_tokens (id, hash, pool_id, host_name, cidr, auto_approve, max_hosts, created_by, expires_at)
select @token_id, @hash, p.id, @host_name, @cidr, @auto_approve, @max_hosts, @created_by,
  clock_timestamp() + make_interval(secs => @ttl_seconds::double precision)
from pools p where p.id = @pool_id
returning *;

-- name: ListJoinTokens :many
select * from join_tokens
where sqlc.narg('before')::uuid is null or id < sqlc.narg('before')
order by id desc limit @size;

-- name: RevokeJoinToken :one
update join_tokens set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = @token_id returning *;

-- name: LockJoinToken :one
select t.*, (t.expires_at <= clock_timestamp())::boolean as expired, p.auto_approve as pool_approves, p.cell_id
from join_tokens t join pools p on p.id = t.pool_id
where t.id = @token_id for update of t;

-- name: UseJoinToken :exec
update join_tokens set used = used + 1 where id = @token_id;

-- name: Installation :one
select id, timeline from installations;

-- name: LockHostByKey :one
select id, name, state, cert_revoked_at from hosts where public_key = @public_key for no key update;

-- name: InsertHost :exec
insert into hosts (id, cell_id, pool_id, name, state, machine_id, public_key, csr, join_token_id, approved_by, agent_version)
values (@host_id, @cell_id, @pool_id, @name, @state, @machine_id, @public_key, @csr, @join_token_id, @approved_by, @agent_version);

-- name: SetHostCertificate :exec
update hosts set cert_serial = @serial, cert_not_after = @not_after, revision = revision + 1 where id = @host_id;

-- name: HostStanding :one
select state, cert_revoked_at, public_key from hosts where id = @host_id;

-- name: LockHostState :one
select state, generation, cell_id from hosts where id = @host_id for no key update;

-- name: MoveHost :exec
update hosts set state = @state, reason = @reason, approved_by = coalesce(sqlc.narg('approved_by'), approved_by),
  generation = generation + 1, revision = revision + 1, next_wake_at = clock_timestamp() + interval '30 seconds'
where id = @host_id;

-- name: GetHost :one
select sqlc.embed(h), c.region_id,
  b.org_id as bound_org, l.last_proof_at,
  (select count(*) from gpus g where g.host_id = h.id and g.present)::integer as gpu_count
from hosts h join cells c on c.id = h.cell_id
left join host_bindings b on b.host_id = h.id
left join host_liveness l on l.host_id = h.id
where h.id = @host_id;

-- name: ListHosts :many
select sqlc.embed(h), c.region_id,
  b.org_id as bound_org, l.last_proof_at,
  (select count(*) from gpus g where g.host_id = h.id and g.present)::integer as gpu_count
from hosts h join cells c on c.id = h.cell_id
left join host_bindings b on b.host_id = h.id
left join host_liveness l on l.host_id = h.id
where (@state::text = '' or h.state = @state) and h.name > @after::text
order by h.name limit @size;

-- name: ListGPUs :many
select sqlc.embed(g),
  b.org_id as bound_org, hb.org_id as host_org,
  (select count(*) from claim_cells x where x.gpu_id = g.id)::integer as units_claimed, m.id as mode_change
from gpus g
left join mode_changes m on m.gpu_id = g.id and m.status in ('draining', 'switching')
left join gpu_bindings b on b.gpu_id = g.id
left join host_bindings hb on hb.host_id = g.host_id
where (sqlc.narg('host_id')::uuid is null or g.host_id = sqlc.narg('host_id'))
  and (sqlc.narg('gpu_id')::uuid is null or g.id = sqlc.narg('gpu_id'))
  and (sqlc.narg('after_host')::uuid is null
    or (g.host_id, g.ordinal, g.id) > (sqlc.narg('after_host')::uuid, @after_ordinal::integer, @after_gpu::uuid))
order by g.host_id, g.ordinal, g.id limit @size;

-- name: EnsureSession :exec
insert into host_sessions (host_id) values (@host_id) on conflict do nothing;

-- name: LockSession :one
-- The silence of an open stream counts from its last proof, or from its start.
select s.session, s.boot_id, s.process_nonce, s.stream_counter, s.gateway,
  coalesce(extract(epoch from clock_timestamp() - greatest(l.last_proof_at, s.started_at)), 1e9)::double precision as silence
from host_sessions s left join host_liveness l on l.host_id = s.host_id
where s.host_id = @host_id for update of s;

-- name: BeginSession :one
update host_sessions set session = session + 1, boot_id = @boot_id, process_nonce = @process_nonce,
  stream_counter = @stream_counter, gateway = @gateway, started_at = clock_timestamp(), applied_version = 0,
  timeline = (select timeline from installations)
where host_id = @host_id
returning session, timeline;

-- name: EndSession :exec
update host_sessions set gateway = '' where host_id = @host_id and session = @session;

-- name: EndGatewaySessions :exec
update host_sessions set gateway = '' where gateway = @gateway;

-- name: NoteAgent :exec
update hosts set agent_version = @agent_version, machine_id = @machine_id, revision = revision + 1
where id = @host_id and (agent_version, machine_id) <> (@agent_version, @machine_id);

-- name: KeepRunProofs :exec
-- What the old stream's heartbeats proved, before a new stream overwrites it.
update run_proofs p set last_proof_at = l.last_proof_biz
from host_liveness l
where p.host_id = @host_id and p.ended_at is null and l.host_id = p.host_id and l.last_proof_biz > p.last_proof_at;

-- name: TouchLiveness :exec
insert into host_liveness (host_id, session, last_proof_at, last_proof_biz)
select @host_id, @session, t, biz_at(t) from (select clock_timestamp() as t) as s
on conflict (host_id) do update
  set session = excluded.session, last_proof_at = excluded.last_proof_at, last_proof_biz = excluded.last_proof_biz;

-- name: RecordProofs :exec
-- One batch of a gateway; a proof of an old session proves nothing.
insert into host_liveness (host_id, session, last_proof_at, last_proof_biz, uptime_ms)
select p.host_id, p.session, p.at, biz_at(p.at), p.uptime_ms
from (
  select unnest(@host_ids::uuid[]) as host_id, unnest(@sessions::bigint[]) as session,
    clock_timestamp() - make_interval(secs => unnest(@ages::double precision[])) as at,
    unnest(@uptimes::bigint[]) as uptime_ms
) p join host_sessions s on s.host_id = p.host_id and s.session = p.session
on conflict (host_id) do update
  set session = excluded.session, last_proof_at = excluded.last_proof_at,
      last_proof_biz = excluded.last_proof_biz, uptime_ms = excluded.uptime_ms
  where host_liveness.last_proof_at < excluded.last_proof_at;

-- name: RecordWriter :exec
update liveness_writers set
  since = case when clock_timestamp() - last_write_at > interval '15 seconds' then clock_timestamp() else since end,
  last_write_at = clock_timestamp();

-- name: SessionsToEnd :many
-- Streams of a gateway that lost their right: revoked, superseded, or silent for so
-- long that the host counts as unknown and must introduce itself again.
select m.host_id::uuid as host_id,
  (s.session is distinct from m.session)::boolean as superseded,
  (h.cert_revoked_at is not null or h.state in ('pending', 'retired'))::boolean as revoked,
  (h.liveness = 'unknown')::boolean as unknown
from (select unnest(@host_ids::uuid[]) as host_id, unnest(@sessions::bigint[]) as session) m
left join host_sessions s on s.host_id = m.host_id
join hosts h on h.id = m.host_id
where s.session is distinct from m.session or h.cert_revoked_at is not null
  or h.state in ('pending', 'retired') or h.liveness = 'unknown';

-- name: HoldSession :one
-- Until this transaction ends no other stream of the host may begin.
select session from host_sessions where host_id = @host_id for share;

-- name: InsertGPUInventory :exec
insert into gpu_inventories (hash, body) values (@hash, @body) on conflict do nothing;

-- name: GPUStandings :many
select id, uuid, health, present from gpus where host_id = @host_id for no key update;

-- name: UpsertGPU :exec
-- The wanted mode is the host's own setting, which obeys the last order; while a
-- change is under way, it is the change's.
insert into gpus (id, host_id, cell_id, uuid, pci, ordinal, model, name, memory_mib, sm_count, units, inventory_hash,
  mode_desired, mode_observed, mode_state, mode_problem, health, health_cause, health_detail, simulated)
values (@gpu_id, @host_id, @cell_id, @uuid, @pci, @ordinal, @model, @name, @memory_mib, @sm_count, @units, @inventory_hash,
  @mode_desired, @mode_observed, @mode_state, @mode_problem, @health, @health_cause, @health_detail, @simulated)
on conflict (host_id, uuid) do update set
  pci = excluded.pci, ordinal = excluded.ordinal, model = excluded.model, name = excluded.name,
  memory_mib = excluded.memory_mib, sm_count = excluded.sm_count, units = excluded.units,
  inventory_hash = excluded.inventory_hash, mode_observed = excluded.mode_observed, simulated = excluded.simulated,
  mode_desired = case when (excluded.simulated or @desired_known::boolean) and not gpus.cordoned
    then excluded.mode_desired else gpus.mode_desired end,
  mode_state = excluded.mode_state, mode_problem = excluded.mode_problem,
  health = excluded.health, health_cause = excluded.health_cause, health_detail = excluded.health_detail,
  health_since = case when gpus.health = excluded.health then gpus.health_since else clock_timestamp() end,
  present = true, revision = gpus.revision + 1;

-- name: HideOtherGPUs :exec
update gpus set present = false, revision = revision + 1
where host_id = @host_id and present and not (uuid = any (@uuids::text[]));

-- name: RecordHostInventory :one
-- What claims hold already stays held, even if the host says it shrank.
update hosts set vcpu = greatest(@vcpu::integer, vcpu_used), ram_mib = greatest(@ram_mib::bigint, ram_mib_used),
  simulated = @simulated, driver_version = @driver_version, inventory_at = clock_timestamp(),
  gpu_set_hash = @gpu_set_hash, runtime = @runtime, below_floor = @below_floor::text[], condition = @condition,
  condition_cause = @condition_cause, reach_address = @reach_address, reach_ssh_port = @reach_ssh_port,
  reach_ssh_host_key = @reach_ssh_host_key, reach_first_port = @reach_first_port, reach_last_port = @reach_last_port,
  reason = case when reason like 'inventory:%' then '' else reason end,
  revision = revision + 1
where id = @host_id
returning state;

-- name: HostGPUSet :one
select gpu_set_hash, cell_id, condition, below_floor from hosts where id = @host_id for no key update;

-- name: ForgetHostReason :exec
update hosts set reason = '', revision = revision + 1 where id = @host_id and starts_with(reason, @prefix);

-- name: NoteHostReason :exec
update hosts set reason = @reason, revision = revision + 1 where id = @host_id and reason <> @reason;
