-- Contracts: terms of one organization, immutable but for an earlier end.

-- name: InsertContract :exec
insert into contracts (org_id, id, name, currency, during, created_by, created_at)
values (@org_id, @contract_id, @name, @currency, tstzrange(@from_at::timestamptz, sqlc.narg('to_at')::timestamptz, '[)'),
  @created_by, @created_at);

-- name: InsertContractTerm :exec
insert into contract_terms (org_id, contract_id, no, kind, name, offer, scope_meter, scope_family, scope_sku, price, tiering,
  package_size, ppm, quantity, micros, hours, amount_minor, during)
select c.org_id, c.id, @no, @kind, @name, @offer, @scope_meter, @scope_family, sqlc.narg('scope_sku'),
  nullif(@price::text, '')::numeric, @tiering, nullif(@package_size::text, '')::numeric, sqlc.narg('ppm'),
  nullif(@quantity::text, '')::numeric, sqlc.narg('micros'), sqlc.narg('hours'), sqlc.narg('amount_minor'), c.during
from contracts c where c.org_id = @org_id and c.id = @contract_id;

-- name: InsertContractSteps :exec
insert into contract_steps (org_id, contract_id, no, step, up_to, amount)
select @org_id, @contract_id, @no, t.step, nullif(t.up_to, '')::numeric, t.amount::numeric
from (select unnest(@steps::integer[]) as step, unnest(@up_tos::text[]) as up_to, unnest(@amounts::text[]) as amount) as t;

-- name: LockContract :one
select id from contracts where org_id = @org_id and id = @contract_id for no key update;

-- name: EndContract :exec
update contracts set during = tstzrange(lower(during), @until::timestamptz, '[)'), ended_by = @ended_by, revision = revision + 1
where org_id = @org_id and id = @contract_id;

-- name: CancelContract :exec
update contracts set cancelled_at = @at::timestamptz, ended_by = @ended_by, revision = revision + 1
where org_id = @org_id and id = @contract_id;

-- name: EndContractTerms :exec
-- As their contract, which ended before.
update contract_terms t set during = c.during, cancelled_at = c.cancelled_at
from contracts c where c.org_id = t.org_id and c.id = t.contract_id and t.org_id = @org_id and t.contract_id = @contract_id;

-- name: ListContracts :many
select org_id, id, name, currency, lower(during)::timestamptz as from_at, coalesce(upper(during), lower(during))::timestamptz as to_at,
  upper_inf(during)::boolean as is_open, created_by, created_at, cancelled_at, ended_by
from contracts
where org_id = @org_id and (sqlc.narg('contract_id')::uuid is null or id = sqlc.narg('contract_id'))
  and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before'))
order by id desc limit @size;

-- name: ContractTerms :many
-- Of the contracts named, or of all; only those in force somewhere in the window, if one is given.
select t.contract_id, t.no, t.kind, t.name, t.offer, t.scope_meter, t.scope_family, t.scope_sku,
  coalesce(t.price::text, '')::text as price, t.tiering, coalesce(t.package_size::text, '')::text as package_size,
  coalesce(t.ppm, 0)::bigint as ppm, coalesce(t.quantity::text, '')::text as quantity, coalesce(t.micros, 0)::bigint as micros,
  coalesce(t.hours, 0)::bigint as hours, coalesce(t.amount_minor, 0)::bigint as amount_minor, c.currency,
  lower(t.during)::timestamptz as from_at, coalesce(upper(t.during), lower(t.during))::timestamptz as to_at,
  upper_inf(t.during)::boolean as is_open
from contract_terms t join contracts c on c.org_id = t.org_id and c.id = t.contract_id
where t.org_id = @org_id and (cardinality(@contract_ids::uuid[]) = 0 or t.contract_id = any(@contract_ids::uuid[]))
  and (sqlc.narg('from_at')::timestamptz is null
    or t.cancelled_at is null and t.during && tstzrange(sqlc.narg('from_at')::timestamptz, sqlc.narg('to_at')::timestamptz, '[)'))
order by t.contract_id, t.no;

-- name: ContractSteps :many
select contract_id, no, coalesce(up_to::text, '')::text as up_to, amount::text as amount
from contract_steps where org_id = @org_id and contract_id = any(@contract_ids::uuid[])
order by contract_id, no, step;

-- name: AgreedKinds :one
-- What there is to read of a window: most organizations agreed nothing.
select
  exists (select 1 from contract_terms t where t.org_id = @org_id and t.cancelled_at is null
    and t.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'))::boolean as contracts,
  exists (select 1 from reservations r where r.org_id = @org_id and r.cancelled_at is null
    and r.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'))::boolean as reservations,
  exists (select 1 from usage_segments u where u.org_id = @org_id and u.pricing_kind = 'spot'
    and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'))::boolean as spot;

-- name: EndedStarts :many
-- Starts of the gpu meter whose last segment ends inside the period, with the time
-- they had in earlier months and who ended them. What a month's seal closed goes on,
-- so it is never the last.
select u.start_id, max(upper(u.during))::timestamptz as ended_at,
  (array_agg(u.fault_party order by u.during desc))[1]::text as party,
  (array_agg(u.close_reason order by u.during desc))[1]::text as close_reason,
  coalesce(sum(case when lower(u.during) < @from_at::timestamptz
    then (extract(epoch from least(upper(u.during), @from_at::timestamptz) - lower(u.during)) * 1000000)::bigint else 0 end), 0)::bigint as earlier_us
from billable_segments u
where u.org_id = @org_id and u.meter = 'gpu' and u.start_id in (
  select w.start_id from billable_segments w
  where w.org_id = @org_id and w.meter = 'gpu' and w.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'))
group by u.start_id
having not bool_or(upper_inf(u.during)) and max(upper(u.during)) > @from_at::timestamptz and max(upper(u.during)) <= @to_at::timestamptz
order by u.start_id;

-- name: BeganEarlier :many
-- When starts of some subjects began, over all months, as of a close.
select u.start_id, min(lower(u.during))::timestamptz as began_at
from usage_segments u
where u.org_id = @org_id and u.meter = 'gpu' and u.subject_id = any(@subject_ids::uuid[]) and u.start_id = any(@start_ids::uuid[])
  and u.close_no <= @as_of::integer
group by u.start_id;
