-- Invoices, their numbers, runs and the ledger.

-- name: BuyerOf :one
select name, currency, billing_name, billing_address, billing_country, billing_postcode, tax_id, tax_status, locale, issuer,
  einvoice, einvoice_endpoint
from organizations where id = @org_id;

-- name: OrganizationsWithUsage :many
select distinct org_id from usage_segments
where during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)') order by org_id;

-- name: SerializeInvoicing :exec
select pg_advisory_xact_lock(hashtextextended('tranche invoice ' || cast(@org_id::uuid as text), 0));

-- name: LiveUsageInvoice :one
select id, status, content_hash, inputs_hash, replaces from invoices
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
insert into invoices (org_id, id, kind, period, period_from, period_to, close_no, as_of_close, issuer, locale, tax_point, corrects,
  replaces, source_id, reason, refund, notes, currency, seller, buyer, subtotal_minor, tax_minor, total_minor, content_version,
  content_hash, engine_version, inputs, inputs_hash, terms, segment_count, max_recorded_at, simulated, created_at)
values (@org_id, @invoice_id, @kind, @period, @period_from, @period_to, @close_no, sqlc.narg('as_of_close'), @issuer, @locale,
  @tax_point::timestamptz, sqlc.narg('corrects'), sqlc.narg('replaces'), sqlc.narg('source_id'), @reason, @refund, @notes::text[],
  @currency, @seller, @buyer, @subtotal_minor, @tax_minor, @total_minor, @content_version, @content_hash, @engine_version, @inputs,
  @inputs_hash, sqlc.narg('terms'), @segment_count, @max_recorded_at::timestamptz, @simulated, biz_now())
returning created_at;

-- name: InsertInvoiceLines :exec
insert into invoice_lines (org_id, invoice_id, line_no, component, reference, variant, project_id, project_name, description, meter,
  sku_id, sku_code, isolation_gpu, isolation_host, pricing_kind, price_version_id, tier, tax_category, tax_rate, quantity,
  quantity_unit, priced_unit, divisor, unit_price, discounts, packages, exact, amount_minor, simulated, from_at, to_at,
  corrects_invoice, corrects_number, corrects_line)
select @org_id, @invoice_id, l.line_no, l.component, l.reference, l.variant, l.project_id, l.project_name, l.description, l.meter,
  l.sku_id, l.sku_code, l.isolation_gpu, l.isolation_host, l.pricing_kind, l.price_version_id, l.tier, l.tax_category,
  l.rate_ppm / 1000000, l.quantity, l.quantity_unit, l.priced_unit, l.divisor, l.unit_price, l.discounts, l.packages, l.exact,
  l.amount_minor, l.simulated, l.from_at, l.to_at, l.corrects_invoice, l.corrects_number, l.corrects_line
from jsonb_to_recordset(@lines::jsonb) as l(line_no integer, component text, reference text, variant text, project_id uuid,
  project_name text, description text, meter text, sku_id uuid, sku_code text, isolation_gpu text, isolation_host text,
  pricing_kind text, price_version_id uuid, tier integer, tax_category text, rate_ppm numeric, quantity numeric,
  quantity_unit text, priced_unit text, divisor numeric, unit_price numeric, discounts jsonb, packages bigint, exact text,
  amount_minor bigint, simulated boolean, from_at timestamptz, to_at timestamptz, corrects_invoice uuid, corrects_number text,
  corrects_line integer);

-- name: InsertLineSubjects :exec
insert into line_subjects (org_id, invoice_id, line_no, subject_kind, subject_id, subject_name, quantity, segment_count, amount_minor, hash)
select @org_id, @invoice_id, t.line_no, t.subject_kind, t.subject_id, t.subject_name, t.quantity::numeric, t.segment_count, t.amount_minor, t.hash
from (select unnest(@line_nos::integer[]) as line_no, unnest(@subject_kinds::text[]) as subject_kind,
  unnest(@subject_ids::uuid[]) as subject_id, unnest(@subject_names::text[]) as subject_name,
  unnest(@quantities::text[]) as quantity, unnest(@segment_counts::bigint[]) as segment_count,
  unnest(@amounts::bigint[]) as amount_minor, unnest(@hashes::bytea[]) as hash) as t;

-- name: InsertInvoiceTax :exec
insert into invoice_taxes (org_id, invoice_id, category, rate, base_minor, amount_minor, note)
values (@org_id, @invoice_id, @category, cast(@rate_ppm::bigint as numeric) / 1000000, @base_minor, @amount_minor, @note);

