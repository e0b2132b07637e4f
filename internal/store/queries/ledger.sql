-- The ledger: journals, what is derived from them, and closed months.

-- name: InsertJournal :exec
-- A closed month takes nothing: what comes later is effective on the next open day.
with books as (select closed_through from ledger_books for share)
insert into ledger_journals (org_id, id, kind, reference_id, currency, effective_on)
select @org_id, @journal_id, @kind, @reference_id, @currency, greatest(cast(@effective_on::timestamptz as date), books.closed_through + 1)
from books;

-- name: InsertPostings :exec
insert into ledger_postings (org_id, journal_id, line_no, account, amount_minor, currency, document_id)
select @org_id, @journal_id, t.line_no, t.account, t.amount_minor, @currency, nullif(t.document_id, '00000000-0000-0000-0000-000000000000')
from (select generate_subscripts(@accounts::text[], 1) as line_no, unnest(@accounts::text[]) as account,
  unnest(@amounts::bigint[]) as amount_minor, unnest(@documents::uuid[]) as document_id) as t;

-- name: PostingsOfDocuments :many
select p.document_id::uuid as document_id, j.kind, p.account, sum(p.amount_minor)::bigint as amount_minor
from ledger_postings p join ledger_journals j on j.org_id = p.org_id and j.id = p.journal_id
where p.org_id = @org_id and p.document_id = any(@documents::uuid[])
group by 1, 2, 3;

-- name: TrialBalance :many
select p.currency, p.account,
  coalesce(sum(p.amount_minor) filter (where j.effective_on < cast(@from_at::timestamptz as date)), 0)::bigint as opening,
  coalesce(sum(p.amount_minor) filter (where j.effective_on >= cast(@from_at::timestamptz as date) and p.amount_minor > 0), 0)::bigint as debits,
  coalesce(sum(p.amount_minor) filter (where j.effective_on >= cast(@from_at::timestamptz as date) and p.amount_minor < 0), 0)::bigint as credits
from ledger_postings p join ledger_journals j on j.org_id = p.org_id and j.id = p.journal_id
where j.effective_on < cast(@to_at::timestamptz as date)
group by 1, 2 order by 1, 2;

-- name: Movements :many
select p.currency, p.account, j.kind, sum(p.amount_minor)::bigint as amount_minor
from ledger_postings p join ledger_journals j on j.org_id = p.org_id and j.id = p.journal_id
where p.account = any(@accounts::text[])
  and j.effective_on >= cast(@from_at::timestamptz as date) and j.effective_on < cast(@to_at::timestamptz as date)
group by 1, 2, 3 order by 1, 2, 3;

-- name: OpenReceivables :many
-- What is owed by document at the start of a day.
select p.org_id, o.name as org_name, p.currency, p.document_id, coalesce(i.number, '')::text as number,
  coalesce(i.finalized_at, min(j.effective_on)::timestamptz)::timestamptz as issued_at, sum(p.amount_minor)::bigint as amount_minor
from ledger_postings p
join ledger_journals j on j.org_id = p.org_id and j.id = p.journal_id
join organizations o on o.id = p.org_id
left join invoices i on i.org_id = p.org_id and i.id = p.document_id
where p.account = 'receivable' and j.effective_on < cast(@to_at::timestamptz as date)
group by p.org_id, o.name, p.currency, p.document_id, i.number, i.finalized_at
having sum(p.amount_minor) <> 0
order by p.currency, o.name, 5;

-- name: TaxesOfMonth :many
select i.currency, coalesce(i.seller->>'Country', i.seller->>'country', '')::text as seller_country,
  coalesce(i.buyer->>'Country', i.buyer->>'country', '')::text as buyer_country,
  x.category, (x.rate * 1000000)::bigint as rate_ppm, sum(x.base_minor)::bigint as base_minor, sum(x.amount_minor)::bigint as amount_minor
from ledger_journals j
join invoices i on i.org_id = j.org_id and i.id = j.reference_id
join invoice_taxes x on x.org_id = i.org_id and x.invoice_id = i.id
where j.kind in ('invoice_finalized', 'credit_note')
  and j.effective_on >= cast(@from_at::timestamptz as date) and j.effective_on < cast(@to_at::timestamptz as date)
group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5;

-- name: JournalRows :many
select j.org_id, j.id, j.kind, j.reference_id, j.effective_on::timestamptz as effective_on, j.posted_at, p.line_no, p.account,
  p.amount_minor, p.currency, p.document_id
from ledger_journals j join ledger_postings p on p.org_id = j.org_id and p.journal_id = j.id
where j.effective_on >= cast(@from_at::timestamptz as date) and j.effective_on < cast(@to_at::timestamptz as date)
order by j.effective_on, j.posted_at, j.id, p.line_no;

-- name: AccountBalances :many
select p.currency, p.account, sum(p.amount_minor)::bigint as balance
from ledger_postings p join ledger_journals j on j.org_id = p.org_id and j.id = p.journal_id
where j.effective_on < cast(@before_at::timestamptz as date)
  and (sqlc.narg('org_id')::uuid is null or p.org_id = sqlc.narg('org_id'))
group by 1, 2 order by 1, 2;

-- name: LockBooks :one
select (case when isfinite(closed_through) then closed_through else date '0001-01-01' end)::timestamptz as closed_through from ledger_books for update;

-- name: CloseBooks :exec
update ledger_books set closed_through = cast(@through::timestamptz as date);

-- name: InsertMonthClose :execrows
insert into month_closes (period, report, journal_csv, sha256, closed_by, closed_at)
values (@period, @report, @journal_csv, @sha256, @closed_by, @closed_at)
on conflict (period) do nothing;

-- name: MonthClose :one
select period, report, sha256, closed_by, closed_at from month_closes where period = @period;

-- name: MonthCloseCSV :one
select journal_csv from month_closes where period = @period;

-- name: UninvoicedOrganizations :one
-- Who used something in a month and has no document of it.
select count(distinct u.org_id)::bigint from usage_segments u
where u.billing_period = @period and not exists (select 1 from invoices i where i.org_id = u.org_id and i.period = @period
  and i.kind = 'usage' and i.status <> 'draft');
