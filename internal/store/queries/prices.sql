-- Price books: versions and prices are immutable once written.

-- name: InsertPriceBook :one
insert into price_books (id, name, currency, is_default)
values (@price_book_id, @name, @currency, @is_default)
returning created_at;

-- name: HasDefaultPriceBook :one
select exists (select 1 from price_books where currency = @currency and is_default)::boolean;

-- name: UnsetDefaultPriceBook :exec
update price_books set is_default = false where currency = @currency and is_default;

-- name: AttachPriceBook :exec
-- Organizations of the currency that have no book yet get this one.
insert into organization_price_books (org_id, price_book_id, during)
select o.id, @price_book_id, tstzrange(@since::timestamptz, null, '[)')
from organizations o
where o.currency = @currency and not exists (select 1 from organization_price_books b where b.org_id = o.id);

-- name: LockPriceBook :one
select id from price_books where id = @price_book_id for no key update;

-- name: InsertPriceVersion :one
insert into price_versions (id, price_book_id, version, effective_from, created_by)
values (@version_id, @price_book_id, @version, @effective_from, @created_by)
returning created_at;

-- name: InsertPrices :exec
insert into prices (price_version_id, sku_id, meter, amount, tiering, package_size)
select @version_id, t.sku_id, t.meter, t.amount::numeric, t.tiering, nullif(t.package_size, '')::numeric
from (select unnest(@sku_ids::uuid[]) as sku_id, unnest(@meters::text[]) as meter, unnest(@amounts::text[]) as amount,
  unnest(@tierings::text[]) as tiering, unnest(@package_sizes::text[]) as package_size) as t;

-- name: InsertPriceSteps :exec
insert into price_steps (price_version_id, sku_id, meter, step, up_to, amount)
select @version_id, t.sku_id, t.meter, t.step, nullif(t.up_to, '')::numeric, t.amount::numeric
from (select unnest(@sku_ids::uuid[]) as sku_id, unnest(@meters::text[]) as meter, unnest(@steps::integer[]) as step,
  unnest(@up_tos::text[]) as up_to, unnest(@amounts::text[]) as amount) as t;

-- name: ListPriceBooks :many
select id, name, currency, is_default, created_at from price_books
where sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid
order by id desc limit @size;

-- name: PriceBooks :many
select id, name, currency, is_default, created_at from price_books where id = any(@book_ids::uuid[]) order by id;

-- name: PriceVersions :many
select id, price_book_id, version, effective_from, created_at from price_versions
where price_book_id = any(@book_ids::uuid[]) order by price_book_id, version;

-- name: PricesOfBooks :many
select v.id as version_id, p.sku_id, p.meter, p.amount::text as amount, p.tiering, coalesce(p.package_size::text, '')::text as package_size
from price_versions v join prices p on p.price_version_id = v.id
where v.price_book_id = any(@book_ids::uuid[]);

-- name: OffersOfSKUs :many
select id, sku_id from offers where sku_id = any(@sku_ids::uuid[]) order by id;

-- name: SKUsOfOffers :many
select id, sku_id from offers where id = any(@offer_ids::text[]) order by id;

-- name: PriceStepsOfBooks :many
select s.price_version_id as version_id, s.sku_id, s.meter, coalesce(s.up_to::text, '')::text as up_to, s.amount::text as amount
from price_versions v join price_steps s on s.price_version_id = v.id
where v.price_book_id = any(@book_ids::uuid[])
order by s.price_version_id, s.sku_id, s.meter, s.step;

-- name: LockOrganizationBooks :exec
-- A statement of its own: the next one then sees what the one before it in the queue wrote.
select id from organizations where id = @org_id for no key update;

-- name: NewestBookAssignment :one
select coalesce(max(lower(during)), timestamptz 'epoch')::timestamptz from organization_price_books where org_id = @org_id;

-- name: EndBookAssignment :exec
update organization_price_books set during = tstzrange(lower(during), @until::timestamptz, '[)')
where org_id = @org_id and upper_inf(during);

-- name: InsertBookAssignment :exec
insert into organization_price_books (org_id, price_book_id, during)
values (@org_id, @price_book_id, tstzrange(@since::timestamptz, null, '[)'));

-- name: BookAssignments :many
select b.price_book_id, k.name, lower(b.during)::timestamptz as from_at, coalesce(upper(b.during), lower(b.during))::timestamptz as to_at,
  upper_inf(b.during)::boolean as is_open
from organization_price_books b join price_books k on k.id = b.price_book_id
where b.org_id = @org_id order by lower(b.during);
