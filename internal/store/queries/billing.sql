-- Invoices, their numbers, runs and the ledger.

-- name: BuyerOf :one
select name, currency, billing_name, billing_address, billing_country, tax_id from organizations where id = @org_id;

-- name: OrganizationsWithUsage :many
select distinct org_id from usage_segments
where during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)') order by org_id;

-- name: UnbillableSegments :one
-- Open, or across a boundary of the period: none, once the month is sealed.
select count(*) filter (where upper_inf(during))::bigint as open_count,
  count(*) filter (where not upper_inf(during))::bigint as crossing_count
from usage_segments
where during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and not during <@ tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  and (sqlc.narg('org_id')::uuid is null or org_id = sqlc.narg('org_id'));

-- name: SerializeInvoicing :exec
select pg_advisory_xact_lock(hashtextextended('tranche invoice ' || cast(@org_id::uuid as text), 0));

-- name: LiveUsageInvoice :one
select id, status, content_hash, inputs_hash from invoices
where org_id = @org_id and period = @period and close_no = @close_no and live and kind = 'usage';

-- name: DeleteDraftSubjects :exec
delete from line_subjects where invoice_id = @invoice_id;
-- name: DeleteDraftLines :exec
delete from invoice_lines where invoice_id = @invoice_id;
-- name: DeleteDraftTaxes :exec
delete from invoice_taxes where invoice_id = @invoice_id;
-- name: DeleteDraft :exec
delete from invoices where org_id = @org_id and id = @invoice_id and status = 'draft';

-- name: InsertInvoice :one
insert into invoices (org_id, id, period, period_from, period_to, close_no, currency, seller, buyer, subtotal_minor, tax_minor,
  total_minor, content_hash, engine_version, inputs, inputs_hash, segment_count, max_recorded_at, simulated, created_at)
values (@org_id, @invoice_id, @period, @period_from, @period_to, @close_no, @currency, @seller, @buyer, @subtotal_minor, @tax_minor,
  @total_minor, @content_hash, @engine_version, @inputs, @inputs_hash, @segment_count, @max_recorded_at::timestamptz, @simulated, biz_now())
returning created_at;

-- name: InsertInvoiceLine :exec
insert into invoice_lines (org_id, invoice_id, line_no, project_id, project_name, description, meter, sku_id, sku_code,
  isolation_gpu, isolation_host, pricing_kind, price_version_id, tier, tax_category, quantity, quantity_unit, divisor,
  unit_price, amount_minor, simulated)
values (@org_id, @invoice_id, @line_no, @project_id, @project_name, @description, @meter, @sku_id, @sku_code,
  @isolation_gpu, @isolation_host, @pricing_kind, @price_version_id, @tier, @tax_category, cast(@quantity::text as numeric),
  @quantity_unit, cast(@divisor::bigint as numeric), cast(@unit_price::text as numeric), @amount_minor, @simulated);

-- name: InsertLineSubjects :exec
insert into line_subjects (org_id, invoice_id, line_no, subject_id, subject_name, quantity, segment_count, amount_minor, hash)
select @org_id, @invoice_id, @line_no, t.subject_id, t.subject_name, t.quantity::numeric, t.segment_count, t.amount_minor, t.hash
from (select unnest(@subject_ids::uuid[]) as subject_id, unnest(@subject_names::text[]) as subject_name,
  unnest(@quantities::text[]) as quantity, unnest(@segment_counts::bigint[]) as segment_count,
  unnest(@amounts::bigint[]) as amount_minor, unnest(@hashes::bytea[]) as hash) as t;

-- name: InsertInvoiceTax :exec
insert into invoice_taxes (org_id, invoice_id, category, rate, base_minor, amount_minor, note)
values (@org_id, @invoice_id, @category, cast(@rate_ppm::bigint as numeric) / 1000000, @base_minor, @amount_minor, @note);

-- name: LockBillingAccount :one
select close_no from billing_accounts where org_id = @org_id for update;

