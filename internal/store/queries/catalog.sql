-- SKUs, offers and pools.

-- name: GetPool :one
select p.id, p.cell_id, p.tenancy, c.region_id from pools p join cells c on c.id = p.cell_id where p.id = @pool_id;

-- name: FindSKU :one
select * from skus where content_hash = @content_hash;

-- name: InsertSKU :execrows
insert into skus (id, code, content_hash, gpu_model, mode, gpu_mode, profile, gpu_count, memory_mib, sm_count, sm_percent,
  isolation_gpu, isolation_host, vcpu, ram_mib)
values (@sku_id, @code, @content_hash, @gpu_model, @mode, @gpu_mode, @profile, @gpu_count, @memory_mib, @sm_count, @sm_percent,
  @isolation_gpu, @isolation_host, @vcpu, @ram_mib)
on conflict do nothing;

-- name: PutOffer :exec
-- Equal content changes nothing, not even the generation.
insert into offers (id, sku_id, pool_id, region_id, enabled) values (@offer_id, @sku_id, @pool_id, @region_id, @enabled)
on conflict (id) do update set sku_id = excluded.sku_id, pool_id = excluded.pool_id, region_id = excluded.region_id,
  enabled = excluded.enabled, generation = offers.generation + 1, updated_at = clock_timestamp()
where (offers.sku_id, offers.pool_id, offers.region_id, offers.enabled)
  is distinct from (excluded.sku_id, excluded.pool_id, excluded.region_id, excluded.enabled);

-- name: OffersOfOrg :many
-- Enabled offers with a price in the organization's book, effective now.
select sqlc.embed(o), sqlc.embed(s), b.price_book_id, v.id as price_version_id, k.currency, p.amount::text as amount
from (select biz_now() as at) n
join organization_price_books b on b.org_id = @org_id and b.during @> n.at
join price_books k on k.id = b.price_book_id
join lateral (select w.id from price_versions w where w.price_book_id = b.price_book_id and w.effective_from <= n.at
  order by w.effective_from desc limit 1) v on true
join prices p on p.price_version_id = v.id and p.meter = 'gpu'
join offers o on o.sku_id = p.sku_id and o.enabled
join skus s on s.id = o.sku_id
where (sqlc.narg(offer_id)::text is null or o.id = sqlc.narg(offer_id)::text)
  and (sqlc.narg(gpu_model)::text is null or s.gpu_model = sqlc.narg(gpu_model)::text)
  and (sqlc.narg(mode)::text is null or s.mode = sqlc.narg(mode)::text)
  and (sqlc.narg(region)::text is null or o.region_id = sqlc.narg(region)::text)
  and o.id > @after::text
order by o.id limit @size;

-- name: AllOffers :many
-- Every offer, with its price in the oldest default book that prices it.
select sqlc.embed(o), sqlc.embed(s), coalesce(q.currency, '')::text as currency, coalesce(q.amount, '')::text as amount
from (select biz_now() as at) n
cross join offers o
join skus s on s.id = o.sku_id
left join lateral (
  select k.currency, p.amount::text as amount
  from price_books k
  join lateral (select w.id from price_versions w where w.price_book_id = k.id and w.effective_from <= n.at
    order by w.effective_from desc limit 1) v on true
  join prices p on p.price_version_id = v.id and p.meter = 'gpu' and p.sku_id = o.sku_id
  where k.is_default order by k.created_at limit 1) q on true
where (sqlc.narg(offer_id)::text is null or o.id = sqlc.narg(offer_id)::text)
  and (sqlc.narg(gpu_model)::text is null or s.gpu_model = sqlc.narg(gpu_model)::text)
  and (sqlc.narg(mode)::text is null or s.mode = sqlc.narg(mode)::text)
  and (sqlc.narg(region)::text is null or o.region_id = sqlc.narg(region)::text)
  and (not @listed::boolean or (o.enabled and q.amount is not null))
  and o.id > @after::text
order by o.id limit @size;

-- name: OfferExists :one
select exists (select 1 from offers where id = @offer_id and enabled)::boolean;
