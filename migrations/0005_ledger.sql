-- Ledger: accounts, wallets, grants, budgets, closed months.
-- +goose Up

-- ── ledger ─────────────────────────────────────────────────────────────────
-- The invoice that a posting concerns, for ageing and settlement.
alter table ledger_postings add column document_id uuid;
create index ledger_postings_document on ledger_postings (org_id, document_id) where document_id is not null;
create index ledger_journals_day on ledger_journals (effective_on);

-- One row: the last day of the newest closed month. Who posts holds it FOR SHARE.
create table ledger_books (
  id boolean primary key default true constraint ledger_books_one check (id),
  closed_through date not null default '-infinity'
);
insert into ledger_books default values;
create table month_closes (
  period text primary key constraint month_closes_period check (period ~ '^\d{4}-\d{2}$'),
  report bytea not null, -- JSON, byte for byte what the hash covers
  journal_csv bytea not null,
  sha256 bytea not null constraint month_closes_hash check (length(sha256) = 32),
  closed_by text not null,
  closed_at timestamptz not null
);
select immutable_table('month_closes');

-- A closed month takes no journal any more.
-- +goose StatementBegin
create function ledger_month_open() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if new.effective_on <= (select closed_through from ledger_books for share) then
    raise exception 'the month of % is closed', new.effective_on using errcode = 'restrict_violation', constraint = 'ledger_month_open';
  end if;
  return new;
end $$;
-- +goose StatementEnd
create trigger ledger_month_open before insert on ledger_journals for each row execute function ledger_month_open();

-- ── wallets ────────────────────────────────────────────────────────────────
create table wallets (
  org_id uuid primary key constraint wallets_org references organizations (id),
  currency text not null,
  mode text not null default 'postpaid' constraint wallets_mode check (mode in ('postpaid', 'prepaid')),
  prepaid_minor bigint not null default 0 constraint wallets_prepaid_not_negative check (prepaid_minor >= 0),
  promo_minor bigint not null default 0 constraint wallets_promo_not_negative check (promo_minor >= 0),
  -- of promo_minor: what running months take of it as of the last tick
  promo_held_minor bigint not null default 0,
  tax_ppm bigint not null default 0 constraint wallets_tax check (tax_ppm between 0 and 1000000),
  topup_threshold_minor bigint,
  topup_amount_minor bigint constraint wallets_topup_amount check (topup_amount_minor > 0),
  topup_monthly_max_minor bigint,
  ticked_at timestamptz,
  next_tick_at timestamptz not null default 'epoch',
  exhausted_at timestamptz,
  revision bigint not null default 1,
  constraint wallets_topup check (num_nulls(topup_threshold_minor, topup_amount_minor, topup_monthly_max_minor) in (0, 3))
);
create index wallets_due on wallets (next_tick_at);
select tenant_table('wallets');
create table credit_grants (
  org_id uuid not null constraint credit_grants_org references organizations (id),
  id uuid not null,
  kind text not null constraint credit_grants_kind check (kind in ('promo', 'prepaid')),
  name text not null,
  priority integer not null,
  expires_at timestamptz,
  scope jsonb not null default '{}',
  amount_minor bigint not null constraint credit_grants_amount check (amount_minor > 0),
  tax_minor bigint not null default 0 constraint credit_grants_tax check (tax_minor between 0 and amount_minor),
  remaining_minor bigint not null,
  currency text not null,
  source_id uuid not null,
  lapsed_at timestamptz,
  created_by text not null default '',
  created_at timestamptz not null,
  primary key (org_id, id),
  constraint credit_grants_id unique (id),
  constraint credit_grants_source unique (source_id),
  constraint credit_grants_remaining check (remaining_minor between 0 and amount_minor)
);
create index credit_grants_expiry on credit_grants (expires_at) where lapsed_at is null and expires_at is not null;
select tenant_table('credit_grants');
-- Movements of grants, in their order: positive uses, negative gives back.
create table credit_uses (
  org_id uuid not null,
  id bigint generated always as identity,
  grant_id uuid not null,
  kind text not null,
  period text not null,
  close_no integer not null,
  amount_minor bigint not null constraint credit_uses_amount check (amount_minor <> 0),
  reason text not null constraint credit_uses_reason check (reason in ('burn', 'invoice', 'credit', 'returned', 'expired')),
  at timestamptz not null,
  primary key (org_id, id),
  constraint credit_uses_grant foreign key (org_id, grant_id) references credit_grants (org_id, id)
);
create index credit_uses_period on credit_uses (org_id, period, close_no, id);
create index credit_uses_by_grant on credit_uses (org_id, grant_id);
select tenant_table('credit_uses');
select immutable_table('credit_uses');
-- What the bill of a running month takes of promotional grants, as of the last tick.
create table promo_holds (
  org_id uuid not null,
  grant_id uuid not null,
  period text not null,
  amount_minor bigint not null constraint promo_holds_amount check (amount_minor > 0),
  primary key (org_id, grant_id, period),
  constraint promo_holds_grant foreign key (org_id, grant_id) references credit_grants (org_id, id)
);
select tenant_table('promo_holds');
-- What was accrued and burned for a month, by telescoping; rev counts its journals.
create table period_funding (
  org_id uuid not null constraint period_funding_org references organizations (id),
  period text not null,
  close_no integer not null,
  accrued_minor bigint not null default 0,
  burned_minor bigint not null default 0 constraint period_funding_burned check (burned_minor >= 0),
  excess_minor bigint not null default 0,
  outage_minor bigint not null default 0,
  accrued_rev integer not null default 0,
  burned_rev integer not null default 0,
  invoice_id uuid,
  accrued_at timestamptz,
  primary key (org_id, period, close_no)
);
select tenant_table('period_funding');
-- What a start keeps of a prepaid wallet while its instance shall run.
create table wallet_claims (
  org_id uuid not null,
  instance_id uuid not null,
  project_id uuid not null,
  key_id uuid not null,
  amount numeric(24,12) not null constraint wallet_claims_amount check (amount >= 0),
  primary key (org_id, instance_id),
  constraint wallet_claims_instance foreign key (org_id, instance_id) references instances (org_id, id)
);
select tenant_table('wallet_claims');
create table top_ups (
  org_id uuid not null constraint top_ups_org references organizations (id),
  id uuid not null,
  period text not null,
  amount_minor bigint not null constraint top_ups_amount check (amount_minor > 0),
  currency text not null,
  status text not null default 'pending' constraint top_ups_status check (status in ('pending', 'ordered', 'done', 'failed')),
  tries integer not null default 0,
  created_at timestamptz not null,
  ended_at timestamptz,
  primary key (org_id, id),
  constraint top_ups_id unique (id)
);
create unique index top_ups_one_open on top_ups (org_id) where status in ('pending', 'ordered');
select tenant_table('top_ups');
create table coupons (
  code text primary key constraint coupons_code check (code ~ '^[A-Z0-9-]{4,40}$'),
  name text not null,
  amount_minor bigint not null constraint coupons_amount check (amount_minor > 0),
  currency text not null,
  priority integer not null default 0,
  valid_until timestamptz,
  grant_days integer,
  max_uses integer not null constraint coupons_max_uses check (max_uses > 0),
  uses integer not null default 0,
  created_by text not null,
  created_at timestamptz not null,
  constraint coupons_used_up check (uses between 0 and max_uses)
);
create table coupon_uses (
  org_id uuid not null constraint coupon_uses_org references organizations (id),
  code text not null constraint coupon_uses_coupon references coupons,
  grant_id uuid not null,
  at timestamptz not null,
  primary key (org_id, code)
);
select tenant_table('coupon_uses');

