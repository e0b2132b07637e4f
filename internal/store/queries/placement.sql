-- Capacity: what a planner sees, and the claim that holds it.

-- name: InstanceShape :one
select s.gpu_model, s.gpu_mode, s.profile, s.gpu_count, s.memory_mib, s.sm_count, s.vcpu, s.ram_mib, p.tenancy
from skus s cross join pools p
where s.id = @sku_id and p.id = @pool_id;

-- name: PlacementHosts :many
select h.id, h.state, h.liveness, h.vcpu, h.vcpu_used, h.ram_mib, h.ram_mib_used, b.org_id as bound_org_id
from hosts h left join host_bindings b on b.host_id = h.id
where h.cell_id = @cell_id and h.pool_id = @pool_id and h.state <> 'retired'
  and (sqlc.narg('host_id')::uuid is null or h.id = sqlc.narg('host_id'))
order by h.id;

-- name: PlacementGPUs :many
select g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, g.mode_state, g.health, g.present, g.simulated, b.org_id as bound_org_id
from gpus g join hosts h on h.id = g.host_id left join gpu_bindings b on b.gpu_id = g.id
where h.cell_id = @cell_id and h.pool_id = @pool_id and h.state <> 'retired' and g.present
  and (sqlc.narg('host_id')::uuid is null or h.id = sqlc.narg('host_id'))
  and (sqlc.narg('model')::text is null or g.model = sqlc.narg('model'))
order by g.id;

-- name: PlacementSlots :many
select s.gpu_id, s.gpu_mode, s.profile_id, s.profile, s.start_unit, s.size_units, s.compute
from claim_slots s
where s.gpu_id = any(@gpu_ids::uuid[])
order by s.gpu_id, s.start_unit;

-- name: GPUInventories :many
select hash, body from gpu_inventories where hash = any(@hashes::bytea[]);

-- name: LockHostGPUs :exec
select id from gpus where host_id = @host_id order by id for no key update;

-- name: InsertAssignment :one
insert into assignments (org_id, id, instance_id, run, host_id, cell_id, ordered_at, ordered_biz)
values (@org_id, @assignment_id, @instance_id, @run, @host_id, @cell_id, clock_timestamp(), biz_now())
returning ordered_at;

-- name: BindHost :exec
insert into host_bindings (host_id, org_id) values (@host_id, @org_id) on conflict (host_id) do nothing;

-- name: BindGPU :exec
insert into gpu_bindings (gpu_id, mode, org_id) values (@gpu_id, @mode, @org_id) on conflict (gpu_id) do nothing;

-- name: InsertClaim :exec
insert into claims (org_id, id, kind, holder_id, cell_id, host_id, bound_host_id, vcpu, ram_mib)
values (@org_id, @claim_id, 'assignment', @assignment_id, @cell_id, @host_id, @bound_host_id, @vcpu, @ram_mib);

-- name: InsertCells :execrows
insert into claim_cells (gpu_id, unit, org_id, claim_id)
select @gpu_id, unnest(@cell_units::integer[]), @org_id, @claim_id
on conflict (gpu_id, unit) do nothing;

-- name: InsertClaimSlot :exec
insert into claim_slots (org_id, claim_id, gpu_id, ordinal, gpu_mode, profile_id, profile, start_unit, size_units, compute,
  memory_mib, sm_count, bound_gpu_id)
values (@org_id, @claim_id, @gpu_id, @ordinal, @gpu_mode, @profile_id, @profile, @start_unit, @size_units, @compute,
  @memory_mib, @sm_count, @bound_gpu_id);
