-- Payments: customers of providers, attempts, money that came, refunds, disputes, events.

-- name: PutPaymentMethod :exec
insert into payment_customers as c (org_id, provider, method_ref) values (@org_id, @provider, @method_ref)
on conflict (org_id) do update set method_ref = excluded.method_ref, method_at = biz_now(), provider = excluded.provider,
  customer_ref = case when c.provider = excluded.provider then c.customer_ref else '' end,
  revision = c.revision + 1, updated_at = clock_timestamp();

-- name: PaymentCustomer :one
select coalesce(c.provider, '')::text as provider, coalesce(c.customer_ref, '')::text as customer_ref,
  coalesce(c.method_ref, '')::text as method_ref, o.name from organizations o left join payment_customers c on c.org_id = o.id
where o.id = @org_id;

-- name: SetCustomerRef :exec
insert into payment_customers (org_id, provider, customer_ref) values (@org_id, @provider, @customer_ref)
on conflict (org_id) do update set customer_ref = excluded.customer_ref, updated_at = clock_timestamp(), provider = excluded.provider,
  method_ref = case when payment_customers.provider = excluded.provider then payment_customers.method_ref else '' end
where payment_customers.customer_ref = '' or payment_customers.provider <> excluded.provider;

-- name: OrgOfCustomer :one
select org_id from payment_customers where provider = @provider and customer_ref = @customer_ref;

-- name: CollectableInvoices :many
-- Open, owed, of an organization with a stored method, not in dispute, with no attempt that lives or waits;
-- a method that was chosen after a decline is tried at once.
select i.org_id, i.id, i.finalized_at::timestamptz as finalized_at, c.provider, coalesce(a.attempt_no, 0)::integer as attempts
from invoices i
join payment_customers c on c.org_id = i.org_id and c.method_ref <> ''
left join lateral (select attempt_no, state, again_at, ended_at from payment_attempts a
  where a.org_id = i.org_id and a.subject_id = i.id order by attempt_no desc limit 1) a on true
where i.status = 'open' and i.kind <> 'credit_note' and i.live
  and (i.finalized_at, i.id) > (@after_at::timestamptz, @after_id::uuid)
  and (a.attempt_no is null or a.state = 'succeeded'
    or a.state in ('declined', 'cancelled') and (a.again_at <= biz_now() or c.method_at > a.ended_at))
  and (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
    where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable') > 0
  and not exists (select 1 from payment_allocations l join payment_disputes d on d.org_id = l.org_id and d.payment_id = l.payment_id
    where l.org_id = i.org_id and l.invoice_id = i.id)
order by i.finalized_at, i.id limit @size;

-- name: InsertAttempt :exec
insert into payment_attempts (org_id, id, purpose, subject_id, attempt_no, provider, intent_key, amount_minor, currency, created_at)
values (@org_id, @attempt_id, @purpose, @subject_id, @attempt_no, @provider, @intent_key, @amount_minor, @currency, biz_now());

-- name: LastAttemptNo :one
select coalesce(max(attempt_no), 0)::integer from payment_attempts where org_id = @org_id and subject_id = @subject_id;

-- name: ClaimAttempts :many
update payment_attempts a set sends = a.sends + 1, next_try_at = clock_timestamp() + make_interval(secs => @lease_seconds::double precision)
from (select d.org_id, d.id from payment_attempts d where d.next_try_at <= clock_timestamp() order by d.next_try_at limit @size
  for no key update skip locked) due
where a.org_id = due.org_id and a.id = due.id
returning a.org_id, a.id, a.purpose, a.subject_id, a.attempt_no, a.provider, a.intent_key, a.amount_minor, a.currency, a.state,
  a.provider_ref, a.sends, a.created_at;

-- name: AttemptForUpdate :one
select org_id, id, purpose, subject_id, attempt_no, provider, intent_key, amount_minor, currency, state, provider_ref, sends, created_at
from payment_attempts where org_id = @org_id and id = @attempt_id for no key update;

-- name: SaveAttempt :exec
update payment_attempts set state = @state, provider_ref = @provider_ref, reason = @reason, detail = @detail, action_url = @action_url,
  next_try_at = case when @over::boolean then null
    else clock_timestamp() + make_interval(secs => @wait_seconds::double precision) end,
  again_at = sqlc.narg('again_at')::timestamptz, ended_at = case when @over then biz_now() end, revision = revision + 1
where org_id = @org_id and id = @attempt_id;

-- name: PostponeAttempt :exec
update payment_attempts set detail = @detail, next_try_at = clock_timestamp() + make_interval(secs => @wait_seconds::double precision)
where org_id = @org_id and id = @attempt_id and next_try_at is not null;

-- name: AttemptsOf :many
select id, purpose, attempt_no, amount_minor, currency, state, provider_ref, reason, detail, action_url, created_at, ended_at
from payment_attempts where org_id = @org_id and subject_id = @subject_id order by attempt_no;

-- name: InsertPayment :execrows
insert into payments (org_id, id, provider, provider_ref, attempt_id, amount_minor, currency, fee_minor, fee_currency, payer, reference,
  received_at)
values (@org_id, @payment_id, @provider, @provider_ref, sqlc.narg('attempt_id')::uuid, @amount_minor, @currency,
  sqlc.narg('fee_minor')::bigint, sqlc.narg('fee_currency')::text, @payer, @reference, biz_now())
on conflict (provider, provider_ref) do nothing;

-- name: PaymentForUpdate :one
select * from payments where org_id = @org_id and id = @payment_id for no key update;

-- name: PaymentByID :one
select * from payments where org_id = @org_id and id = @payment_id;

-- name: PaymentByRef :one
select org_id, id from payments where provider = @provider and provider_ref = @provider_ref;

-- name: ListPayments :many
select * from payments where org_id = @org_id and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid)
order by id desc limit @size;

