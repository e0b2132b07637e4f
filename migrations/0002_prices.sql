-- Prices: tiers, contracts, reservations, spot series. What is in force cannot be
-- changed: it ends earlier, in the future, or a newer row follows it.
-- +goose Up

-- ── tiers of list prices ───────────────────────────────────────────────────
alter table prices
  add column tiering text not null default '' constraint prices_tiering check (tiering in ('', 'graduated', 'volume', 'package')),
  add column package_size numeric(38,12),
  add constraint prices_meter check (meter in ('gpu', 'gpu_retained', 'ip', 'reservation', 'storage', 'egress')),
  add constraint prices_package check ((tiering = 'package') = (package_size is not null) and coalesce(package_size, 1) > 0);
-- amount of a tiered price is that of its first step, of a package for one priced unit.
create table price_steps (
  price_version_id uuid not null,
  sku_id uuid not null,
  meter text not null,
  step integer not null constraint price_steps_step check (step between 1 and 100),
  up_to numeric(38,12) constraint price_steps_up_to check (up_to > 0),
  amount numeric(24,12) not null constraint price_steps_amount check (amount >= 0),
  primary key (price_version_id, sku_id, meter, step),
  constraint price_steps_price foreign key (price_version_id, sku_id, meter) references prices (price_version_id, sku_id, meter)
);
select immutable_table('price_steps');

-- ── what may end early ─────────────────────────────────────────────────────
-- Rows with a range during: nothing changes but the end, which only comes nearer and
-- never lies in the past; or the row is cancelled before it begins.
-- +goose StatementBegin
create function ends_early_only() returns trigger language plpgsql as $$
declare
  moving constant text[] := array['during', 'cancelled_at', 'ended_by', 'next_at', 'revision'];
  was jsonb;
  becomes jsonb;
  earliest timestamptz := biz_at(clock_timestamp() - interval '10 seconds'); -- what a transaction may take
begin
  if tg_op = 'DELETE' then
    raise exception '% on % is refused', tg_op, tg_table_name using errcode = 'restrict_violation', constraint = 'immutable';
  end if;
  was := to_jsonb(old);
  becomes := to_jsonb(new);
  if was - moving <> becomes - moving or lower(old.during) <> lower(new.during) then
    raise exception 'a row of % is changed', tg_table_name using errcode = 'restrict_violation', constraint = 'immutable';
  end if;
  if was ->> 'cancelled_at' is not null and (becomes ->> 'cancelled_at' is null or old.during <> new.during)
    or was ->> 'cancelled_at' is null and becomes ->> 'cancelled_at' is not null and lower(old.during) < earliest
    or old.during <> new.during and (coalesce(upper(new.during), 'infinity') > coalesce(upper(old.during), 'infinity')
      or upper(new.during) < earliest)
  then
    raise exception 'a row of % ends early in the future only', tg_table_name
      using errcode = 'restrict_violation', constraint = 'ends_early_only';
  end if;
  return new;
end $$;
-- +goose StatementEnd
alter table organization_price_books add constraint organization_price_books_bounds check (not isempty(during) and not lower_inf(during));
create trigger organization_price_books_ends before update or delete on organization_price_books
  for each row execute function ends_early_only();
revoke update, delete on organization_price_books from tranche_system;
grant update (during) on organization_price_books to tranche_system;

-- ── contracts ──────────────────────────────────────────────────────────────
create table contracts (
  org_id uuid not null constraint contracts_org references organizations (id),
  id uuid not null,
  name text not null,
  currency text not null constraint contracts_currency check (currency ~ '^[A-Z]{3}$'),
  during tstzrange not null,
  created_by text not null default '',
  created_at timestamptz not null, -- business
  cancelled_at timestamptz, -- before it began
  ended_by text not null default '',
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint contracts_id unique (id),
  constraint contracts_bounds check (not isempty(during) and lower_inc(during) and not upper_inc(during) and not lower_inf(during))
);
create trigger contracts_ends before update or delete on contracts for each row execute function ends_early_only();
create trigger contracts_no_truncate before truncate on contracts for each statement execute function refuse_change();
-- One row a term. An empty scope selects all. Terms of one kind and scope never
-- overlap; discounts and amounts of different names stand side by side.
create table contract_terms (
  org_id uuid not null,
  contract_id uuid not null,
  no integer not null,
  kind text not null constraint contract_terms_kind check (kind in
    ('price', 'discount', 'free_quota', 'minimum', 'cap', 'commitment', 'fixed_discount')),
  name text not null default '',
  offer text not null default '', -- as the scope was named
  scope_meter text not null default '',
  scope_family text not null default '',
  scope_sku uuid constraint contract_terms_sku references skus,
  price numeric(24,12) constraint contract_terms_price check (price >= 0),
  tiering text not null default '' constraint contract_terms_tiering check (tiering in ('', 'graduated', 'volume', 'package')),
  package_size numeric(38,12) constraint contract_terms_package check (package_size > 0),
  ppm bigint constraint contract_terms_ppm check (ppm between 1 and 1000000),
  quantity numeric(38,0) constraint contract_terms_quantity check (quantity > 0), -- of the meter: gpu_us
  micros bigint constraint contract_terms_micros check (micros > 0),
  hours bigint constraint contract_terms_hours check (hours between 1 and 744),
  amount_minor bigint constraint contract_terms_amount check (amount_minor > 0),
  during tstzrange not null, -- the contract's
  cancelled_at timestamptz,
  primary key (org_id, contract_id, no),
  constraint contract_terms_contract foreign key (org_id, contract_id) references contracts (org_id, id),
  constraint contract_terms_value check (num_nonnulls(price, ppm, quantity, micros, hours, amount_minor) = 1 and case kind
    when 'price' then price is not null and scope_sku is not null and scope_meter <> '' when 'discount' then ppm is not null
    when 'free_quota' then quantity is not null and scope_meter <> '' when 'minimum' then micros is not null
    when 'cap' then hours is not null or amount_minor is not null else amount_minor is not null end),
  constraint contract_terms_no_overlap exclude using gist (org_id with =, kind with =,
    (case when kind in ('discount', 'fixed_discount') then name else '' end) with =, scope_meter with =, scope_family with =,
    (coalesce(scope_sku, '00000000-0000-0000-0000-000000000000')) with =, during with &&) where (cancelled_at is null)
);
create table contract_steps (
  org_id uuid not null,
  contract_id uuid not null,
  no integer not null,
  step integer not null constraint contract_steps_step check (step between 1 and 100),
  up_to numeric(38,12) constraint contract_steps_up_to check (up_to > 0),
  amount numeric(24,12) not null constraint contract_steps_amount check (amount >= 0),
  primary key (org_id, contract_id, no, step),
  constraint contract_steps_term foreign key (org_id, contract_id, no) references contract_terms (org_id, contract_id, no)
);
-- A term lasts exactly as long as its contract.
-- +goose StatementBegin
create function contract_terms_as_contract() returns trigger language plpgsql as $$
begin
  if not exists (select 1 from contracts c where c.org_id = new.org_id and c.id = new.contract_id
      and c.during = new.during and c.cancelled_at is not distinct from new.cancelled_at) then
    raise exception 'term % lasts otherwise than its contract', new.no
      using errcode = 'restrict_violation', constraint = 'contract_terms_as_contract';
  end if;
  return new;
