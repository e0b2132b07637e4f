-- name: ClaimedGPUs :many
select g.id, g.host_id, g.uuid, g.pci, g.model, g.name, g.memory_mib, g.sm_count, g.inventory_hash,
  g.mode_observed, g.mode_state, g.health, g.present, g.simulated, b.org_id as bound_org_id
from gpus g left join gpu_bindings b on b.gpu_id = g.id
where exists (select 1 from claim_slots s where s.gpu_id = g.id)
order by g.id;

-- name: NewestInvoices :many
select org_id, id, coalesce(number, '')::text as number from invoices
where status = 'open' and live and kind = 'usage' order by finalized_at desc limit @size;
