-- Dunning of overdue invoices, and what it holds back.

-- name: DunningSchedule :one
select steps, generation from dunning_schedules where issuer = @issuer;

-- name: PutDunningSchedule :exec
insert into dunning_schedules as d (issuer, steps, updated_by) values (@issuer, @steps, @updated_by)
on conflict (issuer) do update set steps = excluded.steps, updated_by = excluded.updated_by, generation = d.generation + 1,
  updated_at = clock_timestamp();

-- name: EnrolDunnings :execrows
-- Every owed document that is overdue and not in dunning yet.
insert into dunnings (org_id, invoice_id, next_at)
select i.org_id, i.id, biz_now() from invoices i
where i.status = 'open' and i.live and i.kind <> 'credit_note' and coalesce(i.due_on, i.finalized_at::date + 14) < biz_now()
  and not exists (select 1 from dunnings d where d.org_id = i.org_id and d.invoice_id = i.id)
  and (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
    where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable') > 0
limit @size
on conflict do nothing;

-- name: RestartDunnings :execrows
-- Owed again, after a lost dispute or a refund: only what was taken back from a payment can be.
update dunnings d set next_at = biz_now(), revision = revision + 1
from (select x.org_id, x.invoice_id from dunnings x
  where x.next_at is null and not x.finished
    and exists (select 1 from payment_allocations l where l.org_id = x.org_id and l.invoice_id = x.invoice_id and l.amount_minor < 0)
    and (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
      where p.org_id = x.org_id and p.document_id = x.invoice_id and p.account = 'receivable') > 0
  limit @size for no key update skip locked) again
where d.org_id = again.org_id and d.invoice_id = again.invoice_id;

-- name: PostponeDunning :exec
update dunnings set next_at = biz_now() + make_interval(secs => @wait_seconds::double precision)
where org_id = @org_id and invoice_id = @invoice_id and next_at <= biz_now();

-- name: PostponeStop :exec
update billing_holds set stop_at = biz_now() + make_interval(secs => @wait_seconds::double precision)
where org_id = @org_id and invoice_id = @invoice_id and stopped_at is null and stop_at <= biz_now();

-- name: DueDunnings :many
select d.org_id, d.invoice_id from dunnings d where d.next_at <= biz_now() order by d.next_at limit @size;

-- name: DunningForUpdate :one
select d.org_id, d.invoice_id, d.steps_done, d.paused_us, d.paused_since, d.overdue_told, d.next_at,
  coalesce(i.due_on, i.finalized_at::date + 14)::timestamptz as due_on, i.issuer,
  exists (select 1 from payment_allocations l join payment_disputes x on x.org_id = l.org_id and x.payment_id = l.payment_id
    where l.org_id = d.org_id and l.invoice_id = d.invoice_id and x.state = 'open') as disputed
from dunnings d join invoices i on i.org_id = d.org_id and i.id = d.invoice_id
where d.org_id = @org_id and d.invoice_id = @invoice_id for no key update of d;

-- name: SaveDunning :exec
update dunnings set steps_done = @steps_done, paused_us = @paused_us, paused_since = sqlc.narg('paused_since')::timestamptz,
  overdue_told = true, next_at = sqlc.narg('next_at')::timestamptz, finished = @finished, revision = revision + 1
where org_id = @org_id and invoice_id = @invoice_id;

-- name: WakeDunnings :exec
-- Something happened to the documents: look again.
update dunnings set next_at = least(next_at, biz_now()) where org_id = @org_id and next_at is not null;

-- name: PutHold :exec
insert into billing_holds (org_id, invoice_id, since) values (@org_id, @invoice_id, biz_now()) on conflict do nothing;

-- name: AnnounceStop :exec
update billing_holds set stop_at = @stop_at::timestamptz where org_id = @org_id and invoice_id = @invoice_id;

-- name: MarkStopped :exec
update billing_holds set stopped_at = biz_now() where org_id = @org_id and invoice_id = @invoice_id;

-- name: LiftHold :execrows
delete from billing_holds where org_id = @org_id and invoice_id = @invoice_id;

-- name: HoldOf :one
select count(*)::integer as holds, coalesce(min(i.number), '')::text as number from billing_holds h
join invoices i on i.org_id = h.org_id and i.id = h.invoice_id where h.org_id = @org_id;

-- name: StopsDue :many
-- Holds whose notice has run out and whose organization was not stopped.
select org_id, invoice_id from billing_holds where stop_at <= biz_now() and stopped_at is null order by stop_at limit @size;
