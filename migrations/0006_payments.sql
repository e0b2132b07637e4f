-- Payments: what was charged, what came, what was given back, and who agreed.
-- Amounts are minor units of the currency next to them.
-- +goose Up

-- ── providers ──────────────────────────────────────────────────────────────
create table payment_customers (
  org_id uuid not null constraint payment_customers_org references organizations (id),
  provider text not null,
  customer_ref text not null default '', -- '' until the provider knows the organization
  method_ref text not null default '',   -- '' nothing is charged by itself
  method_at timestamptz not null default biz_now(), -- business time of the choice
  revision bigint not null default 1,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (org_id)
);
create unique index payment_customers_ref on payment_customers (provider, customer_ref) where customer_ref <> '';
select tenant_table('payment_customers');

-- One intent to charge. Its key at the provider follows from what is charged and the
-- number of the attempt, so a repetition is the same order.
create table payment_attempts (
  org_id uuid not null constraint payment_attempts_org references organizations (id),
  id uuid not null,
  purpose text not null constraint payment_attempts_purpose check (purpose in ('invoice', 'top_up')),
  subject_id uuid not null,
  attempt_no integer not null constraint payment_attempts_no check (attempt_no > 0),
  provider text not null,
  intent_key text not null,
  amount_minor bigint not null constraint payment_attempts_amount check (amount_minor > 0),
  currency text not null,
  state text not null default 'planned' constraint payment_attempts_state check (state in
    ('planned', 'processing', 'needs_action', 'succeeded', 'declined', 'cancelled')),
  provider_ref text not null default '',
  reason text not null default '',
  detail text not null default '',
  action_url text not null default '',
  sends integer not null default 0,
  next_try_at timestamptz default clock_timestamp(), -- machine time; null: nothing is to be done
  again_at timestamptz,                              -- business time of the next attempt after a decline
  created_at timestamptz not null,                   -- business time
  ended_at timestamptz,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint payment_attempts_id unique (id),
  constraint payment_attempts_once unique (org_id, subject_id, attempt_no),
  constraint payment_attempts_key unique (provider, intent_key)
);
create unique index payment_attempts_one_live on payment_attempts (org_id, subject_id)
  where state in ('planned', 'processing', 'needs_action');
create unique index payment_attempts_ref on payment_attempts (provider, provider_ref) where provider_ref <> '';
create index payment_attempts_work on payment_attempts (next_try_at) where next_try_at is not null;
select tenant_table('payment_attempts');

-- Money that came. What of it went where is counted under the row's lock.
create table payments (
  org_id uuid not null constraint payments_org references organizations (id),
  id uuid not null,
  provider text not null, -- 'bank' for transfers
  provider_ref text not null,
  attempt_id uuid,
  amount_minor bigint not null constraint payments_amount check (amount_minor > 0),
  currency text not null,
  fee_minor bigint,
  fee_currency text, -- the provider settles in it; null with an unknown fee
  allocated_minor bigint not null default 0 constraint payments_allocated check (allocated_minor >= 0),
  refunded_minor bigint not null default 0 constraint payments_refunded check (refunded_minor >= 0),
  charged_back_minor bigint not null default 0 constraint payments_charged_back check (charged_back_minor >= 0),
  payer text not null default '',
  reference text not null default '',
  received_at timestamptz not null, -- business time
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint payments_id unique (id),
  constraint payments_once unique (provider, provider_ref),
  constraint payments_spent check (allocated_minor + refunded_minor + charged_back_minor <= amount_minor)
);
create index payments_free on payments (org_id, id) where allocated_minor + refunded_minor + charged_back_minor < amount_minor;
select tenant_table('payments');

