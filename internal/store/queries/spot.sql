-- Spot series: appended, never changed; a price holds until the next one begins.

-- name: SerializeSpotSeries :exec
select pg_advisory_xact_lock(hashtextextended('tranche spot ' || @region::text || cast(@sku_id::uuid as text) || @currency::text, 0));

-- name: InsertSpotPrice :exec
insert into spot_prices (region_id, sku_id, currency, effective_from, amount, created_by)
values (@region, @sku_id, @currency, @effective_from, cast(@amount::text as numeric), @created_by);

-- name: SpotPrices :many
-- The pieces of one series that touch a window.
select s.from_at, s.to_at, s.is_last, s.amount
from (select p.effective_from as from_at, coalesce(lead(p.effective_from) over (order by p.effective_from), p.effective_from)::timestamptz as to_at,
    (lead(p.effective_from) over (order by p.effective_from) is null)::boolean as is_last, p.amount::text as amount
  from spot_prices p where p.region_id = @region and p.sku_id = @sku_id and p.currency = @currency) as s
where s.from_at < @to_at::timestamptz and (s.is_last or s.to_at > @from_at::timestamptz)
order by s.from_at;

-- name: SpotPricesOfUsage :many
-- The pieces that touch a window of every series with spot usage in it.
select s.region_id, s.sku_id, s.from_at, s.to_at, s.is_last, s.amount, s.currency
from (select p.region_id, p.sku_id, p.currency, p.effective_from as from_at,
    coalesce(lead(p.effective_from) over series, p.effective_from)::timestamptz as to_at,
    (lead(p.effective_from) over series is null)::boolean as is_last, p.amount::text as amount
  from spot_prices p
  join (select distinct u.region, u.sku_id from usage_segments u where u.org_id = @org_id and u.pricing_kind = 'spot'
      and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')) as used
    on used.region = p.region_id and used.sku_id = p.sku_id
  where p.currency = (select o.currency from organizations o where o.id = @org_id)
  window series as (partition by p.region_id, p.sku_id order by p.effective_from)) as s
where s.from_at < @to_at::timestamptz and (s.is_last or s.to_at > @from_at::timestamptz)
order by s.region_id, s.sku_id, s.from_at;

-- name: SeriesOfOffer :one
-- What an offer sells and where: it has one series in each currency.
select sku_id, region_id from offers where id = @offer_id;
