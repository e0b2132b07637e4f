-- Documents: issuers, tax tables, what credits and replaces what, legal originals.
-- +goose Up

-- ── who sells ──────────────────────────────────────────────────────────────
create table issuers (
  slug text primary key constraint issuers_slug check (slug ~ '^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$'),
  prefix text not null constraint issuers_prefix unique,
  created_at timestamptz not null default clock_timestamp()
);
insert into issuers (slug, prefix) values ('default', 'TR');
create table issuer_versions (
  issuer text not null constraint issuer_versions_issuer references issuers,
  effective_from timestamptz not null,
  profile jsonb not null,
  created_by text not null,
  created_at timestamptz not null,
  constraint issuer_versions_start primary key (issuer, effective_from)
);
select immutable_table('issuer_versions');
create table tax_tables (
  issuer text not null constraint tax_tables_issuer references issuers,
  version integer not null constraint tax_tables_version_positive check (version > 0),
  document jsonb not null,
  created_by text not null,
  created_at timestamptz not null,
  constraint tax_tables_version primary key (issuer, version)
);
select immutable_table('tax_tables');
grant select on issuers, issuer_versions, tax_tables to tranche_org, tranche_system;
grant insert on issuers, issuer_versions, tax_tables to tranche_system;

-- ── who buys ───────────────────────────────────────────────────────────────
alter table organizations
  add column billing_postcode text not null default '',
  add column tax_status text not null default 'business' constraint organizations_tax_status check (tax_status in ('business', 'consumer')),
  add column locale text not null default '',
  add column issuer text not null default 'default' constraint organizations_issuer references issuers,
  add column einvoice boolean not null default false,
  add column einvoice_endpoint text not null default '';
create table tax_id_checks (
  org_id uuid not null constraint tax_id_checks_org references organizations (id),
  id uuid not null,
  tax_id text not null,
  outcome text not null constraint tax_id_checks_outcome check (outcome in ('valid', 'invalid', 'unknown')),
  source text not null,
  consultation text not null default '',
  checked_at timestamptz not null,
  primary key (org_id, id)
);
create index tax_id_checks_latest on tax_id_checks (org_id, tax_id, checked_at desc);
select tenant_table('tax_id_checks');
select immutable_table('tax_id_checks');
grant select on tax_id_checks to tranche_org, tranche_system;
grant insert on tax_id_checks to tranche_system;

-- ── documents ──────────────────────────────────────────────────────────────
alter table invoices
  add column issuer text not null default 'default' constraint invoices_issuer references issuers,
  add column locale text not null default 'en',
  add column tax_point timestamptz,
  add column due_on date,
  add column corrects uuid,
  add column source_id uuid,
  add column reason text not null default '',
  add column refund text not null default '' constraint invoices_refund check (refund in ('', 'wallet', 'provider', 'none')),
  add column notes text[] not null default '{}',
  add column content_version integer not null default 1,
  add column terms jsonb,
  add column as_of_close integer,
  add column credited_minor bigint not null default 0,
  add column carried_by uuid,
  drop constraint invoices_status,
  add constraint invoices_status check (status in ('draft', 'open', 'carried')),
  add constraint invoices_corrects foreign key (org_id, corrects) references invoices (org_id, id),
  add constraint invoices_carried_by foreign key (org_id, carried_by) references invoices (org_id, id),
  add constraint invoices_replaces foreign key (org_id, replaces) references invoices (org_id, id),
  add constraint invoices_credit_note check ((kind = 'credit_note') = (corrects is not null)),
  add constraint invoices_signs check (kind <> 'credit_note' or total_minor <= 0),
  add constraint invoices_credited check (credited_minor between 0 and greatest(total_minor, 0)),
  add constraint invoices_carried check (carried_by is null or status = 'carried');
create unique index invoices_advance_once on invoices (org_id, source_id) where kind = 'advance' and live;
create index invoices_notes_of on invoices (corrects) where corrects is not null;
create index invoices_waiting on invoices (org_id) where status = 'carried' and carried_by is null and live;
alter table invoice_lines
  alter column sku_id drop not null,
  alter column project_id drop not null,
  add column component text not null default 'usage',
  add column reference text not null default '',
  add column variant text not null default '',
  add column packages bigint not null default 0,
  add column priced_unit text not null default '',
  add column tax_rate numeric(9,6) not null default 0,
  add column discounts jsonb not null default '[]',
  add column exact text not null default '',
  add column from_at timestamptz,
  add column to_at timestamptz,
  add column corrects_invoice uuid,
  add column corrects_number text not null default '',
  add column corrects_line integer;
alter table line_subjects add column subject_kind text not null default 'instance';
create index invoice_lines_corrects on invoice_lines (corrects_invoice) where corrects_invoice is not null;
create index invoice_lines_advances on invoice_lines (org_id, reference) where component = 'advance_deduction';

-- A finalized or carried document changes in three columns only: whether it counts,
-- how much of it was credited, and which invoice took a carried amount on.
-- +goose StatementBegin
create or replace function invoices_guard() returns trigger language plpgsql as $$
declare states constant text[] := array['live', 'credited_minor', 'carried_by'];
begin
  if tg_op = 'UPDATE' and old.status = 'draft' then return new; end if;
  if tg_op = 'DELETE' and old.status = 'draft' then return old; end if;
  if tg_op = 'UPDATE' and to_jsonb(new) - states = to_jsonb(old) - states
    and (old.live or not new.live) and new.credited_minor >= old.credited_minor
    and (old.carried_by is null or new.carried_by = old.carried_by or not exists (select 1 from invoices where id = old.carried_by and live))
  then return new; end if;
  raise exception 'invoice % is finalized', old.number using errcode = 'restrict_violation', constraint = 'invoices_finalized';
end $$;
-- +goose StatementEnd

-- The first wall: no right to change what is issued.
revoke update on invoices, invoice_lines, line_subjects, invoice_taxes from tranche_system;
grant update (status, series, number, finalized_at, due_on, live, credited_minor, carried_by) on invoices to tranche_system;

-- The one file that is the document before the law. It is written once and belongs to
-- no organization's life: nothing but its own retention ends it.
create table invoice_originals (
  org_id uuid not null,
  invoice_id uuid not null,
  number text not null,
  media_type text not null,
  sha256 bytea not null constraint invoice_originals_sha256 check (length(sha256) = 32),
  body bytea not null,
  stored_at timestamptz not null default clock_timestamp(),
  keep_until date not null,
  constraint invoice_originals_once primary key (invoice_id)
);
create index invoice_originals_org on invoice_originals (org_id, invoice_id);
select tenant_table('invoice_originals');
select immutable_table('invoice_originals');
grant select on invoice_originals to tranche_org, tranche_system;
grant insert on invoice_originals to tranche_system;