-- name: LockBillingAccount :one
select close_no from billing_accounts where org_id = @org_id for update;

-- name: CloseNoOf :one
select close_no from billing_accounts where org_id = @org_id;

-- name: PackedUsage :many
-- The usage of a window, attributes once a group, and of each segment only id, seq and
-- bounds in binary: 16 + 8 + 8 + 8 bytes, instants in microseconds since 2000. The start
-- leads the grouping: a sort by it compares one uuid.
select g.*, p.name as project_name, s.code as sku_code, s.gpu_model, s.mode, s.profile, s.gpu_count,
  coalesce(l.amount::text, '')::text as locked_price
from (
  select u.subject_kind, u.subject_id, u.meter, u.start_id, u.run, u.units, u.project_id, u.sku_id, u.isolation_gpu, u.isolation_host,
    u.region, u.price_book_id, u.locked_price_version_id, u.pricing_kind, u.simulated, u.subject_name, max(u.recorded_at)::timestamptz as recorded_at,
    string_agg(uuid_send(u.id) || int8send(u.seq) || timestamptz_send(lower(u.during))
      || timestamptz_send(coalesce(upper(u.during), 'infinity')), ''::bytea)::bytea as segments
  from usage_segments u
  where u.org_id = @org_id and u.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)') and u.close_no <= @as_of::integer
  group by u.start_id, u.subject_id, u.meter, u.run, u.subject_kind, u.units, u.project_id, u.sku_id, u.isolation_gpu, u.isolation_host,
    u.region, u.price_book_id, u.locked_price_version_id, u.pricing_kind, u.simulated, u.subject_name
) g
join projects p on p.org_id = @org_id and p.id = g.project_id
join skus s on s.id = g.sku_id
left join prices l on l.price_version_id = g.locked_price_version_id and l.sku_id = g.sku_id and l.meter = g.meter;

-- name: ExclusionState :one
select (count(*) + count(lifted_at))::bigint as changes,
  coalesce(greatest(max(recorded_at), max(lifted_at)), timestamptz 'epoch')::timestamptz as recorded_at
from usage_exclusions where org_id = @org_id and during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)');

