-- Everything that cannot be added later: tenancy with forced row-level security,
-- two clocks, capacity as claims, feeds, usage segments and documents.
-- Takes no lock that matters: it runs on an empty database.
-- Runs as tranche_owner; roles come from bootstrap.sql (cluster-wide, superuser).

-- +goose Up
create extension if not exists btree_gist;

-- ── clocks and installation ────────────────────────────────────────────────
create table installations (
  one boolean primary key default true constraint installations_one check (one),
  id uuid not null default gen_random_uuid(),
  timeline bigint not null default 1,
  created_at timestamptz not null default clock_timestamp()
);
insert into installations default values;

create table business_clock (
  one boolean primary key default true constraint business_clock_one check (one),
  scale integer not null default 1 constraint business_clock_scale check (scale between 1 and 100000),
  base_real timestamptz not null default clock_timestamp(),
  base_business timestamptz not null default clock_timestamp()
);
insert into business_clock (base_real, base_business)
select t, t from (select clock_timestamp() as t) as s;

-- +goose StatementBegin
create function biz_at(real_at timestamptz) returns timestamptz
language sql stable parallel safe as $$
  select base_business + (real_at - base_real) * scale from business_clock
$$;
-- +goose StatementEnd
-- +goose StatementBegin
create function biz_now() returns timestamptz
language sql volatile as $$
  select base_business + (clock_timestamp() - base_real) * scale from business_clock
$$;
-- +goose StatementEnd

-- ── topology and catalogue (no tenant data) ────────────────────────────────
create table regions (id text primary key, created_at timestamptz not null default clock_timestamp());
create table cells (
  id text primary key,
  region_id text not null constraint cells_region references regions,
  created_at timestamptz not null default clock_timestamp()
);
create table pools (
  id text primary key,
  cell_id text not null constraint pools_cell references cells,
  tenancy text not null default 'one_org_per_host'
    constraint pools_tenancy check (tenancy in ('one_org_per_host', 'shared')),
  modes text[] not null default '{whole,mig,mps,timeslice}',
  oversubscription numeric(6,3) not null default 1.0 constraint pools_oversubscription check (oversubscription >= 1),
  fence text not null default 'none',
  grid jsonb not null default '{}',
  auto_approve boolean not null default false,
  generation bigint not null default 1,
  created_at timestamptz not null default clock_timestamp()
);
insert into regions (id) values ('local');
insert into cells (id, region_id) values ('local-1', 'local');
insert into pools (id, cell_id) values ('default', 'local-1');

