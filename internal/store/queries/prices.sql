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

-- name: InsertPrice :exec
insert into prices (price_version_id, sku_id, meter, amount)
values (@version_id, @sku_id, @meter, cast(@amount::text as numeric));

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
select v.id as version_id, p.sku_id, p.meter, p.amount::text as amount
from price_versions v join prices p on p.price_version_id = v.id
where v.price_book_id = any(@book_ids::uuid[]);

-- name: OffersOfSKUs :many
select id, sku_id from offers where sku_id = any(@sku_ids::uuid[]) order by id;

-- name: SKUsOfOffers :many
select id, sku_id from offers where id = any(@offer_ids::text[]) order by id;
