-- Capacity: what a planner sees, and the claim that holds it.

-- name: InstanceShape :one
select s.gpu_model, s.gpu_mode, s.profile, s.gpu_count, s.memory_mib, s.sm_count, s.vcpu, s.ram_mib, p.tenancy
from skus s cross join pools p
where s.id = @sku_id and p.id = @pool_id;

-- name: PlacementHosts :many
select h.id, h.state, h.liveness, h.condition, (cardinality(h.below_floor) > 0)::boolean as below_floor,
  h.vcpu, h.vcpu_used, h.ram_mib, h.ram_mib_used, b.org_id as bound_org_id,
  case when @ports::boolean and h.reach_first_port > 0
    then h.reach_last_port - h.reach_first_port + 1 - (select count(distinct p.port) from host_ports p where p.host_id = h.id)::integer
    else 0 end::integer as ports_free,
  case when cardinality(h.below_floor) > 0
    then exists (select 1 from claims c where c.host_id = h.id and c.org_id <> @org_id) else false end::boolean as holds_others
from hosts h left join host_bindings b on b.host_id = h.id
where h.cell_id = @cell_id and h.pool_id = @pool_id and h.state <> 'retired'
order by h.id;

-- name: PlacementGPUs :many
select g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, case when g.cordoned then 'draining' else g.mode_state end::text as mode_state, g.health, g.present,
  g.simulated, b.org_id as bound_org_id
from gpus g join hosts h on h.id = g.host_id left join gpu_bindings b on b.gpu_id = g.id
where h.cell_id = @cell_id and h.pool_id = @pool_id and h.state <> 'retired' and g.present and (@model::text = '' or g.model = @model)
order by g.id;

-- name: PlacementSlots :many
select s.gpu_id, s.gpu_mode, s.profile_id, s.profile, s.start_unit, s.size_units, s.compute
from claim_slots s
where s.gpu_id = any(@gpu_ids::uuid[])
order by s.gpu_id, s.start_unit;

-- name: GPUInventories :many
select hash, body from gpu_inventories where hash = any(@hashes::bytea[]);

-- name: LockPlacement :many
-- The host's row is locked before those of its GPUs, which are in order of their ids.
with h as materialized (
  select x.id, x.state, x.liveness, x.condition, (cardinality(x.below_floor) > 0)::boolean as below_floor, x.vcpu, x.vcpu_used, x.ram_mib, x.ram_mib_used, x.pool_id
  from hosts x where x.id = @host_id for no key update
)
select h.state, h.liveness, h.condition, h.below_floor, h.vcpu, h.vcpu_used, h.ram_mib, h.ram_mib_used, h.pool_id,
  g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, case when g.cordoned then 'draining' else g.mode_state end::text as mode_state, g.health, g.present, g.simulated
from h join gpus g on g.host_id = h.id and g.present and g.model = @model
order by g.id for no key update of g;

-- name: HostHoldings :many
-- What is held on a locked host: its binding first, then the slots of its GPUs.
select b.org_id as host_org_id, g.id as gpu_id, gb.org_id as gpu_org_id, s.gpu_mode, s.profile_id, s.profile,
  s.start_unit, s.size_units, s.compute
from hosts h
left join host_bindings b on b.host_id = h.id
left join gpus g on g.host_id = h.id and g.model = @model
left join gpu_bindings gb on gb.gpu_id = g.id
left join claim_slots s on s.gpu_id = g.id
where h.id = @host_id
order by g.id, s.start_unit;

-- name: HoldsOthers :one
select exists (select 1 from claims where host_id = @host_id and org_id <> @org_id)::boolean;

