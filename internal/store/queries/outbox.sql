-- The outbox as a work queue, and the sweeper that fills it for what was forgotten.

-- name: ClaimOutbox :many
-- A due row takes the later rows of its key along: one look serves them all.
with due as (
  select id, kind, key from outbox where sent_at is null and next_attempt_at <= clock_timestamp()
  order by id limit @size for update skip locked
), also as (
  select o.id from outbox o where o.sent_at is null and o.attempts = 0 and o.next_attempt_at > clock_timestamp()
    and (o.kind, o.key) in (select kind, key from due)
  for update skip locked
)
update outbox o set attempts = o.attempts + 1,
  next_attempt_at = clock_timestamp() + make_interval(secs => @lease_seconds::double precision)
where o.id in (select id from due union all select id from also)
returning o.id, o.kind, o.key, o.attempts;

-- name: MarkOutboxSent :exec
update outbox set sent_at = clock_timestamp() where id = any(@ids::bigint[]);

-- name: PostponeOutbox :exec
update outbox set next_attempt_at = clock_timestamp() + make_interval(secs => @delay_seconds::double precision)
where id = any(@ids::bigint[]) and sent_at is null;

-- name: PruneOutbox :execrows
delete from outbox where id in (
  select id from outbox where sent_at < clock_timestamp() - make_interval(secs => @age_seconds::double precision)
  order by sent_at limit @size);

-- name: OldestUnsent :one
select coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::double precision as age
from outbox where sent_at is null;

-- name: SweepInstances :many
update instances i set next_wake_at = clock_timestamp() + interval '30 seconds'
from (
  select org_id, id from instances
  where next_wake_at <= clock_timestamp() or (converged_generation <> generation and next_wake_at is null)
  order by next_wake_at nulls first limit @size for no key update skip locked) d
where i.org_id = d.org_id and i.id = d.id
returning i.id;

-- name: SweepHosts :many
update hosts h set next_wake_at = clock_timestamp() + interval '30 seconds'
from (
  select id from hosts
  where next_wake_at <= clock_timestamp() or (converged_generation <> generation and next_wake_at is null)
  order by next_wake_at nulls first limit @size for no key update skip locked) d
where h.id = d.id
returning h.id;

-- name: SweepModeChanges :many
update mode_changes m set next_wake_at = clock_timestamp() + interval '30 seconds'
from (
  select id from mode_changes where next_wake_at <= clock_timestamp()
  order by next_wake_at limit @size for no key update skip locked) d
where m.id = d.id
returning m.gpu_id;

-- name: AppendOutboxMany :exec
insert into outbox (kind, key, reason) select @kind, unnest(@keys::text[]), @reason;
