-- Issuers, tax tables, billing profiles, corrections and originals.

-- name: IssuerAt :one
-- The profile in force; without a version the row has none.
select i.slug, i.prefix, coalesce(v.effective_from, timestamptz 'epoch')::timestamptz as effective_from, v.profile
from issuers i
left join lateral (select effective_from, profile from issuer_versions w
  where w.issuer = i.slug and w.effective_from <= @at::timestamptz order by w.effective_from desc limit 1) v on true
where i.slug = @slug;

-- name: ListIssuers :many
select slug from issuers order by slug;

-- name: InsertIssuer :exec
insert into issuers (slug, prefix) values (@slug, @prefix) on conflict (slug) do nothing;

-- name: InsertIssuerVersion :exec
insert into issuer_versions (issuer, effective_from, profile, created_by, created_at)
values (@issuer, @effective_from, @profile, @created_by, biz_now());

-- name: LatestTaxTable :one
select version, document from tax_tables where issuer = @issuer order by version desc limit 1;

-- name: InsertTaxTable :one
insert into tax_tables (issuer, version, document, created_by, created_at)
values (@issuer, (select coalesce(max(t.version), 0) + 1 from tax_tables t where t.issuer = @issuer), @document, @created_by, biz_now())
returning version;

-- name: SetBillingProfile :execrows
update organizations set billing_name = @billing_name, billing_address = @billing_address, billing_country = @billing_country,
  billing_postcode = @billing_postcode, tax_id = @tax_id, tax_status = @tax_status, locale = @locale, issuer = @issuer,
  einvoice = @einvoice, einvoice_endpoint = @einvoice_endpoint, revision = revision + 1
where id = @org_id;

-- name: InsertTaxIDCheck :one
insert into tax_id_checks (org_id, id, tax_id, outcome, source, consultation, checked_at)
values (@org_id, @check_id, @tax_id, @outcome, @source, @consultation, biz_now())
returning checked_at;

-- name: TaxIDCheckAt :one
-- The last answer about an id by an instant.
select outcome, source, consultation, checked_at from tax_id_checks
where org_id = @org_id and tax_id = @tax_id and checked_at <= @at::timestamptz order by checked_at desc, id desc limit 1;

-- name: LockInvoice :one
select status, live, credited_minor, total_minor from invoices where org_id = @org_id and id = @invoice_id for no key update;

-- name: CreditInvoice :execrows
update invoices set credited_minor = credited_minor + @minor where org_id = @org_id and id = @invoice_id and status = 'open';

-- name: CancelInvoice :execrows
update invoices set live = false where org_id = @org_id and id = @invoice_id and status = 'open' and live;

-- name: TakeCarried :execrows
update invoices i set carried_by = @by::uuid
where i.org_id = @org_id and i.id = any(@invoice_ids::uuid[]) and i.status = 'carried'
  and (i.carried_by is null or exists (select 1 from invoices c where c.id = i.carried_by and not c.live));

-- name: AdvanceOf :one
select id from invoices where org_id = @org_id and kind = 'advance' and source_id = @source_id and live and status = 'open';

-- name: AdvancesLeft :many
-- Advance invoices with the net that no credit note took off.
select a.id, a.number, a.currency, a.source_id, l.tax_category, (l.tax_rate * 1000000)::bigint as rate_ppm, a.total_minor,
  (a.subtotal_minor - coalesce(c.net, 0))::bigint as net_left
from invoices a
join invoice_lines l on l.invoice_id = a.id and l.line_no = 1
left join lateral (select -sum(n.subtotal_minor) as net from invoices n where n.corrects = a.id and n.status = 'open') c on true
where a.org_id = @org_id and a.kind = 'advance' and a.live and a.status = 'open'
  and a.subtotal_minor - coalesce(c.net, 0) > 0
order by a.finalized_at, a.id;

-- name: AdvancesDeducted :many
-- The net that standing documents deducted, by the advance invoice that a line names.
select o.reference, (-sum(o.amount_minor))::bigint as net
from invoice_lines o join invoices i on i.id = o.invoice_id
where o.org_id = @org_id and o.component = 'advance_deduction' and i.live and i.status = 'open'
group by o.reference;

-- name: BasisOf :one
select engine_version, inputs, inputs_hash, terms, segment_count, as_of_close, source_id from invoices
where org_id = @org_id and id = @invoice_id;

-- name: DocumentsOfPeriod :many
select org_id, id from invoices where period = @period and status <> 'draft' order by org_id, id;

-- name: InsertOriginal :execrows
insert into invoice_originals (org_id, invoice_id, number, media_type, sha256, body, keep_until)
values (@org_id, @invoice_id, @number, @media_type, @sha256, @body, (cast(@keep_until as timestamptz) at time zone 'UTC')::date)
on conflict (invoice_id) do nothing;

-- name: ReadOriginal :one
select media_type, sha256, body from invoice_originals where org_id = @org_id and invoice_id = @invoice_id;

-- name: WithoutOriginal :many
select i.org_id, i.id from invoices i
where i.status = 'open' and i.id > @after and not exists (select 1 from invoice_originals o where o.invoice_id = i.id)
order by i.id limit @size;