-- name: LeasePorts :many
-- The lowest free ports of the host's range, one for each asked for, in their order.
-- The host is locked. Fewer rows than asked for mean that the range is exhausted.
with wanted as (
  select p.container_port, p.protocol, p.n from (
    select unnest(@container_ports::integer[]) as container_port, unnest(@protocols::text[]) as protocol,
      generate_subscripts(@container_ports::integer[], 1) as n) p
), free as (
  select s.port, row_number() over (order by s.port) as n
  from hosts h cross join lateral generate_series(h.reach_first_port, h.reach_last_port) as s(port)
  where h.id = @host_id and h.reach_first_port > 0
    and not exists (select 1 from host_ports x where x.host_id = h.id and x.port = s.port)
  order by s.port limit cardinality(@container_ports::integer[])
)
insert into host_ports (host_id, port, protocol, org_id, claim_id, assignment_id, container_port)
select @host_id, f.port, w.protocol, @org_id, @claim_id, @assignment_id, w.container_port
from wanted w join free f on f.n = w.n
returning port, protocol, container_port;

-- name: EndpointsOf :many
-- Where instances are reached: of the assignment that carries the wanted run.
select a.instance_id, h.reach_address, h.reach_ssh_port, h.reach_ssh_host_key,
  coalesce(p.port, 0)::integer as port, coalesce(p.protocol, '')::text as protocol,
  coalesce(p.container_port, 0)::integer as container_port
from assignments a
join instances i on i.org_id = a.org_id and i.id = a.instance_id and i.run = a.run
join hosts h on h.id = a.host_id
left join host_ports p on p.assignment_id = a.id
where a.org_id = @org_id and a.instance_id = any(@instance_ids::uuid[]) and a.state in ('claimed', 'applied')
  and h.reach_address <> ''
order by a.instance_id, p.container_port, p.protocol;

-- name: BindHost :exec
insert into host_bindings (host_id, org_id) values (@host_id, @org_id) on conflict (host_id) do nothing;

-- name: BindGPUs :exec
insert into gpu_bindings (gpu_id, mode, org_id) select unnest(@gpu_ids::uuid[]), @mode, @org_id
on conflict (gpu_id) do nothing;

-- name: Claim :one
-- One statement, because the host is locked meanwhile. The caller compares the
-- cells: fewer than asked for means that another claim has one of them.
with assignment as (
  insert into assignments (org_id, id, instance_id, run, host_id, cell_id, ordered_at, ordered_biz)
  values (@org_id, @assignment_id, @instance_id, @run, @host_id, @cell_id, clock_timestamp(), biz_now())
  returning ordered_at
), claim as (
  insert into claims (org_id, id, kind, holder_id, cell_id, host_id, bound_host_id, vcpu, ram_mib)
  values (@org_id, @claim_id, 'assignment', @assignment_id, @cell_id, @host_id, sqlc.narg('bound_host_id'), @vcpu, @ram_mib)
), held as (
  insert into claim_cells (gpu_id, unit, org_id, claim_id)
  select unnest(@cell_gpu_ids::uuid[]), unnest(@cell_units::integer[]), @org_id, @claim_id
  on conflict (gpu_id, unit) do nothing
  returning unit
), slots as (
  insert into claim_slots (org_id, claim_id, gpu_id, ordinal, gpu_mode, profile_id, profile, start_unit, size_units, compute,
    memory_mib, sm_count, bound_gpu_id)
  select @org_id, @claim_id, s.gpu_id, s.ordinal, @gpu_mode, @profile_id, @profile, s.start_unit, @size_units, @compute,
    s.memory_mib, s.sm_count, case when @bound::boolean then s.gpu_id end
  from (select unnest(@gpu_ids::uuid[]) as gpu_id, unnest(@starts::integer[]) as start_unit,
      unnest(@memories::bigint[]) as memory_mib, unnest(@sms::integer[]) as sm_count,
      generate_series(0, cardinality(@gpu_ids::uuid[]) - 1) as ordinal) s
), told as (
  insert into host_desired (cell_id, host_id) values (@cell_id, @host_id)
)
select ordered_at, (select count(*) from held)::integer as cells from assignment;
