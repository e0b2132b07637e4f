-- What people read of feeds: events and samples, page by page.

-- name: EventRows :many
-- Newest first. A prefix ends in a dot.
select e.tx::text as tx, e.id, e.event_id, e.org_id, e.project_id, e.type, e.subject_id, e.data, e.at
from events e
where (@type::text = '' or e.type = @type::text or (@is_prefix::boolean and starts_with(e.type, @type::text)))
  and (sqlc.narg('subject_id')::uuid is null or e.subject_id = sqlc.narg('subject_id'))
  and (@before_id::bigint = 0 or (e.tx, e.id) < (cast(@before_tx::text as xid8), @before_id::bigint))
order by e.tx desc, e.id desc limit @size;

-- name: SampleRows :many
select s.host_id, s.spool_id, s.ordinal, s.at, s.interval_ms, s.source, s.gap, s.readings
from slice_samples s
where s.org_id = @org_id and s.instance_id = @instance_id and s.at >= @from_at and s.at < @to_at
  and (s.at, s.host_id, s.spool_id, s.ordinal)
    > (@after_at::timestamptz, @after_host::uuid, @after_spool::bigint, @after_ordinal::integer)
order by s.at, s.host_id, s.spool_id, s.ordinal limit @size;

-- name: GPUTenants :many
-- The runs that are meant to be on a GPU, each with what its instance pays an hour.
select distinct i.org_id, i.project_id, i.id, i.status, i.currency, coalesce(least(i.locked_price, (
    select p.amount from price_versions v join prices p on p.price_version_id = v.id and p.sku_id = i.sku_id and p.meter = 'gpu'
    where v.price_book_id = i.price_book_id and v.effective_from <= n.at order by v.effective_from desc limit 1
  ))::text, '')::text as price
from (select biz_now() as at) n
cross join claim_slots s
join claims c on c.org_id = s.org_id and c.id = s.claim_id and c.kind = 'assignment'
join assignments a on a.org_id = c.org_id and a.id = c.holder_id and a.state in ('claimed', 'applied')
join instances i on i.org_id = a.org_id and i.id = a.instance_id
where s.gpu_id = @gpu_id
order by i.id;

-- name: ProgressOf :many
-- What takes long while a run is prepared.
select a.instance_id, o.progress
from assignments a
join observed_slices o on o.host_id = a.host_id and o.assignment_id = a.id and o.fence = a.fence and o.run = a.run
where a.org_id = @org_id and a.instance_id = any(@instance_ids::uuid[]) and a.state in ('claimed', 'applied') and o.progress <> '';