-- ── budgets ────────────────────────────────────────────────────────────────
create table budgets (
  org_id uuid not null constraint budgets_org references organizations (id),
  id uuid not null,
  name text not null default '',
  scope text not null constraint budgets_scope check (scope in ('organization', 'project', 'key')),
  project_id uuid,
  key_id uuid,
  amount_minor bigint not null constraint budgets_amount check (amount_minor > 0),
  currency text not null,
  thresholds integer[] not null default '{50,80,100}',
  hard boolean not null default false,
  period text not null default '',
  spent_minor bigint not null default 0,
  checked_at timestamptz,
  created_by text not null default '',
  created_at timestamptz not null,
  primary key (org_id, id),
  constraint budgets_id unique (id),
  constraint budgets_project foreign key (org_id, project_id) references projects (org_id, id),
  constraint budgets_subject check ((scope = 'project') = (project_id is not null) and (scope = 'key') = (key_id is not null))
);
select tenant_table('budgets');
create table budget_alerts (
  org_id uuid not null,
  budget_id uuid not null,
  period text not null,
  threshold integer not null,
  spent_minor bigint not null,
  at timestamptz not null,
  primary key (org_id, budget_id, period, threshold),
  constraint budget_alerts_budget foreign key (org_id, budget_id) references budgets (org_id, id) on delete cascade
);
select tenant_table('budget_alerts');
-- Who made an instance: what a key's budget counts.
create table instance_keys (
  org_id uuid not null,
  instance_id uuid not null,
  key_id uuid not null,
  primary key (org_id, instance_id),
  constraint instance_keys_instance foreign key (org_id, instance_id) references instances (org_id, id)
);
create index instance_keys_key on instance_keys (org_id, key_id);
select tenant_table('instance_keys');

-- What a GPU-hour costs the operator.
create table gpu_costs (
  gpu_model text not null,
  currency text not null,
  effective_from timestamptz not null,
  per_hour numeric(24,12) not null constraint gpu_costs_amount check (per_hour >= 0),
  set_by text not null default '',
  primary key (gpu_model, currency, effective_from)
);
select immutable_table('gpu_costs');

-- ── privileges ─────────────────────────────────────────────────────────────
grant select, insert on month_closes, credit_uses, gpu_costs to tranche_system;
grant select, update on ledger_books to tranche_system;
grant select, insert, update on wallets, period_funding, top_ups, coupon_uses to tranche_system;
-- Of money that was given only what is left of it moves.
grant select, insert, update (remaining_minor, lapsed_at) on credit_grants to tranche_system;
grant select, insert, update (uses) on coupons to tranche_system;
grant select, insert, update, delete on promo_holds, wallet_claims, budgets, budget_alerts, instance_keys to tranche_system;
grant select on wallets, credit_grants, credit_uses, promo_holds, period_funding, wallet_claims, top_ups, coupon_uses, budgets,
  budget_alerts, instance_keys, ledger_journals, ledger_postings to tranche_org;
-- A tenant's start holds a part of its wallet.
grant insert, update (amount) on wallet_claims to tranche_org;
grant insert on instance_keys to tranche_org;
grant update (next_tick_at) on wallets to tranche_org; -- for its lock, and to be looked at soon