create table payment_allocations (
  org_id uuid not null,
  id uuid not null,
  payment_id uuid not null,
  invoice_id uuid not null,
  kind text not null constraint payment_allocations_kind check (kind in ('applied', 'released', 'refunded', 'charged_back')),
  amount_minor bigint not null constraint payment_allocations_amount check ((amount_minor > 0) = (kind = 'applied') and amount_minor <> 0),
  currency text not null,
  at timestamptz not null, -- business time
  primary key (org_id, id),
  constraint payment_allocations_payment foreign key (org_id, payment_id) references payments (org_id, id),
  constraint payment_allocations_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
create index payment_allocations_by_payment on payment_allocations (org_id, payment_id);
create index payment_allocations_by_invoice on payment_allocations (org_id, invoice_id);
select tenant_table('payment_allocations');
select immutable_table('payment_allocations');

create table payment_refunds (
  org_id uuid not null,
  id uuid not null,
  payment_id uuid not null,
  refund_key text not null,
  provider_ref text not null default '',
  amount_minor bigint not null constraint payment_refunds_amount check (amount_minor > 0),
  lost_minor bigint not null default 0, -- of amount_minor: was spent before somebody refunded it at the provider
  currency text not null,
  state text not null default 'planned' constraint payment_refunds_state check (state in ('planned', 'pending', 'succeeded', 'failed')),
  reason text not null default '',
  detail text not null default '',
  created_by text not null default '',
  sends integer not null default 0,
  next_try_at timestamptz default clock_timestamp(), -- machine time
  created_at timestamptz not null,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint payment_refunds_id unique (id),
  constraint payment_refunds_key unique (refund_key),
  constraint payment_refunds_payment foreign key (org_id, payment_id) references payments (org_id, id)
);
create unique index payment_refunds_ref on payment_refunds (provider_ref) where provider_ref <> '';
create index payment_refunds_work on payment_refunds (next_try_at) where next_try_at is not null;
create index payment_refunds_by_payment on payment_refunds (org_id, payment_id);
select tenant_table('payment_refunds');

create table payment_disputes (
  org_id uuid not null,
  id uuid not null,
  payment_id uuid not null,
  provider text not null,
  provider_ref text not null,
  amount_minor bigint not null constraint payment_disputes_amount check (amount_minor > 0),
  fee_minor bigint not null default 0,
  held_minor bigint not null default 0, -- of the wallet that the payment topped up, while it is open
  currency text not null,
  state text not null constraint payment_disputes_state check (state in ('open', 'won', 'lost')),
  reason text not null default '',
  opened_at timestamptz not null,
  closed_at timestamptz,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint payment_disputes_id unique (id),
  constraint payment_disputes_once unique (provider, provider_ref),
  constraint payment_disputes_closed check ((state = 'open') = (closed_at is null)),
  constraint payment_disputes_payment foreign key (org_id, payment_id) references payments (org_id, id)
);
create index payment_disputes_by_payment on payment_disputes (org_id, payment_id);
select tenant_table('payment_disputes');

-- What providers sent, each event once, before anything is done about it.
create table provider_events (
  provider text not null,
  event_id text not null,
  type text not null,
  object text not null,
  object_ref text not null,
  body_hash bytea not null,
  state text not null default 'received' constraint provider_events_state check (state in ('received', 'done', 'ignored')),
  problem text not null default '',
  attempts integer not null default 0,
  next_try_at timestamptz default clock_timestamp(), -- machine time
  received_at timestamptz not null default clock_timestamp(),
  primary key (provider, event_id)
);
create index provider_events_work on provider_events (next_try_at) where next_try_at is not null;

-- ── bank transfers ─────────────────────────────────────────────────────────
-- A line belongs to no organization until it is matched.
create table statement_lines (
  id uuid primary key,
  account text not null,
  bank_id text not null,
  booked_on date not null,
  amount_minor bigint not null constraint statement_lines_amount check (amount_minor > 0),
  currency text not null,
  reference text not null,
  payer text not null,
  state text not null constraint statement_lines_state check (state in ('queued', 'matched', 'returned')),
  why text not null default '',
  matched_org uuid constraint statement_lines_org references organizations (id),
  payment_id uuid,
  decided_by text not null default '',
  imported_by text not null,
  imported_at timestamptz not null default clock_timestamp(),
  decided_at timestamptz,
  revision bigint not null default 1,
  constraint statement_lines_once unique (account, bank_id),
  constraint statement_lines_matched check ((state = 'matched') = (payment_id is not null))
);
create index statement_lines_by_state on statement_lines (state, id);
-- Payers write numbers without case and separators.
create index invoices_by_bare_number on invoices (upper(regexp_replace(number, '[^[:alnum:]]', '', 'g'))) where number is not null;
create index invoices_open_totals on invoices (total_minor) where status = 'open';

-- ── dunning and write-offs ─────────────────────────────────────────────────
create table dunning_schedules (
  issuer text primary key,
  steps jsonb not null,
  generation bigint not null default 1,
  updated_by text not null,
  updated_at timestamptz not null default clock_timestamp()
);
create table dunnings (
  org_id uuid not null,
  invoice_id uuid not null,
  steps_done integer not null default 0,
  paused_us bigint not null default 0,
  paused_since timestamptz,
  overdue_told boolean not null default false,
  finished boolean not null default false, -- every step was taken
  next_at timestamptz,                     -- business time; null: nothing is to be done
  revision bigint not null default 1,
  primary key (org_id, invoice_id),
  constraint dunnings_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
create index dunnings_work on dunnings (next_at) where next_at is not null;
select tenant_table('dunnings');

-- Why an organization starts nothing new, one row an overdue invoice.
create table billing_holds (
  org_id uuid not null,
  invoice_id uuid not null,
  since timestamptz not null,
  stop_at timestamptz,
  stopped_at timestamptz,
  primary key (org_id, invoice_id),
  constraint billing_holds_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
select tenant_table('billing_holds');

create table invoice_write_offs (
  org_id uuid not null,
  id uuid not null,
  invoice_id uuid not null,
  payment_id uuid, -- of a recovery (negative) by money that came after all; one without is by a credit note
  amount_minor bigint not null constraint invoice_write_offs_amount check (amount_minor <> 0 and (amount_minor < 0 or payment_id is null)),
  currency text not null,
  reason text not null,
  created_by text not null,
  at timestamptz not null, -- business time
  primary key (org_id, id),
  constraint invoice_write_offs_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
create index invoice_write_offs_by_invoice on invoice_write_offs (org_id, invoice_id);
select tenant_table('invoice_write_offs');
select immutable_table('invoice_write_offs');

-- ── four eyes ──────────────────────────────────────────────────────────────
create table approval_rules (
  kind text not null,
  currency text not null default '', -- '': kinds without an amount
  above_minor bigint not null constraint approval_rules_above check (above_minor >= 0),
  updated_by text not null,
  updated_at timestamptz not null default clock_timestamp(),
  primary key (kind, currency)
);
create table approvals (
  id uuid primary key,
  kind text not null,
  body jsonb not null,
  body_hash bytea not null,
  amount_minor bigint not null,
  currency text not null,
  state text not null default 'pending' constraint approvals_state check (state in ('pending', 'approved', 'rejected', 'executed')),
  requested_by text not null,
  decided_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  decided_at timestamptz,
  executed_at timestamptz,
  expires_at timestamptz not null, -- machine time
  revision bigint not null default 1,
  constraint approvals_two_people check (decided_by = '' or state = 'rejected' or decided_by <> requested_by)
);
create unique index approvals_one_live on approvals (kind, body_hash, requested_by) where state in ('pending', 'approved');
create index approvals_list on approvals (id desc);

-- ── privileges ─────────────────────────────────────────────────────────────
grant select, insert, update on payment_customers, payment_attempts, provider_events, statement_lines, dunning_schedules, dunnings,
  approval_rules to tranche_system;
-- What money came, what was asked for and by whom stays as it was written.
grant select, insert, update (allocated_minor, refunded_minor, charged_back_minor, fee_minor, fee_currency, revision) on payments to tranche_system;
grant select, insert, update (state, provider_ref, detail, next_try_at, sends, revision) on payment_refunds to tranche_system;
grant select, insert, update (state, fee_minor, closed_at, revision) on payment_disputes to tranche_system;
grant select, insert, update (state, decided_by, decided_at, executed_at, revision) on approvals to tranche_system;
grant select, insert, update, delete on billing_holds to tranche_system;
grant select, insert on payment_allocations, invoice_write_offs to tranche_system;
grant select on payment_customers, payment_attempts, payments, payment_allocations, payment_refunds, payment_disputes, dunnings,
  billing_holds, invoice_write_offs to tranche_org;