-- name: CountPayment :exec
update payments set allocated_minor = allocated_minor + @allocated, refunded_minor = refunded_minor + @refunded,
  charged_back_minor = charged_back_minor + @charged_back, revision = revision + 1
where org_id = @org_id and id = @payment_id;

-- name: SetPaymentFee :execrows
update payments set fee_minor = @fee_minor, fee_currency = @fee_currency where org_id = @org_id and id = @payment_id and fee_minor is null;

-- name: FreePayments :many
select p.id, (p.amount_minor - p.allocated_minor - p.refunded_minor - p.charged_back_minor)::bigint as free_minor from payments p
where p.org_id = @org_id and p.currency = @currency and p.allocated_minor + p.refunded_minor + p.charged_back_minor < p.amount_minor
  and not exists (select 1 from payment_disputes d where d.org_id = p.org_id and d.payment_id = p.id and d.state = 'open')
order by p.id for no key update;

-- name: InsertAllocation :exec
insert into payment_allocations (org_id, id, payment_id, invoice_id, kind, amount_minor, currency, at)
values (@org_id, @allocation_id, @payment_id, @invoice_id, @kind, @amount_minor, @currency, biz_now());

-- name: AllocatedOfPayment :many
-- Releasable is what may be owed again: a document is never owed more than its total without what was credited.
select l.invoice_id, l.amount_minor, greatest(least(l.amount_minor, i.total_minor - i.credited_minor
    - (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
      where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable')), 0)::bigint as releasable_minor
from (select a.org_id, a.invoice_id, sum(a.amount_minor)::bigint as amount_minor from payment_allocations a
  where a.org_id = @org_id and a.payment_id = @payment_id group by a.org_id, a.invoice_id having sum(a.amount_minor) > 0) l
join invoices i on i.org_id = l.org_id and i.id = l.invoice_id
order by l.invoice_id desc;

-- name: AllocatedToInvoice :many
select payment_id, sum(amount_minor)::bigint as amount_minor from payment_allocations
where org_id = @org_id and invoice_id = @invoice_id group by payment_id having sum(amount_minor) > 0 order by payment_id desc;

-- name: OwedOn :one
-- What is owed on a document: every posting that concerns it, whatever made it.
select i.currency, i.status, i.kind, coalesce(i.number, '')::text as number,
  (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
    where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable')::bigint as owed_minor,
  (select coalesce(sum(w.amount_minor), 0) from invoice_write_offs w where w.org_id = i.org_id and w.invoice_id = i.id)::bigint as written_minor
from invoices i where i.org_id = @org_id and i.id = @invoice_id;

-- name: OwedInvoices :many
-- Oldest first: unapplied cash pays them in this order.
select i.id, p.owed_minor from invoices i
join lateral (select coalesce(sum(p.amount_minor), 0)::bigint as owed_minor from ledger_postings p
  where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable') p on p.owed_minor > 0
where i.org_id = @org_id and i.currency = @currency and i.status = 'open' and i.kind <> 'credit_note'
order by i.finalized_at, i.id;

-- name: OrganizationsWithCash :many
-- Those with money that pays for nothing yet, and is not in dispute, while a document of theirs that takes payments is owed.
select o.id from organizations o
where o.id > @after and exists (select 1 from payments f
    where f.org_id = o.id and f.allocated_minor + f.refunded_minor + f.charged_back_minor < f.amount_minor
      and f.currency = o.currency
      and not exists (select 1 from payment_disputes d where d.org_id = f.org_id and d.payment_id = f.id and d.state = 'open'))
  and exists (select 1 from invoices i where i.org_id = o.id and i.currency = o.currency and i.status = 'open' and i.kind <> 'credit_note'
    and (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
      where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable') > 0)
order by o.id limit @size;

-- name: InsertWriteOff :exec
insert into invoice_write_offs (org_id, id, invoice_id, payment_id, amount_minor, currency, reason, created_by, at)
values (@org_id, @write_off_id, @invoice_id, sqlc.narg('payment_id')::uuid, @amount_minor, @currency, @reason, @created_by, biz_now());

-- name: InsertRefund :exec
insert into payment_refunds (org_id, id, payment_id, refund_key, provider_ref, amount_minor, lost_minor, currency, reason, created_by,
  created_at)
values (@org_id, @refund_id, @payment_id, @refund_key, @provider_ref, @amount_minor, @lost_minor, @currency, @reason, @created_by, biz_now());

-- name: RefundCount :one
select count(*)::integer from payment_refunds where org_id = @org_id and payment_id = @payment_id;

-- name: ClaimRefunds :many
update payment_refunds r set sends = r.sends + 1, next_try_at = clock_timestamp() + make_interval(secs => @lease_seconds::double precision)
from (select d.org_id, d.id from payment_refunds d where d.next_try_at <= clock_timestamp() order by d.next_try_at limit @size
  for no key update skip locked) due, payments p
where r.org_id = due.org_id and r.id = due.id and p.org_id = r.org_id and p.id = r.payment_id
returning r.org_id, r.id, r.payment_id, r.refund_key, r.amount_minor, r.currency, r.reason, r.sends, p.provider, p.provider_ref;

-- name: RefundForUpdate :one
select * from payment_refunds where org_id = @org_id and payment_id = @payment_id
  and (refund_key = @refund_key or provider_ref = @provider_ref and @provider_ref::text <> '') for no key update;

-- name: SaveRefund :exec
update payment_refunds set state = @state, provider_ref = @provider_ref, detail = @detail,
  next_try_at = case when @over::boolean then null else clock_timestamp() + make_interval(secs => @wait_seconds::double precision) end,
  revision = revision + 1
where org_id = @org_id and id = @refund_id;

-- name: PostponeRefund :exec
update payment_refunds set detail = @detail, next_try_at = clock_timestamp() + make_interval(secs => @wait_seconds::double precision)
where org_id = @org_id and id = @refund_id and next_try_at is not null;

-- name: DisputeForUpdate :one
select * from payment_disputes where provider = @provider and provider_ref = @provider_ref for no key update;

-- name: InsertDispute :exec
insert into payment_disputes (org_id, id, payment_id, provider, provider_ref, amount_minor, fee_minor, held_minor, currency, state,
  reason, opened_at)
values (@org_id, @dispute_id, @payment_id, @provider, @provider_ref, @amount_minor, @fee_minor, @held_minor, @currency, 'open', @reason, biz_now());

-- name: CloseDispute :exec
update payment_disputes set state = @state, fee_minor = @fee_minor, closed_at = biz_now(), revision = revision + 1
where org_id = @org_id and id = @dispute_id and state = 'open';

-- name: InsertProviderEvent :execrows
insert into provider_events (provider, event_id, type, object, object_ref, body_hash, next_try_at)
values (@provider, @event_id, @type, @object, @object_ref, @body_hash, clock_timestamp() + make_interval(secs => @lease_seconds::double precision))
on conflict (provider, event_id) do nothing;

-- name: ProviderEventHash :one
select body_hash, state from provider_events where provider = @provider and event_id = @event_id;

-- name: ClaimProviderEvents :many
update provider_events e set attempts = e.attempts + 1, next_try_at = clock_timestamp() + make_interval(secs => @lease_seconds::double precision)
from (select d.provider, d.event_id from provider_events d where d.next_try_at <= clock_timestamp() order by d.next_try_at limit @size
  for no key update skip locked) due
where e.provider = due.provider and e.event_id = due.event_id
returning e.provider, e.event_id, e.type, e.object, e.object_ref, e.attempts;

-- name: EndProviderEvent :exec
update provider_events set state = @state, problem = @problem,
  next_try_at = case when @state = 'received' then clock_timestamp() + make_interval(secs => @wait_seconds::double precision) end
where provider = @provider and event_id = @event_id and state = 'received';

-- name: PaymentDisputed :one
select exists (select 1 from payment_disputes where org_id = @org_id and payment_id = @payment_id and state = 'open');
