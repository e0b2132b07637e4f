-- Reservations and the segments that charge them.

-- name: InsertReservation :exec
insert into reservations (org_id, id, project_id, name, offer_id, sku_id, family, region_id, units, price_book_id,
  locked_price_version_id, simulated, during, next_at, created_by, created_at)
values (@org_id, @reservation_id, @project_id, @name, @offer_id, @sku_id, @family, @region_id, @units, @price_book_id,
  sqlc.narg('locked_price_version_id'), @simulated, tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)'), @from_at::timestamptz,
  @created_by, @created_at);

-- name: LockReservation :one
select id from reservations where org_id = @org_id and id = @reservation_id for no key update;

-- name: EndReservation :exec
update reservations set during = tstzrange(lower(during), @until::timestamptz, '[)'), ended_by = @ended_by,
  next_at = least(next_at, @until), revision = revision + 1
where org_id = @org_id and id = @reservation_id;

-- name: CancelReservation :exec
update reservations set cancelled_at = @at::timestamptz, next_at = null, ended_by = @ended_by, revision = revision + 1
where org_id = @org_id and id = @reservation_id;

-- name: ListReservations :many
select r.org_id, r.id, r.project_id, r.name, r.offer_id, r.sku_id, r.family, r.region_id, r.units, r.price_book_id,
  r.locked_price_version_id, k.currency, coalesce(p.amount::text, '')::text as locked_price, r.simulated,
  lower(r.during)::timestamptz as from_at, upper(r.during)::timestamptz as to_at, r.created_by, r.created_at, r.cancelled_at, r.ended_by
from reservations r join price_books k on k.id = r.price_book_id
left join prices p on p.price_version_id = r.locked_price_version_id and p.sku_id = r.sku_id and p.meter = 'reservation'
where r.org_id = @org_id and (sqlc.narg('reservation_id')::uuid is null or r.id = sqlc.narg('reservation_id'))
  and (sqlc.narg('before')::uuid is null or r.id < sqlc.narg('before'))
order by r.id desc limit @size;

-- name: ReservationsTouching :many
select id, name, family, region_id, units, lower(during)::timestamptz as from_at, upper(during)::timestamptz as to_at
from reservations
where org_id = @org_id and cancelled_at is null and during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
order by id;

-- name: DueReservations :many
-- Reservations whose meter is to start or stop by the instant; each with its segment,
-- if it has one. Other workers skip what one holds.
select r.org_id, r.id, lower(r.during)::timestamptz as from_at, upper(r.during)::timestamptz as to_at, r.ended_by,
  exists (select 1 from usage_segments u where u.org_id = r.org_id and u.subject_id = r.id and u.meter = 'reservation')::boolean as started
from reservations r where r.next_at <= @at::timestamptz
order by r.next_at limit @size for update skip locked;

-- name: OpenReservationSegment :exec
insert into usage_segments (org_id, id, subject_kind, subject_id, project_id, meter, start_id, seq, run, units, sku_id, sku_snapshot,
  price_book_id, locked_price_version_id, region, isolation_gpu, isolation_host, subject_name, open_reason, simulated,
  billing_period, close_no, during)
select r.org_id, @segment_id, 'reservation', r.id, r.project_id, 'reservation', @start_id, 1, 0, r.units, r.sku_id,
  jsonb_build_object('code', s.code, 'gpu_model', s.gpu_model, 'mode', s.mode, 'profile', s.profile, 'gpu_count', s.gpu_count,
    'memory_mib', s.memory_mib, 'sm_count', s.sm_count, 'sm_percent', s.sm_percent),
  r.price_book_id, r.locked_price_version_id, r.region_id, s.isolation_gpu, s.isolation_host, r.name, 'reservation_started', r.simulated,
  @billing_period, usage_close_no(r.org_id, @at::timestamptz), tstzrange(@at::timestamptz, null, '[)')
from reservations r join skus s on s.id = r.sku_id
where r.org_id = @org_id and r.id = @reservation_id;

-- name: WakeReservation :exec
update reservations set next_at = sqlc.narg('next_at')::timestamptz where org_id = @org_id and id = @reservation_id;
