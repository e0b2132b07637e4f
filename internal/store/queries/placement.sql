-- Capacity: what a planner sees, and the claim that holds it.

-- name: InstanceShape :one
select s.gpu_model, s.gpu_mode, s.profile, s.gpu_count, s.memory_mib, s.sm_count, s.vcpu, s.ram_mib, p.tenancy
from skus s cross join pools p
where s.id = @sku_id and p.id = @pool_id;

-- name: PlacementHosts :many
select h.id, h.state, h.liveness, h.vcpu, h.vcpu_used, h.ram_mib, h.ram_mib_used, b.org_id as bound_org_id
from hosts h left join host_bindings b on b.host_id = h.id
where h.cell_id = @cell_id and h.pool_id = @pool_id and h.state <> 'retired'
order by h.id;

-- name: PlacementGPUs :many
select g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, g.mode_state, g.health, g.present, g.simulated, b.org_id as bound_org_id
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
  select x.id, x.state, x.liveness, x.vcpu, x.vcpu_used, x.ram_mib, x.ram_mib_used, x.pool_id
  from hosts x where x.id = @host_id for no key update
)
select h.state, h.liveness, h.vcpu, h.vcpu_used, h.ram_mib, h.ram_mib_used, h.pool_id,
  g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, g.mode_state, g.health, g.present, g.simulated
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