-- name: LateCloseNo :one
-- The last close after which anything about the period was accepted, 0 for none.
select greatest(
  (select coalesce(max(s.close_no), 0) from usage_segments s where s.org_id = @org_id and s.billing_period = @period),
  (select coalesce(max(greatest(e.close_no, e.lifted_close_no)), 0) from usage_exclusions e
    where e.org_id = @org_id and e.during && tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)')))::integer as close_no;

-- name: CheckUsage :one
-- In one pass over a period's usage: what a draft was made from, read again under the
-- lock of the account, and whether for each (subject, meter) the sum of all documents is
-- that of the usage as of a close. Exclusions are merged: what was cut off one keeps its
-- time.
with known as (
  select u.subject_id, u.meter, u.units, count(*) as n, max(u.recorded_at) as recorded_at,
    count(*) filter (where upper_inf(u.during)) as open_count,
    count(*) filter (where not u.during <@ tstzrange(@from_at::timestamptz, @to_at::timestamptz, '[)') and not upper_inf(u.during)) as crossing_count,
    sum(upper(u.during) - lower(u.during)) filter (where u.close_no <= @as_of::integer) as lasted,
    count(*) filter (where u.close_no <= @as_of) as counted
  from usage_segments u
  where u.org_id = @org_id and u.during && tstzrange(@from_at, @to_at, '[)')
  group by 1, 2, 3
), gone as (
  select x.subject_id, x.meter, unnest(range_agg(x.during)) as during from usage_exclusions x
  where x.org_id = @org_id and x.close_no <= @as_of and (x.lifted_close_no is null or x.lifted_close_no > @as_of)
    and x.during && tstzrange(@from_at, @to_at, '[)')
  group by 1, 2
), cut as (
  select u.subject_id, u.meter, u.units, sum(upper(u.during * g.during) - lower(u.during * g.during)) as lasted
  from gone g join usage_segments u on u.org_id = @org_id and u.subject_id = g.subject_id and u.meter = g.meter and u.during && g.during
    and u.close_no <= @as_of
  group by 1, 2, 3
), used as (
  select subject_id, meter, sum(case when meter = 'egress' then units * counted else units * (extract(epoch from lasted) * 1000000) end) as quantity
  from (
    select subject_id, meter, units, lasted, counted from known
    union all select subject_id, meter, -units, lasted, 0 from cut
  ) k group by 1, 2
), billed as (
  select s.subject_id, l.meter, sum(s.quantity) as quantity
  from invoices i
  join invoice_lines l on l.invoice_id = i.id
  join line_subjects s on s.invoice_id = l.invoice_id and s.line_no = l.line_no
  where i.org_id = @org_id and i.period = @period and i.as_of_close is not null
    and not exists (select 1 from invoices r where r.replaces = i.id)
    and (l.component in ('usage', 'covered') or l.component = 'adjustment' and (l.variant like 'usage/%' or l.variant like 'covered/%'))
  group by 1, 2
)
select k.segment_count, k.recorded_at, k.open_count, k.crossing_count, b.unbilled
from (select coalesce(sum(n), 0)::bigint as segment_count, coalesce(max(recorded_at), timestamptz 'epoch')::timestamptz as recorded_at,
  coalesce(sum(open_count), 0)::bigint as open_count, coalesce(sum(crossing_count), 0)::bigint as crossing_count from known) k,
(select count(*)::bigint as unbilled from billed full join used using (subject_id, meter)
  where coalesce(billed.quantity, 0) <> coalesce(used.quantity, 0)) b;

-- name: AdvanceClosedUntil :exec
update billing_accounts set closed_until = greatest(closed_until, @closed_until::timestamptz), close_no = close_no + 1, revision = revision + 1
where org_id = @org_id;

-- name: TakeInvoiceNumber :one
-- Taken last in the transaction that finalizes: a rollback gives the number back. Dates never go back.
insert into invoice_numbers as n (series, year, kind, last, last_at) values (@series, @year, @kind, 1, @at::timestamptz)
on conflict (series, year, kind) do update set last = n.last + 1, last_at = greatest(n.last_at, excluded.last_at)
returning last, last_at::timestamptz as last_at;

-- name: OpenInvoice :execrows
update invoices set status = 'open', series = @series, number = @number, finalized_at = @finalized_at,
  due_on = (cast(@due_on as timestamptz) at time zone 'UTC')::date
where org_id = @org_id and id = @invoice_id and status = 'draft';

-- name: CarryInvoice :execrows
update invoices set status = 'carried', finalized_at = @finalized_at where org_id = @org_id and id = @invoice_id and status = 'draft';

-- name: GetInvoice :one
select i.org_id, i.id, i.kind, i.period, i.period_from, i.period_to, i.close_no, i.status, i.live, i.issuer, i.locale, i.tax_point, i.due_on, i.number, i.currency, i.seller, i.buyer, i.subtotal_minor, i.tax_minor, i.total_minor, i.credited_minor, i.content_version, i.content_hash, i.reason, i.refund, i.notes, i.created_at, i.finalized_at, i.corrects, i.replaces, i.as_of_close,
  c.number as corrects_number, c.finalized_at as corrects_at, r.number as replaces_number, r.finalized_at as replaces_at,
  o.media_type, o.sha256, coalesce(octet_length(o.body), 0)::bigint as original_size
from invoices i
left join invoices c on c.id = i.corrects
left join invoices r on r.id = i.replaces
left join invoice_originals o on o.org_id = i.org_id and o.invoice_id = i.id
where i.org_id = @org_id and i.id = @invoice_id;

-- name: ListInvoices :many
select i.org_id, i.id, i.kind, i.period, i.period_from, i.period_to, i.close_no, i.status, i.live, i.issuer, i.locale, i.tax_point, i.due_on, i.number, i.currency, i.seller, i.buyer, i.subtotal_minor, i.tax_minor, i.total_minor, i.credited_minor, i.content_version, i.content_hash, i.reason, i.refund, i.notes, i.created_at, i.finalized_at, i.corrects, i.replaces, i.as_of_close,
  c.number as corrects_number, c.finalized_at as corrects_at, r.number as replaces_number, r.finalized_at as replaces_at,
  o.media_type, o.sha256, coalesce(octet_length(o.body), 0)::bigint as original_size
from invoices i
left join invoices c on c.id = i.corrects
left join invoices r on r.id = i.replaces
left join invoice_originals o on o.org_id = i.org_id and o.invoice_id = i.id
where i.org_id = @org_id and i.status = 'open' and (sqlc.narg('before')::uuid is null or i.id < sqlc.narg('before')::uuid)
  and (@kind::text = '' or i.kind = @kind) and (@period::text = '' or i.period = @period)
order by i.id desc limit @size;

-- name: StandingInvoices :many
-- The documents that billed a period's usage: invoices, and credit notes of late usage.
-- What was cancelled stands until it is replaced: nothing bills it again by itself.
select i.org_id, i.id, i.kind, i.period, i.period_from, i.period_to, i.close_no, i.status, i.live, i.issuer, i.locale, i.tax_point, i.due_on, i.number, i.currency, i.seller, i.buyer, i.subtotal_minor, i.tax_minor, i.total_minor, i.credited_minor, i.content_version, i.content_hash, i.reason, i.refund, i.notes, i.created_at, i.finalized_at, i.corrects, i.replaces, i.as_of_close,
  c.number as corrects_number, c.finalized_at as corrects_at, r.number as replaces_number, r.finalized_at as replaces_at,
  o.media_type, o.sha256, coalesce(octet_length(o.body), 0)::bigint as original_size
from invoices i
left join invoices c on c.id = i.corrects
left join invoices r on r.id = i.replaces
left join invoice_originals o on o.org_id = i.org_id and o.invoice_id = i.id
where i.org_id = @org_id and i.period = @period and i.as_of_close is not null and i.status <> 'draft'
  and not exists (select 1 from invoices n where n.replaces = i.id)
order by i.close_no, i.id;

-- name: NotesOf :many
select i.org_id, i.id, i.kind, i.period, i.period_from, i.period_to, i.close_no, i.status, i.live, i.issuer, i.locale, i.tax_point, i.due_on, i.number, i.currency, i.seller, i.buyer, i.subtotal_minor, i.tax_minor, i.total_minor, i.credited_minor, i.content_version, i.content_hash, i.reason, i.refund, i.notes, i.created_at, i.finalized_at, i.corrects, i.replaces, i.as_of_close,
  c.number as corrects_number, c.finalized_at as corrects_at, r.number as replaces_number, r.finalized_at as replaces_at,
  o.media_type, o.sha256, coalesce(octet_length(o.body), 0)::bigint as original_size
from invoices i
left join invoices c on c.id = i.corrects
left join invoices r on r.id = i.replaces
left join invoice_originals o on o.org_id = i.org_id and o.invoice_id = i.id
where i.org_id = @org_id and i.corrects = @invoice_id and i.status = 'open'
order by i.id;

-- name: WaitingCarried :many
select i.org_id, i.id, i.kind, i.period, i.period_from, i.period_to, i.close_no, i.status, i.live, i.issuer, i.locale, i.tax_point, i.due_on, i.number, i.currency, i.seller, i.buyer, i.subtotal_minor, i.tax_minor, i.total_minor, i.credited_minor, i.content_version, i.content_hash, i.reason, i.refund, i.notes, i.created_at, i.finalized_at, i.corrects, i.replaces, i.as_of_close,
  c.number as corrects_number, c.finalized_at as corrects_at, r.number as replaces_number, r.finalized_at as replaces_at,
  o.media_type, o.sha256, coalesce(octet_length(o.body), 0)::bigint as original_size
from invoices i
left join invoices c on c.id = i.corrects
left join invoices r on r.id = i.replaces
left join invoice_originals o on o.org_id = i.org_id and o.invoice_id = i.id
where i.org_id = @org_id and i.status = 'carried' and i.live and i.carried_by is null
order by i.period_from, i.id;

-- name: InvoiceLines :many
select line_no, component, reference, variant, project_id, project_name, description, meter, sku_id, sku_code, isolation_gpu,
  isolation_host, pricing_kind, price_version_id, tier, tax_category, (tax_rate * 1000000)::bigint as rate_ppm,
  quantity::text as quantity, quantity_unit, priced_unit, divisor::bigint as divisor, unit_price::text as unit_price, discounts,
  packages, exact, amount_minor, simulated, from_at, to_at, corrects_invoice, corrects_number, corrects_line
from invoice_lines where org_id = @org_id and invoice_id = @invoice_id order by line_no;

-- name: InvoiceSubjects :many
select line_no, subject_kind, subject_id, subject_name, quantity::text as quantity, segment_count, amount_minor, hash
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