end $$;
-- +goose StatementEnd
create trigger contract_terms_as_contract before insert or update on contract_terms
  for each row execute function contract_terms_as_contract();
create trigger contract_terms_ends before update or delete on contract_terms for each row execute function ends_early_only();
create trigger contract_terms_no_truncate before truncate on contract_terms for each statement execute function refuse_change();
select immutable_table('contract_steps');
select tenant_table('contracts');
select tenant_table('contract_terms');
select tenant_table('contract_steps');

-- ── reservations ───────────────────────────────────────────────────────────
-- Paid for whether used or not: usage on the reservation meter from start to end.
create table reservations (
  org_id uuid not null constraint reservations_org references organizations (id),
  id uuid not null,
  project_id uuid not null,
  name text not null,
  offer_id text not null constraint reservations_offer references offers,
  sku_id uuid not null constraint reservations_sku references skus,
  family text not null, -- what it covers: GPU model and mode
  region_id text not null constraint reservations_region references regions,
  units bigint not null constraint reservations_units check (units between 1 and 1000000), -- slices at once
  price_book_id uuid not null constraint reservations_book references price_books,
  locked_price_version_id uuid constraint reservations_version references price_versions,
  simulated boolean not null default false,
  during tstzrange not null,
  next_at timestamptz, -- when its meter starts or stops next; null: never again
  created_by text not null default '',
  created_at timestamptz not null, -- business
  cancelled_at timestamptz, -- before it began
  ended_by text not null default '',
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint reservations_id unique (id),
  constraint reservations_project foreign key (org_id, project_id) references projects (org_id, id),
  constraint reservations_bounds check (not isempty(during) and lower_inc(during) and not upper_inc(during)
    and not lower_inf(during) and not upper_inf(during))
);
create index reservations_next on reservations (next_at) where next_at is not null;
create index reservations_during on reservations using gist (org_id, during);
create trigger reservations_ends before update or delete on reservations for each row execute function ends_early_only();
create trigger reservations_no_truncate before truncate on reservations for each statement execute function refuse_change();
select tenant_table('reservations');

-- ── spot series ────────────────────────────────────────────────────────────
-- Piece-wise constant and append-only: a price holds until the next one begins.
create table spot_prices (
  region_id text not null constraint spot_prices_region references regions,
  sku_id uuid not null constraint spot_prices_sku references skus,
  currency text not null constraint spot_prices_currency check (currency ~ '^[A-Z]{3}$'),
  effective_from timestamptz not null,
  amount numeric(24,12) not null constraint spot_prices_amount check (amount >= 0),
  created_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  primary key (region_id, sku_id, currency, effective_from)
);
-- +goose StatementBegin
create function spot_prices_append() returns trigger language plpgsql as $$
begin
  if new.effective_from < biz_at(clock_timestamp() - interval '10 seconds') or exists (select 1 from spot_prices p where p.region_id = new.region_id
      and p.sku_id = new.sku_id and p.currency = new.currency and p.effective_from >= new.effective_from) then
    raise exception 'a spot price begins after the newest one and not in the past'
      using errcode = 'restrict_violation', constraint = 'spot_prices_append';
  end if;
  return new;
end $$;
-- +goose StatementEnd
create trigger spot_prices_append before insert on spot_prices for each row execute function spot_prices_append();
select immutable_table('spot_prices');
create index usage_segments_spot on usage_segments (org_id, region, sku_id) where pricing_kind = 'spot';

-- ── privileges ─────────────────────────────────────────────────────────────
grant select on price_steps, spot_prices, contracts, contract_terms, contract_steps, reservations to tranche_org, tranche_system;
grant insert on price_steps, spot_prices, contracts, contract_terms, contract_steps, reservations to tranche_system;
grant insert on reservations to tranche_org;
grant update (during, cancelled_at, ended_by, revision) on contracts to tranche_system;
grant update (during, cancelled_at) on contract_terms to tranche_system;
grant update (during, cancelled_at, ended_by, next_at, revision) on reservations to tranche_system;