-- name: UsageOfPeriod :one
-- What a draft was made from, read again under the lock of the account.
select count(*)::bigint as segment_count, coalesce(max(recorded_at), timestamptz 'epoch')::timestamptz as max_recorded_at
from billable_segments
where org_id = @org_id and during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)');

-- name: UnbilledSubjects :one
-- Per (subject, meter): the sum of the lines is the sum of the segments.
with billed as (
  select s.subject_id, l.meter, sum(s.quantity) as quantity
  from line_subjects s join invoice_lines l on l.invoice_id = s.invoice_id and l.line_no = s.line_no
  where s.invoice_id = @invoice_id group by 1, 2
), used as (
  select u.subject_id, u.meter,
    sum(u.units * (extract(epoch from upper(u.during) - lower(u.during)) * 1000000)::numeric) as quantity
  from billable_segments u
  where u.org_id = @org_id and u.during <@ tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')
  group by 1, 2
)
select count(*)::bigint from billed full join used using (subject_id, meter)
where billed.quantity is distinct from used.quantity;

-- name: AdvanceClosedUntil :exec
update billing_accounts set closed_until = greatest(closed_until, @closed_until::timestamptz), close_no = close_no + 1, revision = revision + 1
where org_id = @org_id;

-- name: TakeInvoiceNumber :one
-- Taken last in the transaction that finalizes: a rollback gives the number back. Dates never go back.
insert into invoice_numbers as n (series, year, kind, last, last_at) values (@series, @year, @kind, 1, @at::timestamptz)
on conflict (series, year, kind) do update set last = n.last + 1, last_at = greatest(n.last_at, excluded.last_at)
returning last, last_at::timestamptz as last_at;

-- name: OpenInvoice :execrows
update invoices set status = 'open', series = @series, number = @number, finalized_at = @finalized_at
where org_id = @org_id and id = @invoice_id and status = 'draft';

-- name: GetInvoice :one
select org_id, id, period_from, period_to, close_no, status, number, currency, seller, buyer, subtotal_minor, tax_minor, total_minor,
  content_hash, created_at, finalized_at
from invoices where org_id = @org_id and id = @invoice_id;

-- name: ListInvoices :many
select org_id, id, period_from, period_to, close_no, status, number, currency, seller, buyer, subtotal_minor, tax_minor, total_minor,
  content_hash, created_at, finalized_at
from invoices
where org_id = @org_id and status <> 'draft' and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid)
order by id desc limit @size;

-- name: InvoiceLines :many
select line_no, project_id, project_name, description, meter, sku_id, sku_code, isolation_gpu, isolation_host, pricing_kind,
  price_version_id, tier, tax_category, quantity::text as quantity, quantity_unit, divisor::bigint as divisor,
  unit_price::text as unit_price, amount_minor, simulated
from invoice_lines where org_id = @org_id and invoice_id = @invoice_id order by line_no;

-- name: InvoiceSubjects :many
select line_no, subject_id, subject_name, quantity::text as quantity, segment_count, amount_minor, hash
from line_subjects where org_id = @org_id and invoice_id = @invoice_id order by line_no, subject_id;

-- name: InvoiceTaxes :many
select category, (rate * 1000000)::bigint as rate_ppm, base_minor, amount_minor, note
from invoice_taxes where org_id = @org_id and invoice_id = @invoice_id order by category, rate;

-- name: InsertInvoiceRun :one
insert into invoice_runs (id, period, status, created_by, created_at) values (@run_id, @period, 'running', @created_by, biz_now())
returning created_at;

-- name: EndInvoiceRun :one
update invoice_runs set status = @status, finished_at = biz_now(), result = @result where id = @run_id
returning finished_at::timestamptz;

-- name: LatestInvoiceRun :one
select id, period, status, created_at, finished_at, result from invoice_runs where period = @period order by created_at desc, id desc limit 1;

-- name: InvoicesOfPeriod :many
select org_id, id, number, currency, total_minor from invoices
where period = @period and kind = 'usage' and live and status = 'open' order by number;