create table skus (
  id uuid primary key,
  code text not null constraint skus_code unique,
  content_hash bytea not null constraint skus_content unique,
  gpu_model text not null,
  mode text not null constraint skus_mode check (mode in ('whole', 'mig', 'mps', 'timeslice')),
  gpu_mode text not null,
  profile text not null default '',
  gpu_count integer not null constraint skus_gpu_count check (gpu_count between 1 and 64),
  memory_mib bigint not null constraint skus_memory check (memory_mib > 0),
  sm_count integer,
  sm_percent integer,
  isolation_gpu text not null
    constraint skus_isolation_gpu check (isolation_gpu in ('dedicated', 'partitioned', 'limited', 'shared')),
  isolation_host text not null
    constraint skus_isolation_host check (isolation_host in ('single_org_host', 'vm', 'sandboxed', 'shared_kernel')),
  vcpu integer not null constraint skus_vcpu check (vcpu > 0),
  ram_mib bigint not null constraint skus_ram check (ram_mib > 0),
  created_at timestamptz not null default clock_timestamp()
);
create table offers (
  id text primary key constraint offers_slug check (id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
  sku_id uuid not null constraint offers_sku references skus,
  pool_id text not null constraint offers_pool references pools,
  region_id text not null constraint offers_region references regions,
  enabled boolean not null default true,
  simulated boolean not null default false,
  generation bigint not null default 1,
  created_at timestamptz not null default clock_timestamp(),
  updated_at timestamptz not null default clock_timestamp()
);

-- ── organizations, projects, credentials ───────────────────────────────────
create table organizations (
  id uuid primary key,
  name text not null constraint organizations_name unique,
  currency text not null constraint organizations_currency check (currency ~ '^[A-Z]{3}$'),
  quota_instances integer not null default 0 constraint organizations_quota_instances check (quota_instances >= 0),
  quota_gpus integer not null default 0 constraint organizations_quota_gpus check (quota_gpus >= 0),
  rate_read integer not null default 600 constraint organizations_rate_read check (rate_read > 0),
  rate_write integer not null default 120 constraint organizations_rate_write check (rate_write > 0),
  rate_launch integer not null default 60 constraint organizations_rate_launch check (rate_launch > 0),
  session_epoch bigint not null default 1,
  suspended_at timestamptz,
  billing_name text not null default '',
  billing_address text not null default '',
  billing_country text not null default '',
  tax_id text not null default '',
  generation bigint not null default 1,
  revision bigint not null default 1,
  created_at timestamptz not null
);
create table projects (
  org_id uuid not null constraint projects_org references organizations (id),
  id uuid not null,
  name text not null,
  generation bigint not null default 1,
  revision bigint not null default 1,
  created_at timestamptz not null,
  primary key (org_id, id),
  constraint projects_id unique (id),
  constraint projects_name unique (org_id, name)
);
create table api_keys (
  org_id uuid not null constraint api_keys_org references organizations (id),
  id uuid not null,
  project_id uuid,
  name text not null,
  prefix text not null,
  hash bytea not null,
  scopes text[] not null,
  cidrs text[] not null default '{}',
  created_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint api_keys_id unique (id),
  constraint api_keys_project foreign key (org_id, project_id) references projects (org_id, id)
);
create table operator_keys (
  id uuid primary key,
  name text not null,
  role text not null,
  hash bytea not null,
  scopes text[] not null,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);
-- org_id is the nil uuid for operators: rows without an organization.
create table idempotency_keys (
  org_id uuid not null,
  principal text not null,
  method text not null,
  path text not null,
  key text not null,
  fingerprint bytea not null,
  status integer,
  headers jsonb not null default '{}',
  body json, -- not jsonb: a replay is the stored body, byte for byte
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, method, path, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

create table quota_usage (
  org_id uuid primary key constraint quota_usage_org references organizations (id),
  instances integer not null default 0 constraint quota_usage_instances check (instances >= 0),
  gpus integer not null default 0 constraint quota_usage_gpus check (gpus >= 0)
);

-- ── hosts and GPUs ─────────────────────────────────────────────────────────
create table join_tokens (
  id uuid primary key,
  hash bytea not null constraint join_tokens_hash unique,
  pool_id text not null constraint join_tokens_pool references pools,
  host_name text not null default '',
  cidr text not null default '',
  auto_approve boolean not null default false,
  max_hosts integer not null default 1 constraint join_tokens_max check (max_hosts between 1 and 10000),
  used integer not null default 0,
  created_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  revoked_at timestamptz
);
create table hosts (
  id uuid primary key,
  cell_id text not null constraint hosts_cell references cells,
  pool_id text not null constraint hosts_pool references pools,
  name text not null constraint hosts_name unique,
  state text not null default 'pending' constraint hosts_state check (state in
    ('pending', 'approved', 'validating', 'ready', 'cordoned', 'draining', 'maintenance', 'lost', 'retired')),
  liveness text not null default 'unproven'
    constraint hosts_liveness check (liveness in ('unproven', 'live', 'suspect', 'unknown')),
  reason text not null default '',
  generation bigint not null default 1,
  converged_generation bigint not null default 0,
  revision bigint not null default 1,
  epoch bigint not null default 1,
  next_wake_at timestamptz,
  vcpu integer not null default 0,
  ram_mib bigint not null default 0,
  vcpu_used integer not null default 0,
  ram_mib_used bigint not null default 0,
  simulated boolean not null default false,
  agent_version text not null default '',
  driver_version text not null default '',
  gpu_set_hash bytea,
  machine_id text not null default '',
  public_key bytea not null,
  csr bytea,
  cert_serial text not null default '',
  cert_not_after timestamptz,
  cert_revoked_at timestamptz,
  join_token_id uuid,
  approved_by text not null default '',
  inventory_at timestamptz,
  -- what the host says of itself
  runtime text not null default '',
  below_floor text[] not null default '{}',
  condition text not null default '' constraint hosts_condition check (condition in ('', 'cordon', 'failed')),
  condition_cause text not null default '',
  -- where tenants reach it; '' and 0 where they cannot
  reach_address text not null default '',
  reach_ssh_port integer not null default 0 constraint hosts_reach_ssh_port check (reach_ssh_port between 0 and 65535),
  reach_ssh_host_key text not null default '',
  reach_first_port integer not null default 0,
  reach_last_port integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  constraint hosts_reach_ports check ((reach_first_port = 0 and reach_last_port = 0)
    or (reach_first_port >= 1 and reach_last_port between reach_first_port and 65535)),
  constraint hosts_vcpu_fits check (vcpu_used <= vcpu and vcpu_used >= 0),
  constraint hosts_ram_fits check (ram_mib_used <= ram_mib and ram_mib_used >= 0)
);
create index hosts_wake on hosts (next_wake_at) where next_wake_at is not null;

-- Written by gateways alone; never the host row, which claims lock.
create table host_sessions (
  host_id uuid primary key constraint host_sessions_host references hosts,
  session bigint not null default 0,
  boot_id text not null default '',
  process_nonce text not null default '',
  stream_counter bigint not null default 0,
  gateway text not null default '',
  started_at timestamptz,
  applied_version bigint not null default 0,
  timeline bigint not null default 0
);
create table host_liveness (
  host_id uuid primary key constraint host_liveness_host references hosts,
  session bigint not null,
  last_proof_at timestamptz not null,
  last_proof_biz timestamptz not null,
  uptime_ms bigint not null default 0
);
-- The current gap-free writing of host_liveness: silence counts from here.
create table liveness_writers (
  cell_id text primary key constraint liveness_writers_cell references cells,
  since timestamptz not null,
  last_write_at timestamptz not null
);
insert into liveness_writers (cell_id, since, last_write_at)
select 'local-1', t, t from (select clock_timestamp() as t) as s;

-- The highest id of a host's spool that was taken in: events and samples come at
-- least once, through any gateway, and are taken once.
create table host_spools (
  host_id uuid primary key constraint host_spools_host references hosts,
  taken bigint not null default 0,
  taken_at timestamptz not null default clock_timestamp()
);

-- One body per distinct set of profiles and placements that drivers reported.
create table gpu_inventories (
  hash bytea primary key,
  body jsonb not null,
  created_at timestamptz not null default clock_timestamp()
);
create table gpus (
  id uuid primary key,
  host_id uuid not null constraint gpus_host references hosts,
  cell_id text not null constraint gpus_cell references cells,
  uuid text not null,
  pci text not null default '',
  ordinal integer not null default 0,
  model text not null,
  name text not null default '',
  memory_mib bigint not null,
  sm_count integer not null,
  units integer not null constraint gpus_units check (units between 1 and 64),
  inventory_hash bytea not null constraint gpus_inventory references gpu_inventories,
  mode_desired text not null,
  mode_observed text not null,
  mode_state text not null default 'settled'
    constraint gpus_mode_state check (mode_state in ('settled', 'draining', 'switching', 'verifying', 'failed')),
  mode_problem text not null default '',
  -- the control plane's: no new work while a mode change wants the GPU empty
  cordoned boolean not null default false,
  mode_epoch bigint not null default 0,
  health text not null default 'healthy'
    constraint gpus_health check (health in ('healthy', 'degraded', 'failed', 'resetting', 'quarantined')),
  health_cause text not null default '',
  health_detail text not null default '',
  health_since timestamptz not null default clock_timestamp(),
  simulated boolean not null default false,
  present boolean not null default true,
  generation bigint not null default 1,
  revision bigint not null default 1,
  created_at timestamptz not null default clock_timestamp(),
  constraint gpus_uuid unique (host_id, uuid)
);
create index gpus_by_shape on gpus (cell_id, model, mode_observed);
-- SetMode (30-workflows §4) as rows: draining and then switching; cancellable until
-- the switch is ordered. The id is the operation's.
create table mode_changes (
  id uuid primary key,
  gpu_id uuid not null constraint mode_changes_gpu references gpus,
  cell_id text not null constraint mode_changes_cell references cells,
  mode_before text not null,
  mode text not null,
  policy text not null constraint mode_changes_policy check (policy in ('when_empty', 'drain_by')),
  drain_by timestamptz,
  status text not null default 'draining' constraint mode_changes_status check (status in
    ('draining', 'switching', 'succeeded', 'failed', 'cancelled')),
  epoch bigint not null default 0,
  cancel_asked boolean not null default false,
  problem_code text not null default '',
  problem_detail text not null default '',
  requested_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  switched_at timestamptz,
  finished_at timestamptz,
  next_wake_at timestamptz,
  revision bigint not null default 1,
  constraint mode_changes_deadline check ((policy = 'drain_by') = (drain_by is not null)),
  constraint mode_changes_epoch check (status <> 'switching' or epoch > 0)
);
create unique index mode_changes_open on mode_changes (gpu_id) where status in ('draining', 'switching');
create index mode_changes_wake on mode_changes (next_wake_at) where next_wake_at is not null;

-- ── instances ──────────────────────────────────────────────────────────────
create table price_books (
  id uuid primary key,
  name text not null constraint price_books_name unique,
  currency text not null constraint price_books_currency check (currency ~ '^[A-Z]{3}$'),
  is_default boolean not null default false,
  created_at timestamptz not null default clock_timestamp()
);
create unique index price_books_default on price_books (currency) where is_default;
create table price_versions (
  id uuid primary key,
  price_book_id uuid not null constraint price_versions_book references price_books,
  version integer not null,
  effective_from timestamptz not null,
  created_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  constraint price_versions_number unique (price_book_id, version),
  constraint price_versions_start unique (price_book_id, effective_from)
);
create table prices (
  price_version_id uuid not null constraint prices_version references price_versions,
  sku_id uuid not null constraint prices_sku references skus,
  meter text not null,
  amount numeric(24,12) not null constraint prices_amount check (amount >= 0),
  primary key (price_version_id, sku_id, meter)
);

-- Logins of image registries; one for each registry and organization.
create table registry_logins (
  org_id uuid not null constraint registry_logins_org references organizations (id),
  id uuid not null,
  registry text not null,
  username text not null,
  password_sealed bytea not null,
  generation bigint not null default 1,
  revision bigint not null default 1,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  primary key (org_id, id),
  constraint registry_logins_id unique (id),
  constraint registry_logins_registry unique (org_id, registry)
);
-- The installation's SSH authorities: hosts accept certificates of all that are not
-- retired, the current one signs.
create table ssh_authorities (
  id uuid primary key,
  public_key text not null,
  private_sealed bytea not null,
  current boolean not null default true,
  created_at timestamptz not null default clock_timestamp(),
  retired_at timestamptz,
  constraint ssh_authorities_live check (not current or retired_at is null)
);
create unique index ssh_authorities_current on ssh_authorities (current) where current;

create table instances (
  org_id uuid not null constraint instances_org references organizations (id),
  id uuid not null,
  project_id uuid not null,
  cell_id text not null constraint instances_cell references cells,
  pool_id text not null constraint instances_pool references pools,
  name text not null,
  offer_id text not null constraint instances_offer references offers,
  sku_id uuid not null constraint instances_sku references skus,
  image text not null,
  command text[] not null default '{}',
  env jsonb not null default '[]',
  env_sealed bytea,
  ssh_keys text[] not null default '{}',
  ports jsonb not null default '[]', -- [{"port": 8080, "protocol": "tcp"}], of the container
  shm_mib bigint not null default 0 constraint instances_shm check (shm_mib >= 0), -- 0: half of the memory
  registry_login_id uuid, -- null: the organization's login of the image's registry
  labels jsonb not null default '{}',
  client_token text,
  recovery text not null default 'stop'
    constraint instances_recovery check (recovery in ('restart', 'restart_unfenced', 'stop')),
  -- intent
  desired text not null constraint instances_desired check (desired in ('running', 'stopped', 'deleted')),
  run integer not null default 1 constraint instances_run check (run >= 0),
  generation bigint not null default 1,
  converged_generation bigint not null default 0,
  revision bigint not null default 1,
  -- progress of the current request
  attempts integer not null default 0,
  recovering boolean not null default false, -- a fault of the platform ended a run that was reached
  excluded_hosts uuid[] not null default '{}',
  next_wake_at timestamptz,
  deadline_at timestamptz,
  -- derived by instance.Derive, stored for filters
  status text not null constraint instances_status check (status in ('queued', 'placing', 'preparing', 'running',
    'stopping', 'stopped', 'resizing', 'interrupted', 'failed', 'deleting', 'deleted')),
  status_code text not null default '',
  status_detail text not null default '',
  ever_ran boolean not null default false,
  operation_id uuid,
  -- price lock: the ceiling (60-billing §2); null where the offer had no price at accept
  price_book_id uuid constraint instances_price_book references price_books,
  locked_price_version_id uuid constraint instances_locked_version references price_versions,
  locked_price numeric(24,12),
  currency text not null,
  simulated boolean not null default false,
  created_at timestamptz not null,
  accepted_at timestamptz not null,
  intent_at timestamptz not null,
  started_at timestamptz,
  deleted_at timestamptz,
  primary key (org_id, id),
  constraint instances_id unique (id),
  constraint instances_project foreign key (org_id, project_id) references projects (org_id, id),
  constraint instances_client_token unique (org_id, client_token),
  constraint instances_registry_login foreign key (org_id, registry_login_id) references registry_logins (org_id, id)
    on delete set null (registry_login_id)
);
create index instances_by_registry_login on instances (org_id, registry_login_id) where registry_login_id is not null;
create unique index instances_name on instances (org_id, project_id, name) where desired <> 'deleted';
create index instances_list on instances (org_id, project_id, id desc);
create index instances_wake on instances (next_wake_at) where next_wake_at is not null;
create index instances_recovering on instances (pool_id, id) where recovering;
create index instances_unconverged on instances (id) where converged_generation <> generation;

create table quota_claims (
  org_id uuid not null,
  instance_id uuid not null,
  instances integer not null default 1,
  gpus integer not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, instance_id),
  constraint quota_claims_instance foreign key (org_id, instance_id) references instances (org_id, id)
);

create table operations (
  org_id uuid not null constraint operations_org references organizations (id),
  id uuid not null,
  project_id uuid not null,
  kind text not null,
  subject_id uuid not null,
  generation bigint not null,
  status text not null default 'queued'
    constraint operations_status check (status in ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
  step text not null default '',
  percent integer not null default 0 constraint operations_percent check (percent between 0 and 100),
  problem jsonb,
  superseded_by uuid,
  request_id text not null default '',
  created_at timestamptz not null,
  deadline_at timestamptz,
  finished_at timestamptz,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint operations_id unique (id),
  constraint operations_project foreign key (org_id, project_id) references projects (org_id, id)
);
create index operations_subject on operations (org_id, subject_id, id desc);
create index operations_list on operations (org_id, project_id, id desc);

-- ── assignments, claims, cells, bindings ───────────────────────────────────
create table assignments (
  org_id uuid not null constraint assignments_org references organizations (id),
  id uuid not null,
  instance_id uuid not null,
  run integer not null,
  host_id uuid not null constraint assignments_host references hosts,
  cell_id text not null constraint assignments_cell references cells,
  fence bigint not null default 1,
  state text not null default 'claimed'
    constraint assignments_state check (state in ('claimed', 'applied', 'releasing', 'released', 'quarantined')),
  reason_code text not null default '',
  reason_detail text not null default '',
  ordered_at timestamptz not null,
  ordered_biz timestamptz not null,
  applied_at timestamptz,
  releasing_at timestamptz,
  released_at timestamptz,
  revision bigint not null default 1,
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, id),
  constraint assignments_id unique (id),
  constraint assignments_instance foreign key (org_id, instance_id) references instances (org_id, id)
);
-- A run has one live assignment; a failed attempt of the same run is released first.
create unique index assignments_one_live on assignments (instance_id, run) where state in ('claimed', 'applied');
create index assignments_by_host on assignments (host_id) where state <> 'released';
create index assignments_by_instance on assignments (org_id, instance_id);

create table host_bindings (
  host_id uuid primary key constraint host_bindings_host references hosts,
  org_id uuid not null,
  constraint host_bindings_pair unique (host_id, org_id)
);
create table gpu_bindings (
  gpu_id uuid primary key constraint gpu_bindings_gpu references gpus,
  mode text not null,
  org_id uuid not null,
  constraint gpu_bindings_pair unique (gpu_id, org_id)
);
create table claims (
  org_id uuid not null constraint claims_org references organizations (id),
  id uuid not null,
  kind text not null default 'assignment'
    constraint claims_kind check (kind in ('assignment', 'quote', 'queue', 'preemption', 'maintenance')),
  holder_id uuid not null,
  cell_id text not null constraint claims_cell references cells,
  host_id uuid not null constraint claims_host references hosts,
  bound_host_id uuid,
  vcpu integer not null default 0,
  ram_mib bigint not null default 0,
  disk_mib bigint not null default 0,
  expires_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  primary key (org_id, id),
  constraint claims_id unique (id),
  constraint claims_holder unique (kind, holder_id),
  constraint claims_host_binding foreign key (bound_host_id, org_id) references host_bindings (host_id, org_id)
);
create index claims_by_host on claims (host_id);
create table claim_slots (
  org_id uuid not null,
  claim_id uuid not null,
  gpu_id uuid not null constraint claim_slots_gpu references gpus,
  ordinal integer not null default 0,
  gpu_mode text not null,
  profile_id integer not null default -1,
  profile text not null default '',
  start_unit integer not null,
  size_units integer not null,
  compute integer not null default 0,
  memory_mib bigint not null default 0,
  sm_count integer not null default 0,
  bound_gpu_id uuid,
  primary key (claim_id, gpu_id, start_unit),
  constraint claim_slots_claim foreign key (org_id, claim_id) references claims (org_id, id) on delete cascade,
  constraint claim_slots_gpu_binding foreign key (bound_gpu_id, org_id) references gpu_bindings (gpu_id, org_id)
);
create index claim_slots_by_gpu on claim_slots (gpu_id);
create table claim_cells (
  gpu_id uuid not null constraint claim_cells_gpu references gpus,
  unit integer not null constraint claim_cells_unit check (unit between 0 and 63),
  org_id uuid not null,
  claim_id uuid not null,
  primary key (gpu_id, unit),
  constraint claim_cells_claim foreign key (org_id, claim_id) references claims (org_id, id) on delete cascade
);
create index claim_cells_by_claim on claim_cells (claim_id);

-- Published ports: leased from the host's range with the claim, freed with it.
create table host_ports (
  host_id uuid not null constraint host_ports_host references hosts,
  port integer not null constraint host_ports_port check (port between 1 and 65535),
  protocol text not null constraint host_ports_protocol check (protocol in ('tcp', 'udp')),
  org_id uuid not null,
  claim_id uuid not null,
  assignment_id uuid not null,
  container_port integer not null constraint host_ports_container_port check (container_port between 1 and 65535),
  primary key (host_id, port, protocol),
  constraint host_ports_once unique (assignment_id, container_port, protocol),
  constraint host_ports_claim foreign key (org_id, claim_id) references claims (org_id, id) on delete cascade,
  constraint host_ports_assignment foreign key (org_id, assignment_id) references assignments (org_id, id)
);
create index host_ports_by_claim on host_ports (claim_id);
-- Time in which a tenant's instance was down by a fault of the platform: business
-- instants; closed when the instance runs again, or is stopped or deleted.
create table interruptions (
  org_id uuid not null,
  id uuid not null,
  instance_id uuid not null,
  assignment_id uuid not null,
  run integer not null,
  host_id uuid not null constraint interruptions_host references hosts,
  gpu_id uuid constraint interruptions_gpu references gpus,
  cause text not null,
  detail text not null default '',
  credited boolean not null,
  from_at timestamptz not null,
  to_at timestamptz,
  primary key (org_id, id),
  constraint interruptions_id unique (id),
  constraint interruptions_order check (to_at is null or to_at >= from_at),
  constraint interruptions_instance foreign key (org_id, instance_id) references instances (org_id, id),
  constraint interruptions_assignment foreign key (org_id, assignment_id) references assignments (org_id, id)
);
create unique index interruptions_open on interruptions (instance_id) where to_at is null;
create index interruptions_by_instance on interruptions (org_id, instance_id, from_at);

-- ── what agents reported ───────────────────────────────────────────────────
create table observed_slices (
  host_id uuid not null constraint observed_slices_host references hosts,
  slice_key text not null,
  assignment_id uuid,
  fence bigint not null default 0,
  run integer not null default 0,
  state text not null constraint observed_slices_state check (state in
    ('free', 'claimed', 'present', 'reclaiming', 'orphan', 'quarantined', 'unknown')),
  run_state text not null default 'none'
    constraint observed_slices_run_state check (run_state in ('none', 'preparing', 'running', 'exited', 'failed')),
  gpu_uuid text not null default '',
  gpu_mode text not null default '',
  profile text not null default '',
  start_unit integer not null default 0,
  size_units integer not null default 0,
  device_uuid text not null default '',
  memory_mib bigint not null default 0,
  sm_count integer not null default 0,
  reason_code text not null default '',
  reason_detail text not null default '',
  credited boolean not null default false,
  progress text not null default '',
  progress_at timestamptz, -- of the last report of progress, machine time
  -- since when complete reports of one boot do not name it
  missing_since timestamptz,
  missing_boot text not null default '',
  session bigint not null,
  sequence bigint not null,
  since timestamptz not null default clock_timestamp(),
  seen_at timestamptz not null default clock_timestamp(),
  primary key (host_id, slice_key)
);
create index observed_slices_assignment on observed_slices (assignment_id);
-- What the agent proved of one run, in business time: the bound of what may be billed.
create table run_proofs (
  org_id uuid not null,
  assignment_id uuid not null,
  instance_id uuid not null,
  run integer not null,
  host_id uuid not null constraint run_proofs_host references hosts,
  started_at timestamptz not null,
  last_proof_at timestamptz not null,
  ended_at timestamptz,
  device_uuids text[] not null default '{}',
  primary key (org_id, assignment_id),
  constraint run_proofs_order check (last_proof_at >= started_at),
  constraint run_proofs_assignment foreign key (org_id, assignment_id) references assignments (org_id, id)
);
create index run_proofs_instance on run_proofs (org_id, instance_id);
-- Readings of slices over intervals, as spooled on the host; at is the business
-- instant of the interval's end. The key holds the instant, so that the table can be
-- partitioned by it.
create table slice_samples (
  org_id uuid not null,
  instance_id uuid not null,
  assignment_id uuid not null,
  run integer not null,
  host_id uuid not null constraint slice_samples_host references hosts,
  spool_id bigint not null,
  ordinal integer not null,
  at timestamptz not null,
  interval_ms integer not null constraint slice_samples_interval check (interval_ms > 0),
  source text not null,
  gap text not null default '',
  readings jsonb not null default '{}',
  primary key (host_id, spool_id, ordinal, at)
);
create index slice_samples_by_instance on slice_samples (org_id, instance_id, at);
create index slice_samples_age on slice_samples (at);

-- ── feeds, outbox, audit ───────────────────────────────────────────────────
create table outbox (
  id bigint generated always as identity primary key,
  kind text not null,
  key text not null,
  reason text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  sent_at timestamptz,
  attempts integer not null default 0,
  next_attempt_at timestamptz not null default clock_timestamp()
);
create index outbox_unsent on outbox (id) where sent_at is null;
create index outbox_unsent_key on outbox (kind, key) where sent_at is null;
create index outbox_sent on outbox (sent_at) where sent_at is not null;
create table host_desired (
  id bigint generated always as identity,
  tx xid8 not null default pg_current_xact_id(),
  cell_id text not null constraint host_desired_cell references cells,
  host_id uuid not null constraint host_desired_host references hosts,
  created_at timestamptz not null default clock_timestamp(),
  primary key (tx, id)
);
create index host_desired_by_host on host_desired (host_id, tx, id);
create table placement_changes (
  id bigint generated always as identity,
  tx xid8 not null default pg_current_xact_id(),
  cell_id text not null constraint placement_changes_cell references cells,
  gpu_id uuid not null,
  primary key (tx, id)
);
create table events (
  id bigint generated always as identity,
  tx xid8 not null default pg_current_xact_id(),
  org_id uuid not null,
  project_id uuid,
  event_id uuid not null default gen_random_uuid(),
  cell_id text,
  type text not null,
  subject_id uuid not null,
  data jsonb not null default '{}',
  at timestamptz not null,
  primary key (tx, id)
);
create index events_by_org on events (org_id, tx, id);
-- org_id is the nil uuid where the actor is an operator on no organization.
create table audit_log (
  id bigint generated always as identity primary key,
  org_id uuid not null,
  at timestamptz not null default clock_timestamp(),
  actor text not null,
  credential text not null default '',
  on_behalf_of text not null default '',
  operation text not null,
  resource text not null default '',
  result text not null,
  request_id text not null default '',
  reason text not null default '',
  sealed_seq bigint,
  chain_hash bytea
);
create index audit_log_by_org on audit_log (org_id, id);

-- ── usage and documents ────────────────────────────────────────────────────
create table billing_accounts (
  org_id uuid primary key,
  currency text not null,
  closed_until timestamptz not null default '-infinity',
  close_no integer not null default 0,
  revision bigint not null default 1
);
create table organization_price_books (
  org_id uuid not null constraint organization_price_books_org references organizations (id),
  price_book_id uuid not null constraint organization_price_books_book references price_books,
  during tstzrange not null,
  primary key (org_id, price_book_id, during),
  constraint organization_price_books_no_overlap exclude using gist (org_id with =, during with &&)
);
create table usage_segments (
  org_id uuid not null constraint usage_segments_org references organizations (id),
  id uuid not null,
  subject_kind text not null,
  subject_id uuid not null,
  project_id uuid not null,
  meter text not null,
  start_id uuid not null,
  seq bigint not null,
  run integer not null default 0,
  assignment_id uuid,
  units bigint not null constraint usage_segments_units check (units > 0),
  sku_id uuid not null constraint usage_segments_sku references skus,
  sku_snapshot jsonb not null,
  price_book_id uuid constraint usage_segments_book references price_books,
  locked_price_version_id uuid constraint usage_segments_version references price_versions,
  pricing_kind text not null default 'on_demand'
    constraint usage_segments_pricing check (pricing_kind in ('on_demand', 'reserved', 'spot')),
  region text not null,
  isolation_gpu text not null,
  isolation_host text not null,
  subject_name text not null,
  labels jsonb not null default '{}',
  open_reason text not null,
  close_reason text not null default '',
  fault_party text not null default '',
  evidence jsonb not null default '{}',
  simulated boolean not null default false,
  recorded_at timestamptz not null default clock_timestamp(),
  billing_period text not null constraint usage_segments_period check (billing_period ~ '^\d{4}-\d{2}$'),
  close_no integer not null default 0,
  during tstzrange not null,
  revision bigint not null default 1,
  primary key (org_id, id),
  constraint usage_segments_id unique (id),
  constraint usage_segments_seq unique (org_id, subject_id, meter, seq),
  constraint usage_segments_project foreign key (org_id, project_id) references projects (org_id, id),
  constraint usage_segments_bounds check (not isempty(during) and lower_inc(during) and not upper_inc(during) and not lower_inf(during)),
  constraint usage_segments_no_overlap exclude using gist (org_id with =, subject_id with =, meter with =, during with &&)
);
create index usage_segments_period on usage_segments (org_id, billing_period);
create index usage_segments_subject on usage_segments (org_id, subject_id, meter, seq);
create unique index usage_segments_one_open on usage_segments (subject_id, meter) where upper_inf(during);

create table invoice_runs (
  id uuid primary key,
  period text not null,
  status text not null default 'running',
  created_by text not null default '',
  created_at timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  result jsonb not null default '{}'
);
create table invoices (
  org_id uuid not null constraint invoices_org references organizations (id),
  id uuid not null,
  kind text not null default 'usage' constraint invoices_kind check (kind in ('usage', 'credit_note', 'advance')),
  period text not null,
  period_from timestamptz not null,
  period_to timestamptz not null,
  close_no integer not null default 0,
  live boolean not null default true,
  replaces uuid,
  status text not null default 'draft' constraint invoices_status check (status in ('draft', 'open')),
  series text not null default '',
  number text,
  currency text not null,
  seller jsonb not null default '{}',
  buyer jsonb not null default '{}',
  subtotal_minor bigint not null,
  tax_minor bigint not null,
  total_minor bigint not null constraint invoices_total check (total_minor = subtotal_minor + tax_minor),
  content_hash bytea not null,
  engine_version text not null,
  inputs jsonb not null default '{}',
  inputs_hash bytea not null,
  segment_count bigint not null default 0,
  max_recorded_at timestamptz,
  simulated boolean not null default false,
  created_at timestamptz not null,
  finalized_at timestamptz,
  primary key (org_id, id),
  constraint invoices_id unique (id),
  constraint invoices_number unique (number),
  constraint invoices_numbered check ((status = 'open') = (number is not null))
);
create unique index invoices_billed_once on invoices (org_id, period, close_no) where live and kind = 'usage';
create table invoice_lines (
  org_id uuid not null,
  invoice_id uuid not null,
  line_no integer not null,
  project_id uuid not null,
  project_name text not null,
  description text not null,
  meter text not null,
  sku_id uuid not null constraint invoice_lines_sku references skus,
  sku_code text not null,
  isolation_gpu text not null,
  isolation_host text not null,
  pricing_kind text not null,
  price_version_id uuid,
  tier integer not null default 0,
  tax_category text not null,
  quantity numeric(38,0) not null,
  quantity_unit text not null,
  divisor numeric(38,0) not null,
  unit_price numeric(24,12) not null,
  amount_minor bigint not null,
  simulated boolean not null default false,
  primary key (invoice_id, line_no),
  constraint invoice_lines_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
create table line_subjects (
  org_id uuid not null,
  invoice_id uuid not null,
  line_no integer not null,
  subject_id uuid not null,
  subject_name text not null default '',
  quantity numeric(38,0) not null,
  segment_count bigint not null,
  amount_minor bigint not null,
  hash bytea not null,
  primary key (invoice_id, line_no, subject_id),
  constraint line_subjects_line foreign key (invoice_id, line_no) references invoice_lines (invoice_id, line_no)
);
create table invoice_taxes (
  org_id uuid not null,
  invoice_id uuid not null,
  category text not null,
  rate numeric(9,6) not null,
  base_minor bigint not null,
  amount_minor bigint not null,
  note text not null default '',
  primary key (invoice_id, category, rate),
  constraint invoice_taxes_invoice foreign key (org_id, invoice_id) references invoices (org_id, id)
);
create table invoice_numbers (
  series text not null,
  year integer not null,
  kind text not null,
  last integer not null default 0,
  last_at timestamptz,
  primary key (series, year, kind)
);
create table ledger_journals (
  org_id uuid not null constraint ledger_journals_org references organizations (id),
  id uuid not null,
  kind text not null,
  reference_id uuid not null,
  currency text not null,
  effective_on date not null,
  posted_at timestamptz not null default clock_timestamp(),
  primary key (org_id, id),
  constraint ledger_journals_id unique (id),
  constraint ledger_journals_once unique (kind, reference_id)
);
create table ledger_postings (
  org_id uuid not null,
  journal_id uuid not null,
  line_no integer not null,
  account text not null,
  amount_minor bigint not null constraint ledger_postings_nonzero_ok check (amount_minor between -9000000000000000 and 9000000000000000),
  currency text not null,
  primary key (journal_id, line_no),
  constraint ledger_postings_journal foreign key (org_id, journal_id) references ledger_journals (org_id, id)
);

-- ── derived counters ───────────────────────────────────────────────────────
-- +goose StatementBegin
create function quota_claims_count() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if tg_op in ('UPDATE', 'DELETE') then
    update quota_usage set instances = instances - old.instances, gpus = gpus - old.gpus where org_id = old.org_id;
  end if;
  if tg_op in ('INSERT', 'UPDATE') then
    update quota_usage set instances = instances + new.instances, gpus = gpus + new.gpus where org_id = new.org_id;
  end if;
  return null;
end $$;
-- +goose StatementEnd
create trigger quota_claims_count after insert or update or delete on quota_claims
  for each row execute function quota_claims_count();

-- Sums of host CPU and RAM are checked here, under the host row's lock.
-- +goose StatementBegin
create function claims_count_host() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if tg_op in ('UPDATE', 'DELETE') then
    update hosts set vcpu_used = vcpu_used - old.vcpu, ram_mib_used = ram_mib_used - old.ram_mib where id = old.host_id;
  end if;
  if tg_op in ('INSERT', 'UPDATE') then
    update hosts set vcpu_used = vcpu_used + new.vcpu, ram_mib_used = ram_mib_used + new.ram_mib where id = new.host_id;
  end if;
  return null;
end $$;
-- +goose StatementEnd
create trigger claims_count_host after insert or update or delete on claims
  for each row execute function claims_count_host();

-- A slot's cells are exactly its units; one claim per unit is the primary key.
-- +goose StatementBegin
create function claim_slots_cells() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if exists (
    select 1 from generate_series(new.start_unit, new.start_unit + new.size_units - 1) as u
    left join claim_cells c on c.gpu_id = new.gpu_id and c.unit = u and c.claim_id = new.claim_id
    where c.gpu_id is null
  ) then
    raise exception 'slot % of GPU % lacks cells', new.start_unit, new.gpu_id
      using errcode = 'check_violation', constraint = 'claim_slots_cells';
  end if;
  return null;
end $$;
-- +goose StatementEnd
create constraint trigger claim_slots_cells after insert on claim_slots
  deferrable initially deferred for each row execute function claim_slots_cells();

-- +goose StatementBegin
create function claims_unbind() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  delete from host_bindings b where b.host_id = old.bound_host_id
    and not exists (select 1 from claims c where c.bound_host_id = b.host_id);
  return null;
end $$;
-- +goose StatementEnd
create trigger claims_unbind after delete on claims
  for each row when (old.bound_host_id is not null) execute function claims_unbind();
-- +goose StatementBegin
create function claim_slots_unbind() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  delete from gpu_bindings b where b.gpu_id = old.bound_gpu_id
    and not exists (select 1 from claim_slots s where s.bound_gpu_id = b.gpu_id);
  return null;
end $$;
-- +goose StatementEnd
create trigger claim_slots_unbind after delete on claim_slots
  for each row when (old.bound_gpu_id is not null) execute function claim_slots_unbind();

-- +goose StatementBegin
create function ledger_journal_balances() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
  j uuid := coalesce(new.journal_id, old.journal_id);
  n bigint;
  s numeric;
begin
  select count(*), coalesce(sum(amount_minor), 0) into n, s from ledger_postings where journal_id = j;
  if n < 2 or s <> 0 then
    raise exception 'journal % has % postings that sum to %', j, n, s
      using errcode = 'check_violation', constraint = 'ledger_journal_balances';
  end if;
  return null;
end $$;
-- +goose StatementEnd
create constraint trigger ledger_journal_balances after insert or update or delete on ledger_postings
  deferrable initially deferred for each row execute function ledger_journal_balances();

-- A journal is written whole: what comes in a later transaction is a journal of its own.
-- +goose StatementBegin
create function ledger_journal_closed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
  if not exists (select 1 from ledger_journals where id = new.journal_id and xmin = pg_current_xact_id()::xid) then
    raise exception 'journal % is closed', new.journal_id using errcode = 'restrict_violation', constraint = 'ledger_journal_closed';
  end if;
  return new;
end $$;
-- +goose StatementEnd
create trigger ledger_journal_closed before insert on ledger_postings
  for each row execute function ledger_journal_closed();

-- Documents and prices are written once. Named state columns may change; nothing else.
-- +goose StatementBegin
create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% on % is refused: rows are immutable', tg_op, tg_table_name
    using errcode = 'restrict_violation', constraint = 'immutable';
end $$;
-- +goose StatementEnd
-- +goose StatementBegin
do $$
declare t text;
begin
  foreach t in array array['skus', 'price_versions', 'prices', 'gpu_inventories', 'ledger_journals', 'ledger_postings', 'audit_log'] loop
    execute format('create trigger %I before update or delete on %I for each row execute function refuse_change()', t || '_immutable', t);
    execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', t || '_no_truncate', t);
  end loop;
end $$;
-- +goose StatementEnd
-- +goose StatementBegin
create function invoices_guard() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and old.status = 'draft' then return new; end if;
  if tg_op = 'DELETE' and old.status = 'draft' then return old; end if;
  if tg_op = 'UPDATE' and to_jsonb(new) - 'live' = to_jsonb(old) - 'live' then return new; end if;
  raise exception 'invoice % is finalized', old.number using errcode = 'restrict_violation', constraint = 'invoices_finalized';
end $$;
-- +goose StatementEnd
create trigger invoices_guard before update or delete on invoices for each row execute function invoices_guard();
-- +goose StatementBegin
create function invoice_parts_guard() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
  -- Both ends of a move: nothing comes out of a finalized invoice, and nothing goes in.
  ends uuid[] := case tg_op when 'INSERT' then array[new.invoice_id] when 'DELETE' then array[old.invoice_id]
    else array[old.invoice_id, new.invoice_id] end;
begin
  if exists (select 1 from invoices where id = any(ends) and status <> 'draft') then
    raise exception 'one of the invoices % is finalized', ends using errcode = 'restrict_violation', constraint = 'invoices_finalized';
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end $$;
-- +goose StatementEnd
-- +goose StatementBegin
do $$
declare t text;
begin
  foreach t in array array['invoice_lines', 'line_subjects', 'invoice_taxes'] loop
    execute format('create trigger %I before insert or update or delete on %I for each row execute function invoice_parts_guard()', t || '_guard', t);
  end loop;
  foreach t in array array['invoices', 'invoice_lines', 'line_subjects', 'invoice_taxes', 'usage_segments'] loop
    execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', t || '_no_truncate', t);
  end loop;
end $$;
-- +goose StatementEnd

-- ── tenancy: forced row-level security on every table with org_id ──────────
-- +goose StatementBegin
do $$
declare
  t text;
  tenant constant text := 'org_id = nullif((select current_setting(''tranche.org_id'', true)), '''')::uuid';
begin
  for t in
    select c.relname from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id' and not a.attisdropped
    where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace
    order by c.relname
  loop
    execute format('alter table %I enable row level security', t);
    execute format('alter table %I force row level security', t);
    execute format('create policy %I on %I to tranche_org using (%s) with check (%s)', t || '_org', t, tenant, tenant);
    execute format('create policy %I on %I to tranche_system, tranche_owner using (true) with check (true)', t || '_system', t);
  end loop;
  alter table organizations enable row level security;
  alter table organizations force row level security;
  execute format('create policy organizations_org on organizations to tranche_org using (%s) with check (%s)',
    replace(tenant, 'org_id =', 'id ='), replace(tenant, 'org_id =', 'id ='));
  create policy organizations_system on organizations to tranche_system, tranche_owner using (true) with check (true);
end $$;
-- +goose StatementEnd

-- Later migrations put their tables behind the same walls with these two.
-- +goose StatementBegin
create function tenant_table(t text) returns void language plpgsql as $$
declare
  tenant constant text := 'org_id = nullif((select current_setting(''tranche.org_id'', true)), '''')::uuid';
begin
  execute format('alter table %I enable row level security', t);
  execute format('alter table %I force row level security', t);
  execute format('create policy %I on %I to tranche_org using (%s) with check (%s)', t || '_org', t, tenant, tenant);
  execute format('create policy %I on %I to tranche_system, tranche_owner using (true) with check (true)', t || '_system', t);
end $$;
-- +goose StatementEnd
-- +goose StatementBegin
create function immutable_table(t text) returns void language plpgsql as $$
begin
  execute format('create trigger %I before update or delete on %I for each row execute function refuse_change()', t || '_immutable', t);
  execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', t || '_no_truncate', t);
end $$;
-- +goose StatementEnd

-- ── privileges ─────────────────────────────────────────────────────────────
grant usage on schema public to tranche, tranche_org, tranche_system;
grant select on goose_db_version to tranche; -- every role refuses another schema version
grant select, insert, update, delete on all tables in schema public to tranche_system;
grant usage on all sequences in schema public to tranche_system, tranche_org;
revoke insert, update, delete on goose_db_version from tranche_system;
revoke update, delete on skus, price_versions, prices, gpu_inventories, ledger_journals, ledger_postings, audit_log from tranche_system;
revoke delete on invoices, usage_segments from tranche_system;
grant delete on invoices to tranche_system; -- drafts only: invoices_guard
grant select on installations, business_clock, regions, cells, pools, skus, offers, price_books, price_versions, prices to tranche_org;
grant select on organizations, projects, api_keys, quota_usage, quota_claims, instances, operations, assignments, claims,
  claim_slots, host_ports, interruptions, slice_samples, registry_logins, usage_segments, invoices, invoice_lines, line_subjects, invoice_taxes, billing_accounts,
  organization_price_books, events, audit_log, idempotency_keys, run_proofs to tranche_org;
grant insert on idempotency_keys, instances, operations, api_keys, quota_claims, outbox, host_desired, events, audit_log,
  projects, registry_logins to tranche_org;
-- A tenant's transaction moves states: it changes no price lock, no quantity but the end
-- of a segment, no counter and no right of a key.
grant update (status, headers, body) on idempotency_keys to tranche_org;
grant update (desired, run, generation, converged_generation, revision, attempts, recovering, ssh_keys, excluded_hosts, next_wake_at, deadline_at,
  intent_at, status, status_code, status_detail, ever_ran, operation_id, started_at, deleted_at) on instances to tranche_org;
grant update (status, step, percent, problem, superseded_by, finished_at, revision) on operations to tranche_org;
grant update (revoked_at, revision) on api_keys to tranche_org;
grant update (username, password_sealed, generation, revision, updated_at) on registry_logins to tranche_org;
grant update (to_at) on interruptions to tranche_org;
grant update (state, fence, releasing_at, revision) on assignments to tranche_org;
grant update (during, close_reason, fault_party, revision) on usage_segments to tranche_org;
grant update (org_id) on quota_usage to tranche_org; -- for its lock; the policy keeps the value
grant execute on all functions in schema public to tranche_org, tranche_system;
revoke execute on function tenant_table(text), immutable_table(text) from public, tranche_org, tranche_system;
