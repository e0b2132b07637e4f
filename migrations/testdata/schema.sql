CREATE EXTENSION IF NOT EXISTS btree_gist WITH SCHEMA public;

COMMENT ON EXTENSION btree_gist IS 'support for indexing common datatypes in GiST';

CREATE FUNCTION public.biz_at(real_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select base_business + (real_at - base_real) * scale from business_clock
$$;

CREATE FUNCTION public.biz_now() RETURNS timestamp with time zone
    LANGUAGE sql
    AS $$
  select base_business + (clock_timestamp() - base_real) * scale from business_clock
$$;

CREATE FUNCTION public.claim_slots_cells() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION public.claim_slots_unbind() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  delete from gpu_bindings b where b.gpu_id = old.bound_gpu_id
    and not exists (select 1 from claim_slots s where s.bound_gpu_id = b.gpu_id);
  return null;
end $$;

CREATE FUNCTION public.claims_count_host() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  if tg_op in ('UPDATE', 'DELETE') then
    update hosts set vcpu_used = vcpu_used - old.vcpu, ram_mib_used = ram_mib_used - old.ram_mib where id = old.host_id;
  end if;
  if tg_op in ('INSERT', 'UPDATE') then
    update hosts set vcpu_used = vcpu_used + new.vcpu, ram_mib_used = ram_mib_used + new.ram_mib where id = new.host_id;
  end if;
  return null;
end $$;

CREATE FUNCTION public.claims_unbind() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  delete from host_bindings b where b.host_id = old.bound_host_id
    and not exists (select 1 from claims c where c.bound_host_id = b.host_id);
  return null;
end $$;

CREATE FUNCTION public.close_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_at timestamp with time zone, p_reason text, p_party text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
declare
  was_open boolean;
  ended integer;
begin
  perform usage_wall(p_org);
  perform seal_usage(p_org, p_subject, p_meter, p_at);
  update usage_segments set
    during = tstzrange(lower(during), greatest(p_at, lower(during) + interval '1 microsecond'), '[)'),
    close_reason = p_reason, fault_party = p_party, revision = revision + 1
  where org_id = p_org and subject_id = p_subject and meter = p_meter and upper_inf(during);
  was_open := found;
  select run into ended from usage_segments where org_id = p_org and subject_id = p_subject and meter = p_meter
    and (p_run = 0 or run = p_run) order by lower(during) desc limit 1;
  if found then
    perform exclude_usage(p_org, p_subject, p_meter, ended, tstzrange(p_at, null, '[)'), p_reason, null);
  end if;
  return was_open;
end $$;

CREATE FUNCTION public.contract_terms_as_contract() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if not exists (select 1 from contracts c where c.org_id = new.org_id and c.id = new.contract_id
      and c.during = new.during and c.cancelled_at is not distinct from new.cancelled_at) then
    raise exception 'term % lasts otherwise than its contract', new.no
      using errcode = 'restrict_violation', constraint = 'contract_terms_as_contract';
  end if;
  return new;
end $$;

CREATE FUNCTION public.ends_early_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.exclude_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_cause text, p_ref uuid) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
declare n integer;
begin
  perform usage_wall(p_org);
  insert into usage_exclusions (org_id, id, subject_id, meter, run, during, cause, ref, close_no)
  select p_org, uuid_v7(), p_subject, p_meter, u.run, u.during * p_during, p_cause, p_ref, usage_close_no(p_org, lower(u.during * p_during))
  from billable_segments u
  where u.org_id = p_org and u.subject_id = p_subject and u.meter = p_meter and (p_run = 0 or u.run = p_run)
    and u.during && p_during and not upper_inf(u.during * p_during);
  get diagnostics n = row_count;
  return n;
end $$;

CREATE FUNCTION public.immutable_table(t text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  execute format('create trigger %I before update or delete on %I for each row execute function refuse_change()', t || '_immutable', t);
  execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', t || '_no_truncate', t);
end $$;

CREATE FUNCTION public.invoice_parts_guard() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION public.invoices_guard() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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

CREATE FUNCTION public.ledger_journal_balances() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
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

CREATE FUNCTION public.ledger_journal_closed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  if not exists (select 1 from ledger_journals where id = new.journal_id and xmin = pg_current_xact_id()::xid) then
    raise exception 'journal % is closed', new.journal_id using errcode = 'restrict_violation', constraint = 'ledger_journal_closed';
  end if;
  return new;
end $$;

CREATE FUNCTION public.ledger_month_open() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  if new.effective_on <= (select closed_through from ledger_books for share) then
    raise exception 'the month of % is closed', new.effective_on using errcode = 'restrict_violation', constraint = 'ledger_month_open';
  end if;
  return new;
end $$;

CREATE FUNCTION public.lift_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_causes text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
declare
  x usage_exclusions;
  n integer := 0;
begin
  perform usage_wall(p_org);
  for x in select * from usage_exclusions where org_id = p_org and subject_id = p_subject and meter = p_meter
    and (p_run = 0 or run = p_run) and lifted_at is null and cause = any(p_causes) and during && p_during
  loop
    update usage_exclusions set lifted_at = clock_timestamp(), lifted_close_no = usage_close_no(p_org, lower(x.during * p_during))
    where org_id = p_org and id = x.id;
    insert into usage_exclusions (org_id, id, subject_id, meter, run, during, cause, ref, close_no)
    select p_org, uuid_v7(), p_subject, p_meter, x.run, r, x.cause, x.ref, x.close_no
    from unnest(tstzmultirange(x.during) - tstzmultirange(p_during)) r;
    n := n + 1;
  end loop;
  return n;
end $$;

CREATE FUNCTION public.lock_meter(p_subject uuid, p_meter text) RETURNS void
    LANGUAGE sql
    AS $$
  select pg_advisory_xact_lock(hashtextextended('tranche usage ' || p_subject || p_meter, 0))
$$;

CREATE FUNCTION public.month_end(at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select (date_trunc('month', at at time zone 'UTC') + interval '1 month') at time zone 'UTC'
$$;

CREATE FUNCTION public.month_of(at timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select (extract(year from at at time zone 'UTC') * 100 + extract(month from at at time zone 'UTC'))::int::text
$$;

CREATE FUNCTION public.organizations_due(p_period text) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    AS $$
  with bounds as (
    select (p_period || '-01')::timestamp at time zone 'UTC' as from_at, month_end((p_period || '-01')::timestamp at time zone 'UTC') as to_at
  ), late as (
    select c.org_id, max(c.n) as n from (
      select u.org_id, u.close_no as n from usage_segments u where u.billing_period = p_period
      union all -- what still runs is sealed before it is invoiced
      select u.org_id, 0 from usage_segments u, bounds b where upper_inf(u.during) and lower(u.during) < b.to_at
      union all
      select x.org_id, greatest(x.close_no, coalesce(x.lifted_close_no, 0)) from usage_exclusions x, bounds b
      where x.during && tstzrange(b.from_at, b.to_at, '[)')
      union all
      select k.org_id, 0 from contracts k join contract_terms t on t.org_id = k.org_id and t.contract_id = k.id and t.kind = 'commitment', bounds b
      where k.cancelled_at is null and k.during && tstzrange(b.from_at, b.to_at, '[)')
    ) c group by 1
  )
  select l.org_id from late l where not exists (
    select 1 from invoices v where v.org_id = l.org_id and v.period = p_period and v.status <> 'draft' and v.as_of_close >= l.n
      and not exists (select 1 from invoices r where r.replaces = v.id))
  union
  select v.org_id from invoices v, bounds b
  where v.status = 'carried' and v.live and v.carried_by is null and v.period_from < b.from_at - interval '1 year'
$$;

CREATE FUNCTION public.quota_claims_count() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
begin
  if tg_op in ('UPDATE', 'DELETE') then
    update quota_usage set instances = instances - old.instances, gpus = gpus - old.gpus where org_id = old.org_id;
  end if;
  if tg_op in ('INSERT', 'UPDATE') then
    update quota_usage set instances = instances + new.instances, gpus = gpus + new.gpus where org_id = new.org_id;
  end if;
  return null;
end $$;

CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  raise exception '% on % is refused: rows are immutable', tg_op, tg_table_name
    using errcode = 'restrict_violation', constraint = 'immutable';
end $$;

CREATE FUNCTION public.seal_usage(p_org uuid, p_subject uuid, p_meter text, p_until timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
declare
  s usage_segments;
  edge timestamptz;
  n integer := 0;
begin
  perform usage_wall(p_org);
  perform lock_meter(p_subject, p_meter);
  loop
    select * into s from usage_segments where org_id = p_org and subject_id = p_subject and meter = p_meter and upper_inf(during);
    exit when not found;
    edge := month_end(lower(s.during));
    exit when edge >= p_until;
    update usage_segments set during = tstzrange(lower(during), edge, '[)'), close_reason = 'month_seal', revision = revision + 1
    where org_id = s.org_id and id = s.id;
    if s.subject_kind = 'instance' and s.price_book_id is not null then
      s.price_book_id := coalesce((select b.price_book_id from organization_price_books b where b.org_id = p_org and b.during @> edge),
        s.price_book_id);
    end if;
    s.id := uuid_v7();
    s.seq := (select max(seq) + 1 from usage_segments where org_id = p_org and subject_id = p_subject and meter = p_meter);
    s.open_reason := 'month_seal';
    s.recorded_at := clock_timestamp();
    s.revision := 1;
    s.billing_period := to_char(edge at time zone 'UTC', 'YYYY-MM');
    s.close_no := usage_close_no(p_org, edge);
    s.during := tstzrange(edge, null, '[)');
    insert into usage_segments select s.*;
    n := n + 1;
  end loop;
  return n;
end $$;

CREATE FUNCTION public.spot_prices_append() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if new.effective_from < biz_at(clock_timestamp() - interval '10 seconds') or exists (select 1 from spot_prices p where p.region_id = new.region_id
      and p.sku_id = new.sku_id and p.currency = new.currency and p.effective_from >= new.effective_from) then
    raise exception 'a spot price begins after the newest one and not in the past'
      using errcode = 'restrict_violation', constraint = 'spot_prices_append';
  end if;
  return new;
end $$;

CREATE FUNCTION public.tenant_table(t text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  tenant constant text := 'org_id = nullif((select current_setting(''tranche.org_id'', true)), '''')::uuid';
begin
  execute format('alter table %I enable row level security', t);
  execute format('alter table %I force row level security', t);
  execute format('create policy %I on %I to tranche_org using (%s) with check (%s)', t || '_org', t, tenant, tenant);
  execute format('create policy %I on %I to tranche_system, tranche_owner using (true) with check (true)', t || '_system', t);
end $$;

CREATE FUNCTION public.usage_close_no(p_org uuid, p_at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare n integer;
begin
  select case when p_at < closed_until then close_no else 0 end into n from billing_accounts where org_id = p_org for share;
  return coalesce(n, 0);
end $$;

CREATE FUNCTION public.usage_wall(p_org uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  if coalesce(current_setting('tranche.org_id', true), '') not in ('', p_org::text) then
    raise exception 'usage of another organization' using errcode = 'insufficient_privilege';
  end if;
end $$;

CREATE FUNCTION public.uuid_v7() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
  select encode(set_byte(b, 6, (get_byte(b, 6) & 15) | 112), 'hex')::uuid
  from (select substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    || substring(uuid_send(gen_random_uuid()) from 7) as b) as x
$$;

CREATE TABLE public.api_keys (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid,
    name text NOT NULL,
    prefix text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] NOT NULL,
    cidrs text[] DEFAULT '{}'::text[] NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL
);

ALTER TABLE ONLY public.api_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE public.approval_rules (
    kind text NOT NULL,
    currency text DEFAULT ''::text NOT NULL,
    above_minor bigint NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT approval_rules_above CHECK ((above_minor >= 0))
);

CREATE TABLE public.approvals (
    id uuid NOT NULL,
    kind text NOT NULL,
    body jsonb NOT NULL,
    body_hash bytea NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    requested_by text NOT NULL,
    decided_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    decided_at timestamp with time zone,
    executed_at timestamp with time zone,
    expires_at timestamp with time zone NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT approvals_state CHECK ((state = ANY (ARRAY['pending'::text, 'approved'::text, 'rejected'::text, 'executed'::text]))),
    CONSTRAINT approvals_two_people CHECK (((decided_by = ''::text) OR (state = 'rejected'::text) OR (decided_by <> requested_by)))
);

CREATE TABLE public.assignments (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    instance_id uuid NOT NULL,
    run integer NOT NULL,
    host_id uuid NOT NULL,
    cell_id text NOT NULL,
    fence bigint DEFAULT 1 NOT NULL,
    state text DEFAULT 'claimed'::text NOT NULL,
    reason_code text DEFAULT ''::text NOT NULL,
    reason_detail text DEFAULT ''::text NOT NULL,
    ordered_at timestamp with time zone NOT NULL,
    ordered_biz timestamp with time zone NOT NULL,
    applied_at timestamp with time zone,
    releasing_at timestamp with time zone,
    released_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT assignments_state CHECK ((state = ANY (ARRAY['claimed'::text, 'applied'::text, 'releasing'::text, 'released'::text, 'quarantined'::text])))
);

ALTER TABLE ONLY public.assignments FORCE ROW LEVEL SECURITY;

CREATE TABLE public.audit_log (
    id bigint NOT NULL,
    org_id uuid NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    credential text DEFAULT ''::text NOT NULL,
    on_behalf_of text DEFAULT ''::text NOT NULL,
    operation text NOT NULL,
    resource text DEFAULT ''::text NOT NULL,
    result text NOT NULL,
    request_id text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    sealed_seq bigint,
    chain_hash bytea
);

ALTER TABLE ONLY public.audit_log FORCE ROW LEVEL SECURITY;

ALTER TABLE public.audit_log ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.usage_exclusions (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    subject_id uuid NOT NULL,
    meter text NOT NULL,
    run integer NOT NULL,
    during tstzrange NOT NULL,
    cause text NOT NULL,
    ref uuid,
    close_no integer DEFAULT 0 NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    lifted_at timestamp with time zone,
    lifted_close_no integer,
    CONSTRAINT usage_exclusions_bounds CHECK (((NOT isempty(during)) AND lower_inc(during) AND (NOT upper_inc(during)) AND (NOT lower_inf(during)) AND (NOT upper_inf(during)))),
    CONSTRAINT usage_exclusions_lifted CHECK (((lifted_at IS NULL) = (lifted_close_no IS NULL)))
);

ALTER TABLE ONLY public.usage_exclusions FORCE ROW LEVEL SECURITY;

CREATE TABLE public.usage_segments (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    subject_kind text NOT NULL,
    subject_id uuid NOT NULL,
    project_id uuid NOT NULL,
    meter text NOT NULL,
    start_id uuid NOT NULL,
    seq bigint NOT NULL,
    run integer DEFAULT 0 NOT NULL,
    assignment_id uuid,
    units bigint NOT NULL,
    sku_id uuid NOT NULL,
    sku_snapshot jsonb NOT NULL,
    price_book_id uuid,
    locked_price_version_id uuid,
    pricing_kind text DEFAULT 'on_demand'::text NOT NULL,
    region text NOT NULL,
    isolation_gpu text NOT NULL,
    isolation_host text NOT NULL,
    subject_name text NOT NULL,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    open_reason text NOT NULL,
    close_reason text DEFAULT ''::text NOT NULL,
    fault_party text DEFAULT ''::text NOT NULL,
    evidence jsonb DEFAULT '{}'::jsonb NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    billing_period text NOT NULL,
    close_no integer DEFAULT 0 NOT NULL,
    during tstzrange NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT usage_segments_bounds CHECK (((NOT isempty(during)) AND lower_inc(during) AND (NOT upper_inc(during)) AND (NOT lower_inf(during)))),
    CONSTRAINT usage_segments_month CHECK ((replace(billing_period, '-'::text, ''::text) = public.month_of(lower(during)))),
    CONSTRAINT usage_segments_one_month CHECK ((upper_inf(during) OR (upper(during) <= public.month_end(lower(during))))),
    CONSTRAINT usage_segments_period CHECK ((billing_period ~ '^\d{4}-\d{2}$'::text)),
    CONSTRAINT usage_segments_pricing CHECK ((pricing_kind = ANY (ARRAY['on_demand'::text, 'reserved'::text, 'spot'::text]))),
    CONSTRAINT usage_segments_units CHECK ((units > 0))
);

ALTER TABLE ONLY public.usage_segments FORCE ROW LEVEL SECURITY;

CREATE VIEW public.billable_segments WITH (security_invoker='true') AS
 SELECT u.org_id,
    u.id,
    u.id AS segment_id,
    u.subject_kind,
    u.subject_id,
    u.project_id,
    u.meter,
    u.start_id,
    u.seq,
    u.run,
    u.assignment_id,
    u.units,
    u.sku_id,
    u.sku_snapshot,
    u.price_book_id,
    u.locked_price_version_id,
    u.pricing_kind,
    u.region,
    u.isolation_gpu,
    u.isolation_host,
    u.subject_name,
    u.labels,
    u.open_reason,
    u.close_reason,
    u.fault_party,
    u.simulated,
    u.recorded_at,
    u.billing_period,
    u.close_no,
    u.during
   FROM public.usage_segments u
  WHERE (NOT (EXISTS ( SELECT 1
           FROM public.usage_exclusions x
          WHERE ((x.org_id = u.org_id) AND (x.subject_id = u.subject_id) AND (x.meter = u.meter) AND (x.lifted_at IS NULL) AND (x.during && u.during)))))
UNION ALL
 SELECT u.org_id,
        CASE
            WHEN (p.n = 1) THEN u.id
            ELSE (md5(((u.id)::text || p.n)))::uuid
        END AS id,
    u.id AS segment_id,
    u.subject_kind,
    u.subject_id,
    u.project_id,
    u.meter,
    u.start_id,
    u.seq,
    u.run,
    u.assignment_id,
    u.units,
    u.sku_id,
    u.sku_snapshot,
    u.price_book_id,
    u.locked_price_version_id,
    u.pricing_kind,
    u.region,
    u.isolation_gpu,
    u.isolation_host,
    u.subject_name,
    u.labels,
    u.open_reason,
    u.close_reason,
    u.fault_party,
    u.simulated,
    u.recorded_at,
    u.billing_period,
    u.close_no,
    p.during
   FROM ((( SELECT usage_exclusions.org_id,
            usage_exclusions.subject_id,
            usage_exclusions.meter,
            range_agg(usage_exclusions.during) AS gone
           FROM public.usage_exclusions
          WHERE (usage_exclusions.lifted_at IS NULL)
          GROUP BY usage_exclusions.org_id, usage_exclusions.subject_id, usage_exclusions.meter) x
     JOIN public.usage_segments u ON (((u.org_id = x.org_id) AND (u.subject_id = x.subject_id) AND (u.meter = x.meter) AND (u.during && x.gone))))
     CROSS JOIN LATERAL unnest((tstzmultirange(u.during) - x.gone)) WITH ORDINALITY p(during, n));

CREATE TABLE public.billing_accounts (
    org_id uuid NOT NULL,
    currency text NOT NULL,
    closed_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    close_no integer DEFAULT 0 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL
);

ALTER TABLE ONLY public.billing_accounts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.billing_holds (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    since timestamp with time zone NOT NULL,
    stop_at timestamp with time zone,
    stopped_at timestamp with time zone
);

ALTER TABLE ONLY public.billing_holds FORCE ROW LEVEL SECURITY;

CREATE TABLE public.budget_alerts (
    org_id uuid NOT NULL,
    budget_id uuid NOT NULL,
    period text NOT NULL,
    threshold integer NOT NULL,
    spent_minor bigint NOT NULL,
    at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.budget_alerts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.budgets (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    scope text NOT NULL,
    project_id uuid,
    key_id uuid,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    thresholds integer[] DEFAULT '{50,80,100}'::integer[] NOT NULL,
    hard boolean DEFAULT false NOT NULL,
    period text DEFAULT ''::text NOT NULL,
    spent_minor bigint DEFAULT 0 NOT NULL,
    checked_at timestamp with time zone,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT budgets_amount CHECK ((amount_minor > 0)),
    CONSTRAINT budgets_scope CHECK ((scope = ANY (ARRAY['organization'::text, 'project'::text, 'key'::text]))),
    CONSTRAINT budgets_subject CHECK ((((scope = 'project'::text) = (project_id IS NOT NULL)) AND ((scope = 'key'::text) = (key_id IS NOT NULL))))
);

ALTER TABLE ONLY public.budgets FORCE ROW LEVEL SECURITY;

CREATE TABLE public.business_clock (
    one boolean DEFAULT true NOT NULL,
    scale integer DEFAULT 1 NOT NULL,
    base_real timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    base_business timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT business_clock_one CHECK (one),
    CONSTRAINT business_clock_scale CHECK (((scale >= 1) AND (scale <= 100000)))
);

CREATE TABLE public.cells (
    id text NOT NULL,
    region_id text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.claim_cells (
    gpu_id uuid NOT NULL,
    unit integer NOT NULL,
    org_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    CONSTRAINT claim_cells_unit CHECK (((unit >= 0) AND (unit <= 63)))
);

ALTER TABLE ONLY public.claim_cells FORCE ROW LEVEL SECURITY;

CREATE TABLE public.claim_slots (
    org_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    gpu_id uuid NOT NULL,
    ordinal integer DEFAULT 0 NOT NULL,
    gpu_mode text NOT NULL,
    profile_id integer DEFAULT '-1'::integer NOT NULL,
    profile text DEFAULT ''::text NOT NULL,
    start_unit integer NOT NULL,
    size_units integer NOT NULL,
    compute integer DEFAULT 0 NOT NULL,
    memory_mib bigint DEFAULT 0 NOT NULL,
    sm_count integer DEFAULT 0 NOT NULL,
    bound_gpu_id uuid
);

ALTER TABLE ONLY public.claim_slots FORCE ROW LEVEL SECURITY;

CREATE TABLE public.claims (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text DEFAULT 'assignment'::text NOT NULL,
    holder_id uuid NOT NULL,
    cell_id text NOT NULL,
    host_id uuid NOT NULL,
    bound_host_id uuid,
    vcpu integer DEFAULT 0 NOT NULL,
    ram_mib bigint DEFAULT 0 NOT NULL,
    disk_mib bigint DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT claims_kind CHECK ((kind = ANY (ARRAY['assignment'::text, 'quote'::text, 'queue'::text, 'preemption'::text, 'maintenance'::text])))
);

ALTER TABLE ONLY public.claims FORCE ROW LEVEL SECURITY;

CREATE TABLE public.contract_steps (
    org_id uuid NOT NULL,
    contract_id uuid NOT NULL,
    no integer NOT NULL,
    step integer NOT NULL,
    up_to numeric(38,12),
    amount numeric(24,12) NOT NULL,
    CONSTRAINT contract_steps_amount CHECK ((amount >= (0)::numeric)),
    CONSTRAINT contract_steps_step CHECK (((step >= 1) AND (step <= 100))),
    CONSTRAINT contract_steps_up_to CHECK ((up_to > (0)::numeric))
);

ALTER TABLE ONLY public.contract_steps FORCE ROW LEVEL SECURITY;

CREATE TABLE public.contract_terms (
    org_id uuid NOT NULL,
    contract_id uuid NOT NULL,
    no integer NOT NULL,
    kind text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    offer text DEFAULT ''::text NOT NULL,
    scope_meter text DEFAULT ''::text NOT NULL,
    scope_family text DEFAULT ''::text NOT NULL,
    scope_sku uuid,
    price numeric(24,12),
    tiering text DEFAULT ''::text NOT NULL,
    package_size numeric(38,12),
    ppm bigint,
    quantity numeric(38,0),
    micros bigint,
    hours bigint,
    amount_minor bigint,
    during tstzrange NOT NULL,
    cancelled_at timestamp with time zone,
    CONSTRAINT contract_terms_amount CHECK ((amount_minor > 0)),
    CONSTRAINT contract_terms_hours CHECK (((hours >= 1) AND (hours <= 744))),
    CONSTRAINT contract_terms_kind CHECK ((kind = ANY (ARRAY['price'::text, 'discount'::text, 'free_quota'::text, 'minimum'::text, 'cap'::text, 'commitment'::text, 'fixed_discount'::text]))),
    CONSTRAINT contract_terms_micros CHECK ((micros > 0)),
    CONSTRAINT contract_terms_package CHECK ((package_size > (0)::numeric)),
    CONSTRAINT contract_terms_ppm CHECK (((ppm >= 1) AND (ppm <= 1000000))),
    CONSTRAINT contract_terms_price CHECK ((price >= (0)::numeric)),
    CONSTRAINT contract_terms_quantity CHECK ((quantity > (0)::numeric)),
    CONSTRAINT contract_terms_tiering CHECK ((tiering = ANY (ARRAY[''::text, 'graduated'::text, 'volume'::text, 'package'::text]))),
    CONSTRAINT contract_terms_value CHECK (((num_nonnulls(price, ppm, quantity, micros, hours, amount_minor) = 1) AND
CASE kind
    WHEN 'price'::text THEN ((price IS NOT NULL) AND (scope_sku IS NOT NULL) AND (scope_meter <> ''::text))
    WHEN 'discount'::text THEN (ppm IS NOT NULL)
    WHEN 'free_quota'::text THEN ((quantity IS NOT NULL) AND (scope_meter <> ''::text))
    WHEN 'minimum'::text THEN (micros IS NOT NULL)
    WHEN 'cap'::text THEN ((hours IS NOT NULL) OR (amount_minor IS NOT NULL))
    ELSE (amount_minor IS NOT NULL)
END))
);

ALTER TABLE ONLY public.contract_terms FORCE ROW LEVEL SECURITY;

CREATE TABLE public.contracts (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    currency text NOT NULL,
    during tstzrange NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    cancelled_at timestamp with time zone,
    ended_by text DEFAULT ''::text NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT contracts_bounds CHECK (((NOT isempty(during)) AND lower_inc(during) AND (NOT upper_inc(during)) AND (NOT lower_inf(during)))),
    CONSTRAINT contracts_currency CHECK ((currency ~ '^[A-Z]{3}$'::text))
);

ALTER TABLE ONLY public.contracts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.coupon_uses (
    org_id uuid NOT NULL,
    code text NOT NULL,
    grant_id uuid NOT NULL,
    at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.coupon_uses FORCE ROW LEVEL SECURITY;

CREATE TABLE public.coupons (
    code text NOT NULL,
    name text NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    valid_until timestamp with time zone,
    grant_days integer,
    max_uses integer NOT NULL,
    uses integer DEFAULT 0 NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT coupons_amount CHECK ((amount_minor > 0)),
    CONSTRAINT coupons_code CHECK ((code ~ '^[A-Z0-9-]{4,40}$'::text)),
    CONSTRAINT coupons_max_uses CHECK ((max_uses > 0)),
    CONSTRAINT coupons_used_up CHECK (((uses >= 0) AND (uses <= max_uses)))
);

CREATE TABLE public.credit_grants (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    priority integer NOT NULL,
    expires_at timestamp with time zone,
    scope jsonb DEFAULT '{}'::jsonb NOT NULL,
    amount_minor bigint NOT NULL,
    tax_minor bigint DEFAULT 0 NOT NULL,
    remaining_minor bigint NOT NULL,
    currency text NOT NULL,
    source_id uuid NOT NULL,
    lapsed_at timestamp with time zone,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT credit_grants_amount CHECK ((amount_minor > 0)),
    CONSTRAINT credit_grants_kind CHECK ((kind = ANY (ARRAY['promo'::text, 'prepaid'::text]))),
    CONSTRAINT credit_grants_remaining CHECK (((remaining_minor >= 0) AND (remaining_minor <= amount_minor))),
    CONSTRAINT credit_grants_tax CHECK (((tax_minor >= 0) AND (tax_minor <= amount_minor)))
);

ALTER TABLE ONLY public.credit_grants FORCE ROW LEVEL SECURITY;

CREATE TABLE public.credit_uses (
    org_id uuid NOT NULL,
    id bigint NOT NULL,
    grant_id uuid NOT NULL,
    kind text NOT NULL,
    period text NOT NULL,
    close_no integer NOT NULL,
    amount_minor bigint NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT credit_uses_amount CHECK ((amount_minor <> 0)),
    CONSTRAINT credit_uses_reason CHECK ((reason = ANY (ARRAY['burn'::text, 'invoice'::text, 'credit'::text, 'returned'::text, 'expired'::text])))
);

ALTER TABLE ONLY public.credit_uses FORCE ROW LEVEL SECURITY;

ALTER TABLE public.credit_uses ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.credit_uses_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.discrepancies (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    subject_id uuid NOT NULL,
    subject_name text NOT NULL,
    meter text NOT NULL,
    run integer NOT NULL,
    billing_period text NOT NULL,
    during tstzrange NOT NULL,
    evidence jsonb DEFAULT '{}'::jsonb NOT NULL,
    status text DEFAULT 'open'::text NOT NULL,
    verdict text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    resolved_by text DEFAULT ''::text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT discrepancies_resolved CHECK (((status = 'resolved'::text) = ((resolved_at IS NOT NULL) AND (verdict <> ''::text) AND (reason <> ''::text)))),
    CONSTRAINT discrepancies_status CHECK ((status = ANY (ARRAY['open'::text, 'resolved'::text]))),
    CONSTRAINT discrepancies_verdict CHECK ((verdict = ANY (ARRAY[''::text, 'billed'::text, 'proven'::text])))
);

ALTER TABLE ONLY public.discrepancies FORCE ROW LEVEL SECURITY;

CREATE TABLE public.dunning_schedules (
    issuer text NOT NULL,
    steps jsonb NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    updated_by text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.dunnings (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    steps_done integer DEFAULT 0 NOT NULL,
    paused_us bigint DEFAULT 0 NOT NULL,
    paused_since timestamp with time zone,
    overdue_told boolean DEFAULT false NOT NULL,
    finished boolean DEFAULT false NOT NULL,
    next_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL
);

ALTER TABLE ONLY public.dunnings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.events (
    id bigint NOT NULL,
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    org_id uuid NOT NULL,
    project_id uuid,
    event_id uuid DEFAULT gen_random_uuid() NOT NULL,
    cell_id text,
    type text NOT NULL,
    subject_id uuid NOT NULL,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.events FORCE ROW LEVEL SECURITY;

ALTER TABLE public.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.gpu_bindings (
    gpu_id uuid NOT NULL,
    mode text NOT NULL,
    org_id uuid NOT NULL
);

ALTER TABLE ONLY public.gpu_bindings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.gpu_costs (
    gpu_model text NOT NULL,
    currency text NOT NULL,
    effective_from timestamp with time zone NOT NULL,
    per_hour numeric(24,12) NOT NULL,
    set_by text DEFAULT ''::text NOT NULL,
    CONSTRAINT gpu_costs_amount CHECK ((per_hour >= (0)::numeric))
);

CREATE TABLE public.gpu_hours (
    gpu_id uuid NOT NULL,
    hour timestamp with time zone NOT NULL,
    host_id uuid NOT NULL,
    model text NOT NULL,
    mode text NOT NULL,
    observed_us bigint DEFAULT 0 NOT NULL,
    sellable_us bigint DEFAULT 0 NOT NULL,
    observed_at timestamp with time zone NOT NULL,
    CONSTRAINT gpu_hours_bounds CHECK (((sellable_us >= 0) AND (sellable_us <= observed_us) AND (observed_us <= '3600000000'::bigint)))
);

CREATE TABLE public.gpu_inventories (
    hash bytea NOT NULL,
    body jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.gpus (
    id uuid NOT NULL,
    host_id uuid NOT NULL,
    cell_id text NOT NULL,
    uuid text NOT NULL,
    pci text DEFAULT ''::text NOT NULL,
    ordinal integer DEFAULT 0 NOT NULL,
    model text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    memory_mib bigint NOT NULL,
    sm_count integer NOT NULL,
    units integer NOT NULL,
    inventory_hash bytea NOT NULL,
    mode_desired text NOT NULL,
    mode_observed text NOT NULL,
    mode_state text DEFAULT 'settled'::text NOT NULL,
    mode_problem text DEFAULT ''::text NOT NULL,
    cordoned boolean DEFAULT false NOT NULL,
    mode_epoch bigint DEFAULT 0 NOT NULL,
    health text DEFAULT 'healthy'::text NOT NULL,
    health_cause text DEFAULT ''::text NOT NULL,
    health_detail text DEFAULT ''::text NOT NULL,
    health_since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    present boolean DEFAULT true NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT gpus_health CHECK ((health = ANY (ARRAY['healthy'::text, 'degraded'::text, 'failed'::text, 'resetting'::text, 'quarantined'::text]))),
    CONSTRAINT gpus_mode_state CHECK ((mode_state = ANY (ARRAY['settled'::text, 'draining'::text, 'switching'::text, 'verifying'::text, 'failed'::text]))),
    CONSTRAINT gpus_units CHECK (((units >= 1) AND (units <= 64)))
);

CREATE TABLE public.host_bindings (
    host_id uuid NOT NULL,
    org_id uuid NOT NULL
);

ALTER TABLE ONLY public.host_bindings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.host_desired (
    id bigint NOT NULL,
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    cell_id text NOT NULL,
    host_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE public.host_desired ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.host_desired_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.host_liveness (
    host_id uuid NOT NULL,
    session bigint NOT NULL,
    last_proof_at timestamp with time zone NOT NULL,
    last_proof_biz timestamp with time zone NOT NULL,
    uptime_ms bigint DEFAULT 0 NOT NULL
);

CREATE TABLE public.host_ports (
    host_id uuid NOT NULL,
    port integer NOT NULL,
    protocol text NOT NULL,
    org_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    assignment_id uuid NOT NULL,
    container_port integer NOT NULL,
    CONSTRAINT host_ports_container_port CHECK (((container_port >= 1) AND (container_port <= 65535))),
    CONSTRAINT host_ports_port CHECK (((port >= 1) AND (port <= 65535))),
    CONSTRAINT host_ports_protocol CHECK ((protocol = ANY (ARRAY['tcp'::text, 'udp'::text])))
);

ALTER TABLE ONLY public.host_ports FORCE ROW LEVEL SECURITY;

CREATE TABLE public.host_sessions (
    host_id uuid NOT NULL,
    session bigint DEFAULT 0 NOT NULL,
    boot_id text DEFAULT ''::text NOT NULL,
    process_nonce text DEFAULT ''::text NOT NULL,
    stream_counter bigint DEFAULT 0 NOT NULL,
    gateway text DEFAULT ''::text NOT NULL,
    started_at timestamp with time zone,
    applied_version bigint DEFAULT 0 NOT NULL,
    timeline bigint DEFAULT 0 NOT NULL
);

CREATE TABLE public.host_spools (
    host_id uuid NOT NULL,
    taken bigint DEFAULT 0 NOT NULL,
    taken_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.hosts (
    id uuid NOT NULL,
    cell_id text NOT NULL,
    pool_id text NOT NULL,
    name text NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    liveness text DEFAULT 'unproven'::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    converged_generation bigint DEFAULT 0 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    epoch bigint DEFAULT 1 NOT NULL,
    next_wake_at timestamp with time zone,
    vcpu integer DEFAULT 0 NOT NULL,
    ram_mib bigint DEFAULT 0 NOT NULL,
    vcpu_used integer DEFAULT 0 NOT NULL,
    ram_mib_used bigint DEFAULT 0 NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    agent_version text DEFAULT ''::text NOT NULL,
    driver_version text DEFAULT ''::text NOT NULL,
    gpu_set_hash bytea,
    machine_id text DEFAULT ''::text NOT NULL,
    public_key bytea NOT NULL,
    csr bytea,
    cert_serial text DEFAULT ''::text NOT NULL,
    cert_not_after timestamp with time zone,
    cert_revoked_at timestamp with time zone,
    join_token_id uuid,
    approved_by text DEFAULT ''::text NOT NULL,
    inventory_at timestamp with time zone,
    runtime text DEFAULT ''::text NOT NULL,
    below_floor text[] DEFAULT '{}'::text[] NOT NULL,
    condition text DEFAULT ''::text NOT NULL,
    condition_cause text DEFAULT ''::text NOT NULL,
    reach_address text DEFAULT ''::text NOT NULL,
    reach_ssh_port integer DEFAULT 0 NOT NULL,
    reach_ssh_host_key text DEFAULT ''::text NOT NULL,
    reach_first_port integer DEFAULT 0 NOT NULL,
    reach_last_port integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT hosts_condition CHECK ((condition = ANY (ARRAY[''::text, 'cordon'::text, 'failed'::text]))),
    CONSTRAINT hosts_liveness CHECK ((liveness = ANY (ARRAY['unproven'::text, 'live'::text, 'suspect'::text, 'unknown'::text]))),
    CONSTRAINT hosts_ram_fits CHECK (((ram_mib_used <= ram_mib) AND (ram_mib_used >= 0))),
    CONSTRAINT hosts_reach_ports CHECK ((((reach_first_port = 0) AND (reach_last_port = 0)) OR ((reach_first_port >= 1) AND ((reach_last_port >= reach_first_port) AND (reach_last_port <= 65535))))),
    CONSTRAINT hosts_reach_ssh_port CHECK (((reach_ssh_port >= 0) AND (reach_ssh_port <= 65535))),
    CONSTRAINT hosts_state CHECK ((state = ANY (ARRAY['pending'::text, 'approved'::text, 'validating'::text, 'ready'::text, 'cordoned'::text, 'draining'::text, 'maintenance'::text, 'lost'::text, 'retired'::text]))),
    CONSTRAINT hosts_vcpu_fits CHECK (((vcpu_used <= vcpu) AND (vcpu_used >= 0)))
);

CREATE TABLE public.idempotency_keys (
    org_id uuid NOT NULL,
    principal text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status integer,
    headers jsonb DEFAULT '{}'::jsonb NOT NULL,
    body json,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY public.idempotency_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE public.installations (
    one boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    timeline bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT installations_one CHECK (one)
);

CREATE TABLE public.instance_keys (
    org_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    key_id uuid NOT NULL
);

ALTER TABLE ONLY public.instance_keys FORCE ROW LEVEL SECURITY;

CREATE TABLE public.instances (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    cell_id text NOT NULL,
    pool_id text NOT NULL,
    name text NOT NULL,
    offer_id text NOT NULL,
    sku_id uuid NOT NULL,
    image text NOT NULL,
    command text[] DEFAULT '{}'::text[] NOT NULL,
    env jsonb DEFAULT '[]'::jsonb NOT NULL,
    env_sealed bytea,
    ssh_keys text[] DEFAULT '{}'::text[] NOT NULL,
    ports jsonb DEFAULT '[]'::jsonb NOT NULL,
    shm_mib bigint DEFAULT 0 NOT NULL,
    registry_login_id uuid,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    client_token text,
    recovery text DEFAULT 'stop'::text NOT NULL,
    desired text NOT NULL,
    run integer DEFAULT 1 NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    converged_generation bigint DEFAULT 0 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    recovering boolean DEFAULT false NOT NULL,
    excluded_hosts uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    next_wake_at timestamp with time zone,
    deadline_at timestamp with time zone,
    status text NOT NULL,
    status_code text DEFAULT ''::text NOT NULL,
    status_detail text DEFAULT ''::text NOT NULL,
    ever_ran boolean DEFAULT false NOT NULL,
    operation_id uuid,
    price_book_id uuid,
    locked_price_version_id uuid,
    locked_price numeric(24,12),
    currency text NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    intent_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    deleted_at timestamp with time zone,
    CONSTRAINT instances_desired CHECK ((desired = ANY (ARRAY['running'::text, 'stopped'::text, 'deleted'::text]))),
    CONSTRAINT instances_recovery CHECK ((recovery = ANY (ARRAY['restart'::text, 'restart_unfenced'::text, 'stop'::text]))),
    CONSTRAINT instances_run CHECK ((run >= 0)),
    CONSTRAINT instances_shm CHECK ((shm_mib >= 0)),
    CONSTRAINT instances_status CHECK ((status = ANY (ARRAY['queued'::text, 'placing'::text, 'preparing'::text, 'running'::text, 'stopping'::text, 'stopped'::text, 'resizing'::text, 'interrupted'::text, 'failed'::text, 'deleting'::text, 'deleted'::text])))
);

ALTER TABLE ONLY public.instances FORCE ROW LEVEL SECURITY;

CREATE TABLE public.interruptions (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    instance_id uuid NOT NULL,
    assignment_id uuid NOT NULL,
    run integer NOT NULL,
    host_id uuid NOT NULL,
    gpu_id uuid,
    cause text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    credited boolean NOT NULL,
    from_at timestamp with time zone NOT NULL,
    to_at timestamp with time zone,
    CONSTRAINT interruptions_order CHECK (((to_at IS NULL) OR (to_at >= from_at)))
);

ALTER TABLE ONLY public.interruptions FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoice_lines (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    line_no integer NOT NULL,
    project_id uuid,
    project_name text NOT NULL,
    description text NOT NULL,
    meter text NOT NULL,
    sku_id uuid,
    sku_code text NOT NULL,
    isolation_gpu text NOT NULL,
    isolation_host text NOT NULL,
    pricing_kind text NOT NULL,
    price_version_id uuid,
    tier integer DEFAULT 0 NOT NULL,
    tax_category text NOT NULL,
    quantity numeric(38,0) NOT NULL,
    quantity_unit text NOT NULL,
    divisor numeric(38,0) NOT NULL,
    unit_price numeric(24,12) NOT NULL,
    amount_minor bigint NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    component text DEFAULT 'usage'::text NOT NULL,
    reference text DEFAULT ''::text NOT NULL,
    variant text DEFAULT ''::text NOT NULL,
    packages bigint DEFAULT 0 NOT NULL,
    priced_unit text DEFAULT ''::text NOT NULL,
    tax_rate numeric(9,6) DEFAULT 0 NOT NULL,
    discounts jsonb DEFAULT '[]'::jsonb NOT NULL,
    exact text DEFAULT ''::text NOT NULL,
    from_at timestamp with time zone,
    to_at timestamp with time zone,
    corrects_invoice uuid,
    corrects_number text DEFAULT ''::text NOT NULL,
    corrects_line integer
);

ALTER TABLE ONLY public.invoice_lines FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoice_numbers (
    series text NOT NULL,
    year integer NOT NULL,
    kind text NOT NULL,
    last integer DEFAULT 0 NOT NULL,
    last_at timestamp with time zone
);

CREATE TABLE public.invoice_originals (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    number text NOT NULL,
    media_type text NOT NULL,
    sha256 bytea NOT NULL,
    body bytea NOT NULL,
    stored_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    keep_until date NOT NULL,
    CONSTRAINT invoice_originals_sha256 CHECK ((length(sha256) = 32))
);

ALTER TABLE ONLY public.invoice_originals FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoice_run_targets (
    run_id uuid NOT NULL,
    org_id uuid NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    problem_code text DEFAULT ''::text NOT NULL,
    problem_detail text DEFAULT ''::text NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT invoice_run_targets_status CHECK ((status = ANY (ARRAY['pending'::text, 'done'::text, 'failed'::text])))
);

ALTER TABLE ONLY public.invoice_run_targets FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoice_runs (
    id uuid NOT NULL,
    period text NOT NULL,
    status text DEFAULT 'running'::text NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    result jsonb DEFAULT '{}'::jsonb NOT NULL,
    next_wake_at timestamp with time zone,
    CONSTRAINT invoice_runs_status CHECK ((status = ANY (ARRAY['running'::text, 'succeeded'::text, 'failed'::text])))
);

CREATE TABLE public.invoice_taxes (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    category text NOT NULL,
    rate numeric(9,6) NOT NULL,
    base_minor bigint NOT NULL,
    amount_minor bigint NOT NULL,
    note text DEFAULT ''::text NOT NULL
);

ALTER TABLE ONLY public.invoice_taxes FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoice_write_offs (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    payment_id uuid,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    reason text NOT NULL,
    created_by text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT invoice_write_offs_amount CHECK (((amount_minor <> 0) AND ((amount_minor < 0) OR (payment_id IS NULL))))
);

ALTER TABLE ONLY public.invoice_write_offs FORCE ROW LEVEL SECURITY;

CREATE TABLE public.invoices (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text DEFAULT 'usage'::text NOT NULL,
    period text NOT NULL,
    period_from timestamp with time zone NOT NULL,
    period_to timestamp with time zone NOT NULL,
    close_no integer DEFAULT 0 NOT NULL,
    live boolean DEFAULT true NOT NULL,
    replaces uuid,
    status text DEFAULT 'draft'::text NOT NULL,
    series text DEFAULT ''::text NOT NULL,
    number text,
    currency text NOT NULL,
    seller jsonb DEFAULT '{}'::jsonb NOT NULL,
    buyer jsonb DEFAULT '{}'::jsonb NOT NULL,
    subtotal_minor bigint NOT NULL,
    tax_minor bigint NOT NULL,
    total_minor bigint NOT NULL,
    content_hash bytea NOT NULL,
    engine_version text NOT NULL,
    inputs jsonb DEFAULT '{}'::jsonb NOT NULL,
    inputs_hash bytea NOT NULL,
    segment_count bigint DEFAULT 0 NOT NULL,
    max_recorded_at timestamp with time zone,
    simulated boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone NOT NULL,
    finalized_at timestamp with time zone,
    issuer text DEFAULT 'default'::text NOT NULL,
    locale text DEFAULT 'en'::text NOT NULL,
    tax_point timestamp with time zone,
    due_on date,
    corrects uuid,
    source_id uuid,
    reason text DEFAULT ''::text NOT NULL,
    refund text DEFAULT ''::text NOT NULL,
    notes text[] DEFAULT '{}'::text[] NOT NULL,
    content_version integer DEFAULT 1 NOT NULL,
    terms jsonb,
    as_of_close integer,
    credited_minor bigint DEFAULT 0 NOT NULL,
    carried_by uuid,
    CONSTRAINT invoices_carried CHECK (((carried_by IS NULL) OR (status = 'carried'::text))),
    CONSTRAINT invoices_credit_note CHECK (((kind = 'credit_note'::text) = (corrects IS NOT NULL))),
    CONSTRAINT invoices_credited CHECK (((credited_minor >= 0) AND (credited_minor <= GREATEST(total_minor, (0)::bigint)))),
    CONSTRAINT invoices_kind CHECK ((kind = ANY (ARRAY['usage'::text, 'credit_note'::text, 'advance'::text]))),
    CONSTRAINT invoices_numbered CHECK (((status = 'open'::text) = (number IS NOT NULL))),
    CONSTRAINT invoices_refund CHECK ((refund = ANY (ARRAY[''::text, 'wallet'::text, 'provider'::text, 'none'::text]))),
    CONSTRAINT invoices_signs CHECK (((kind <> 'credit_note'::text) OR (total_minor <= 0))),
    CONSTRAINT invoices_status CHECK ((status = ANY (ARRAY['draft'::text, 'open'::text, 'carried'::text]))),
    CONSTRAINT invoices_total CHECK ((total_minor = (subtotal_minor + tax_minor)))
);

ALTER TABLE ONLY public.invoices FORCE ROW LEVEL SECURITY;

CREATE TABLE public.issuer_versions (
    issuer text NOT NULL,
    effective_from timestamp with time zone NOT NULL,
    profile jsonb NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE public.issuers (
    slug text NOT NULL,
    prefix text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT issuers_slug CHECK ((slug ~ '^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$'::text))
);

CREATE TABLE public.join_tokens (
    id uuid NOT NULL,
    hash bytea NOT NULL,
    pool_id text NOT NULL,
    host_name text DEFAULT ''::text NOT NULL,
    cidr text DEFAULT ''::text NOT NULL,
    auto_approve boolean DEFAULT false NOT NULL,
    max_hosts integer DEFAULT 1 NOT NULL,
    used integer DEFAULT 0 NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT join_tokens_max CHECK (((max_hosts >= 1) AND (max_hosts <= 10000)))
);

CREATE TABLE public.ledger_books (
    id boolean DEFAULT true NOT NULL,
    closed_through date DEFAULT '-infinity'::date NOT NULL,
    CONSTRAINT ledger_books_one CHECK (id)
);

CREATE TABLE public.ledger_journals (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    kind text NOT NULL,
    reference_id uuid NOT NULL,
    currency text NOT NULL,
    effective_on date NOT NULL,
    posted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY public.ledger_journals FORCE ROW LEVEL SECURITY;

CREATE TABLE public.ledger_postings (
    org_id uuid NOT NULL,
    journal_id uuid NOT NULL,
    line_no integer NOT NULL,
    account text NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    document_id uuid,
    CONSTRAINT ledger_postings_nonzero_ok CHECK (((amount_minor >= '-9000000000000000'::bigint) AND (amount_minor <= '9000000000000000'::bigint)))
);

ALTER TABLE ONLY public.ledger_postings FORCE ROW LEVEL SECURITY;

CREATE TABLE public.line_subjects (
    org_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    line_no integer NOT NULL,
    subject_id uuid NOT NULL,
    subject_name text DEFAULT ''::text NOT NULL,
    quantity numeric(38,0) NOT NULL,
    segment_count bigint NOT NULL,
    amount_minor bigint NOT NULL,
    hash bytea NOT NULL,
    subject_kind text DEFAULT 'instance'::text NOT NULL
);

ALTER TABLE ONLY public.line_subjects FORCE ROW LEVEL SECURITY;

CREATE TABLE public.liveness_writers (
    cell_id text NOT NULL,
    since timestamp with time zone NOT NULL,
    last_write_at timestamp with time zone NOT NULL
);

CREATE TABLE public.mode_changes (
    id uuid NOT NULL,
    gpu_id uuid NOT NULL,
    cell_id text NOT NULL,
    mode_before text NOT NULL,
    mode text NOT NULL,
    policy text NOT NULL,
    drain_by timestamp with time zone,
    status text DEFAULT 'draining'::text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    cancel_asked boolean DEFAULT false NOT NULL,
    problem_code text DEFAULT ''::text NOT NULL,
    problem_detail text DEFAULT ''::text NOT NULL,
    requested_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    switched_at timestamp with time zone,
    finished_at timestamp with time zone,
    next_wake_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT mode_changes_deadline CHECK (((policy = 'drain_by'::text) = (drain_by IS NOT NULL))),
    CONSTRAINT mode_changes_epoch CHECK (((status <> 'switching'::text) OR (epoch > 0))),
    CONSTRAINT mode_changes_policy CHECK ((policy = ANY (ARRAY['when_empty'::text, 'drain_by'::text]))),
    CONSTRAINT mode_changes_status CHECK ((status = ANY (ARRAY['draining'::text, 'switching'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
);

CREATE TABLE public.month_closes (
    period text NOT NULL,
    report bytea NOT NULL,
    journal_csv bytea NOT NULL,
    sha256 bytea NOT NULL,
    closed_by text NOT NULL,
    closed_at timestamp with time zone NOT NULL,
    CONSTRAINT month_closes_hash CHECK ((length(sha256) = 32)),
    CONSTRAINT month_closes_period CHECK ((period ~ '^\d{4}-\d{2}$'::text))
);

CREATE TABLE public.observed_slices (
    host_id uuid NOT NULL,
    slice_key text NOT NULL,
    assignment_id uuid,
    fence bigint DEFAULT 0 NOT NULL,
    run integer DEFAULT 0 NOT NULL,
    state text NOT NULL,
    run_state text DEFAULT 'none'::text NOT NULL,
    gpu_uuid text DEFAULT ''::text NOT NULL,
    gpu_mode text DEFAULT ''::text NOT NULL,
    profile text DEFAULT ''::text NOT NULL,
    start_unit integer DEFAULT 0 NOT NULL,
    size_units integer DEFAULT 0 NOT NULL,
    device_uuid text DEFAULT ''::text NOT NULL,
    memory_mib bigint DEFAULT 0 NOT NULL,
    sm_count integer DEFAULT 0 NOT NULL,
    reason_code text DEFAULT ''::text NOT NULL,
    reason_detail text DEFAULT ''::text NOT NULL,
    credited boolean DEFAULT false NOT NULL,
    progress text DEFAULT ''::text NOT NULL,
    progress_at timestamp with time zone,
    missing_since timestamp with time zone,
    missing_boot text DEFAULT ''::text NOT NULL,
    session bigint NOT NULL,
    sequence bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT observed_slices_run_state CHECK ((run_state = ANY (ARRAY['none'::text, 'preparing'::text, 'running'::text, 'exited'::text, 'failed'::text]))),
    CONSTRAINT observed_slices_state CHECK ((state = ANY (ARRAY['free'::text, 'claimed'::text, 'present'::text, 'reclaiming'::text, 'orphan'::text, 'quarantined'::text, 'unknown'::text])))
);

CREATE TABLE public.offers (
    id text NOT NULL,
    sku_id uuid NOT NULL,
    pool_id text NOT NULL,
    region_id text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    simulated boolean DEFAULT false NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT offers_slug CHECK ((id ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'::text))
);

CREATE TABLE public.operations (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    kind text NOT NULL,
    subject_id uuid NOT NULL,
    generation bigint NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    step text DEFAULT ''::text NOT NULL,
    percent integer DEFAULT 0 NOT NULL,
    problem jsonb,
    superseded_by uuid,
    request_id text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone,
    finished_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT operations_percent CHECK (((percent >= 0) AND (percent <= 100))),
    CONSTRAINT operations_status CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text])))
);

ALTER TABLE ONLY public.operations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.operator_keys (
    id uuid NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone
);

CREATE TABLE public.organization_price_books (
    org_id uuid NOT NULL,
    price_book_id uuid NOT NULL,
    during tstzrange NOT NULL,
    CONSTRAINT organization_price_books_bounds CHECK (((NOT isempty(during)) AND (NOT lower_inf(during))))
);

ALTER TABLE ONLY public.organization_price_books FORCE ROW LEVEL SECURITY;

CREATE TABLE public.organizations (
    id uuid NOT NULL,
    name text NOT NULL,
    currency text NOT NULL,
    quota_instances integer DEFAULT 0 NOT NULL,
    quota_gpus integer DEFAULT 0 NOT NULL,
    rate_read integer DEFAULT 600 NOT NULL,
    rate_write integer DEFAULT 120 NOT NULL,
    rate_launch integer DEFAULT 60 NOT NULL,
    session_epoch bigint DEFAULT 1 NOT NULL,
    suspended_at timestamp with time zone,
    billing_name text DEFAULT ''::text NOT NULL,
    billing_address text DEFAULT ''::text NOT NULL,
    billing_country text DEFAULT ''::text NOT NULL,
    tax_id text DEFAULT ''::text NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    billing_postcode text DEFAULT ''::text NOT NULL,
    tax_status text DEFAULT 'business'::text NOT NULL,
    locale text DEFAULT ''::text NOT NULL,
    issuer text DEFAULT 'default'::text NOT NULL,
    einvoice boolean DEFAULT false NOT NULL,
    einvoice_endpoint text DEFAULT ''::text NOT NULL,
    CONSTRAINT organizations_currency CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT organizations_quota_gpus CHECK ((quota_gpus >= 0)),
    CONSTRAINT organizations_quota_instances CHECK ((quota_instances >= 0)),
    CONSTRAINT organizations_rate_launch CHECK ((rate_launch > 0)),
    CONSTRAINT organizations_rate_read CHECK ((rate_read > 0)),
    CONSTRAINT organizations_rate_write CHECK ((rate_write > 0)),
    CONSTRAINT organizations_tax_status CHECK ((tax_status = ANY (ARRAY['business'::text, 'consumer'::text])))
);

ALTER TABLE ONLY public.organizations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.outbox (
    id bigint NOT NULL,
    kind text NOT NULL,
    key text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    sent_at timestamp with time zone,
    attempts integer DEFAULT 0 NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE public.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.payment_allocations (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    payment_id uuid NOT NULL,
    invoice_id uuid NOT NULL,
    kind text NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT payment_allocations_amount CHECK ((((amount_minor > 0) = (kind = 'applied'::text)) AND (amount_minor <> 0))),
    CONSTRAINT payment_allocations_kind CHECK ((kind = ANY (ARRAY['applied'::text, 'released'::text, 'refunded'::text, 'charged_back'::text])))
);

ALTER TABLE ONLY public.payment_allocations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.payment_attempts (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    purpose text NOT NULL,
    subject_id uuid NOT NULL,
    attempt_no integer NOT NULL,
    provider text NOT NULL,
    intent_key text NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    state text DEFAULT 'planned'::text NOT NULL,
    provider_ref text DEFAULT ''::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    action_url text DEFAULT ''::text NOT NULL,
    sends integer DEFAULT 0 NOT NULL,
    next_try_at timestamp with time zone DEFAULT clock_timestamp(),
    again_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT payment_attempts_amount CHECK ((amount_minor > 0)),
    CONSTRAINT payment_attempts_no CHECK ((attempt_no > 0)),
    CONSTRAINT payment_attempts_purpose CHECK ((purpose = ANY (ARRAY['invoice'::text, 'top_up'::text]))),
    CONSTRAINT payment_attempts_state CHECK ((state = ANY (ARRAY['planned'::text, 'processing'::text, 'needs_action'::text, 'succeeded'::text, 'declined'::text, 'cancelled'::text])))
);

ALTER TABLE ONLY public.payment_attempts FORCE ROW LEVEL SECURITY;

CREATE TABLE public.payment_customers (
    org_id uuid NOT NULL,
    provider text NOT NULL,
    customer_ref text DEFAULT ''::text NOT NULL,
    method_ref text DEFAULT ''::text NOT NULL,
    method_at timestamp with time zone DEFAULT public.biz_now() NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY public.payment_customers FORCE ROW LEVEL SECURITY;

CREATE TABLE public.payment_disputes (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    payment_id uuid NOT NULL,
    provider text NOT NULL,
    provider_ref text NOT NULL,
    amount_minor bigint NOT NULL,
    fee_minor bigint DEFAULT 0 NOT NULL,
    held_minor bigint DEFAULT 0 NOT NULL,
    currency text NOT NULL,
    state text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT payment_disputes_amount CHECK ((amount_minor > 0)),
    CONSTRAINT payment_disputes_closed CHECK (((state = 'open'::text) = (closed_at IS NULL))),
    CONSTRAINT payment_disputes_state CHECK ((state = ANY (ARRAY['open'::text, 'won'::text, 'lost'::text])))
);

ALTER TABLE ONLY public.payment_disputes FORCE ROW LEVEL SECURITY;

CREATE TABLE public.payment_refunds (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    payment_id uuid NOT NULL,
    refund_key text NOT NULL,
    provider_ref text DEFAULT ''::text NOT NULL,
    amount_minor bigint NOT NULL,
    lost_minor bigint DEFAULT 0 NOT NULL,
    currency text NOT NULL,
    state text DEFAULT 'planned'::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    detail text DEFAULT ''::text NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    sends integer DEFAULT 0 NOT NULL,
    next_try_at timestamp with time zone DEFAULT clock_timestamp(),
    created_at timestamp with time zone NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT payment_refunds_amount CHECK ((amount_minor > 0)),
    CONSTRAINT payment_refunds_state CHECK ((state = ANY (ARRAY['planned'::text, 'pending'::text, 'succeeded'::text, 'failed'::text])))
);

ALTER TABLE ONLY public.payment_refunds FORCE ROW LEVEL SECURITY;

CREATE TABLE public.payments (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    provider text NOT NULL,
    provider_ref text NOT NULL,
    attempt_id uuid,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    fee_minor bigint,
    fee_currency text,
    allocated_minor bigint DEFAULT 0 NOT NULL,
    refunded_minor bigint DEFAULT 0 NOT NULL,
    charged_back_minor bigint DEFAULT 0 NOT NULL,
    payer text DEFAULT ''::text NOT NULL,
    reference text DEFAULT ''::text NOT NULL,
    received_at timestamp with time zone NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT payments_allocated CHECK ((allocated_minor >= 0)),
    CONSTRAINT payments_amount CHECK ((amount_minor > 0)),
    CONSTRAINT payments_charged_back CHECK ((charged_back_minor >= 0)),
    CONSTRAINT payments_refunded CHECK ((refunded_minor >= 0)),
    CONSTRAINT payments_spent CHECK ((((allocated_minor + refunded_minor) + charged_back_minor) <= amount_minor))
);

ALTER TABLE ONLY public.payments FORCE ROW LEVEL SECURITY;

CREATE TABLE public.period_funding (
    org_id uuid NOT NULL,
    period text NOT NULL,
    close_no integer NOT NULL,
    accrued_minor bigint DEFAULT 0 NOT NULL,
    burned_minor bigint DEFAULT 0 NOT NULL,
    excess_minor bigint DEFAULT 0 NOT NULL,
    outage_minor bigint DEFAULT 0 NOT NULL,
    accrued_rev integer DEFAULT 0 NOT NULL,
    burned_rev integer DEFAULT 0 NOT NULL,
    invoice_id uuid,
    accrued_at timestamp with time zone,
    CONSTRAINT period_funding_burned CHECK ((burned_minor >= 0))
);

ALTER TABLE ONLY public.period_funding FORCE ROW LEVEL SECURITY;

CREATE TABLE public.placement_changes (
    id bigint NOT NULL,
    tx xid8 DEFAULT pg_current_xact_id() NOT NULL,
    cell_id text NOT NULL,
    gpu_id uuid NOT NULL
);

ALTER TABLE public.placement_changes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.placement_changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.pools (
    id text NOT NULL,
    cell_id text NOT NULL,
    tenancy text DEFAULT 'one_org_per_host'::text NOT NULL,
    modes text[] DEFAULT '{whole,mig,mps,timeslice}'::text[] NOT NULL,
    oversubscription numeric(6,3) DEFAULT 1.0 NOT NULL,
    fence text DEFAULT 'none'::text NOT NULL,
    grid jsonb DEFAULT '{}'::jsonb NOT NULL,
    auto_approve boolean DEFAULT false NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pools_oversubscription CHECK ((oversubscription >= (1)::numeric)),
    CONSTRAINT pools_tenancy CHECK ((tenancy = ANY (ARRAY['one_org_per_host'::text, 'shared'::text])))
);

CREATE TABLE public.price_books (
    id uuid NOT NULL,
    name text NOT NULL,
    currency text NOT NULL,
    is_default boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT price_books_currency CHECK ((currency ~ '^[A-Z]{3}$'::text))
);

CREATE TABLE public.price_steps (
    price_version_id uuid NOT NULL,
    sku_id uuid NOT NULL,
    meter text NOT NULL,
    step integer NOT NULL,
    up_to numeric(38,12),
    amount numeric(24,12) NOT NULL,
    CONSTRAINT price_steps_amount CHECK ((amount >= (0)::numeric)),
    CONSTRAINT price_steps_step CHECK (((step >= 1) AND (step <= 100))),
    CONSTRAINT price_steps_up_to CHECK ((up_to > (0)::numeric))
);

CREATE TABLE public.price_versions (
    id uuid NOT NULL,
    price_book_id uuid NOT NULL,
    version integer NOT NULL,
    effective_from timestamp with time zone NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.prices (
    price_version_id uuid NOT NULL,
    sku_id uuid NOT NULL,
    meter text NOT NULL,
    amount numeric(24,12) NOT NULL,
    tiering text DEFAULT ''::text NOT NULL,
    package_size numeric(38,12),
    CONSTRAINT prices_amount CHECK ((amount >= (0)::numeric)),
    CONSTRAINT prices_meter CHECK ((meter = ANY (ARRAY['gpu'::text, 'gpu_retained'::text, 'ip'::text, 'reservation'::text, 'storage'::text, 'egress'::text]))),
    CONSTRAINT prices_package CHECK ((((tiering = 'package'::text) = (package_size IS NOT NULL)) AND (COALESCE(package_size, (1)::numeric) > (0)::numeric))),
    CONSTRAINT prices_tiering CHECK ((tiering = ANY (ARRAY[''::text, 'graduated'::text, 'volume'::text, 'package'::text])))
);

CREATE TABLE public.projects (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.projects FORCE ROW LEVEL SECURITY;

CREATE TABLE public.promo_holds (
    org_id uuid NOT NULL,
    grant_id uuid NOT NULL,
    period text NOT NULL,
    amount_minor bigint NOT NULL,
    CONSTRAINT promo_holds_amount CHECK ((amount_minor > 0))
);

ALTER TABLE ONLY public.promo_holds FORCE ROW LEVEL SECURITY;

CREATE TABLE public.provider_events (
    provider text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    object text NOT NULL,
    object_ref text NOT NULL,
    body_hash bytea NOT NULL,
    state text DEFAULT 'received'::text NOT NULL,
    problem text DEFAULT ''::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_try_at timestamp with time zone DEFAULT clock_timestamp(),
    received_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT provider_events_state CHECK ((state = ANY (ARRAY['received'::text, 'done'::text, 'ignored'::text])))
);

CREATE TABLE public.quota_claims (
    org_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    instances integer DEFAULT 1 NOT NULL,
    gpus integer NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY public.quota_claims FORCE ROW LEVEL SECURITY;

CREATE TABLE public.quota_usage (
    org_id uuid NOT NULL,
    instances integer DEFAULT 0 NOT NULL,
    gpus integer DEFAULT 0 NOT NULL,
    CONSTRAINT quota_usage_gpus CHECK ((gpus >= 0)),
    CONSTRAINT quota_usage_instances CHECK ((instances >= 0))
);

ALTER TABLE ONLY public.quota_usage FORCE ROW LEVEL SECURITY;

CREATE TABLE public.reconciliations (
    org_id uuid NOT NULL,
    day timestamp with time zone NOT NULL,
    subject_id uuid NOT NULL,
    meter text NOT NULL,
    billed_us bigint NOT NULL,
    proven_us bigint NOT NULL,
    over_us bigint NOT NULL,
    under_us bigint NOT NULL,
    leakage_us bigint NOT NULL,
    reasons jsonb DEFAULT '{}'::jsonb NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

ALTER TABLE ONLY public.reconciliations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.regions (
    id text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE public.registry_logins (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    registry text NOT NULL,
    username text NOT NULL,
    password_sealed bytea NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY public.registry_logins FORCE ROW LEVEL SECURITY;

CREATE TABLE public.reservations (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    project_id uuid NOT NULL,
    name text NOT NULL,
    offer_id text NOT NULL,
    sku_id uuid NOT NULL,
    family text NOT NULL,
    region_id text NOT NULL,
    units bigint NOT NULL,
    price_book_id uuid NOT NULL,
    locked_price_version_id uuid,
    simulated boolean DEFAULT false NOT NULL,
    during tstzrange NOT NULL,
    next_at timestamp with time zone,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    cancelled_at timestamp with time zone,
    ended_by text DEFAULT ''::text NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT reservations_bounds CHECK (((NOT isempty(during)) AND lower_inc(during) AND (NOT upper_inc(during)) AND (NOT lower_inf(during)) AND (NOT upper_inf(during)))),
    CONSTRAINT reservations_units CHECK (((units >= 1) AND (units <= 1000000)))
);

ALTER TABLE ONLY public.reservations FORCE ROW LEVEL SECURITY;

CREATE TABLE public.run_proofs (
    org_id uuid NOT NULL,
    assignment_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    run integer NOT NULL,
    host_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    last_proof_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    device_uuids text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT run_proofs_order CHECK ((last_proof_at >= started_at))
);

ALTER TABLE ONLY public.run_proofs FORCE ROW LEVEL SECURITY;

CREATE TABLE public.skus (
    id uuid NOT NULL,
    code text NOT NULL,
    content_hash bytea NOT NULL,
    gpu_model text NOT NULL,
    mode text NOT NULL,
    gpu_mode text NOT NULL,
    profile text DEFAULT ''::text NOT NULL,
    gpu_count integer NOT NULL,
    memory_mib bigint NOT NULL,
    sm_count integer,
    sm_percent integer,
    isolation_gpu text NOT NULL,
    isolation_host text NOT NULL,
    vcpu integer NOT NULL,
    ram_mib bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT skus_gpu_count CHECK (((gpu_count >= 1) AND (gpu_count <= 64))),
    CONSTRAINT skus_isolation_gpu CHECK ((isolation_gpu = ANY (ARRAY['dedicated'::text, 'partitioned'::text, 'limited'::text, 'shared'::text]))),
    CONSTRAINT skus_isolation_host CHECK ((isolation_host = ANY (ARRAY['single_org_host'::text, 'vm'::text, 'sandboxed'::text, 'shared_kernel'::text]))),
    CONSTRAINT skus_memory CHECK ((memory_mib > 0)),
    CONSTRAINT skus_mode CHECK ((mode = ANY (ARRAY['whole'::text, 'mig'::text, 'mps'::text, 'timeslice'::text]))),
    CONSTRAINT skus_ram CHECK ((ram_mib > 0)),
    CONSTRAINT skus_vcpu CHECK ((vcpu > 0))
);

CREATE TABLE public.slice_samples (
    org_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    assignment_id uuid NOT NULL,
    run integer NOT NULL,
    host_id uuid NOT NULL,
    spool_id bigint NOT NULL,
    ordinal integer NOT NULL,
    at timestamp with time zone NOT NULL,
    interval_ms integer NOT NULL,
    source text NOT NULL,
    gap text DEFAULT ''::text NOT NULL,
    readings jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT slice_samples_interval CHECK ((interval_ms > 0))
);

ALTER TABLE ONLY public.slice_samples FORCE ROW LEVEL SECURITY;

CREATE TABLE public.spot_prices (
    region_id text NOT NULL,
    sku_id uuid NOT NULL,
    currency text NOT NULL,
    effective_from timestamp with time zone NOT NULL,
    amount numeric(24,12) NOT NULL,
    created_by text DEFAULT ''::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT spot_prices_amount CHECK ((amount >= (0)::numeric)),
    CONSTRAINT spot_prices_currency CHECK ((currency ~ '^[A-Z]{3}$'::text))
);

CREATE TABLE public.ssh_authorities (
    id uuid NOT NULL,
    public_key text NOT NULL,
    private_sealed bytea NOT NULL,
    current boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    retired_at timestamp with time zone,
    CONSTRAINT ssh_authorities_live CHECK (((NOT current) OR (retired_at IS NULL)))
);

CREATE TABLE public.statement_lines (
    id uuid NOT NULL,
    account text NOT NULL,
    bank_id text NOT NULL,
    booked_on date NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    reference text NOT NULL,
    payer text NOT NULL,
    state text NOT NULL,
    why text DEFAULT ''::text NOT NULL,
    matched_org uuid,
    payment_id uuid,
    decided_by text DEFAULT ''::text NOT NULL,
    imported_by text NOT NULL,
    imported_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    decided_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT statement_lines_amount CHECK ((amount_minor > 0)),
    CONSTRAINT statement_lines_matched CHECK (((state = 'matched'::text) = (payment_id IS NOT NULL))),
    CONSTRAINT statement_lines_state CHECK ((state = ANY (ARRAY['queued'::text, 'matched'::text, 'returned'::text])))
);

CREATE TABLE public.tax_id_checks (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    tax_id text NOT NULL,
    outcome text NOT NULL,
    source text NOT NULL,
    consultation text DEFAULT ''::text NOT NULL,
    checked_at timestamp with time zone NOT NULL,
    CONSTRAINT tax_id_checks_outcome CHECK ((outcome = ANY (ARRAY['valid'::text, 'invalid'::text, 'unknown'::text])))
);

ALTER TABLE ONLY public.tax_id_checks FORCE ROW LEVEL SECURITY;

CREATE TABLE public.tax_tables (
    issuer text NOT NULL,
    version integer NOT NULL,
    document jsonb NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT tax_tables_version_positive CHECK ((version > 0))
);

CREATE TABLE public.top_ups (
    org_id uuid NOT NULL,
    id uuid NOT NULL,
    period text NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT top_ups_amount CHECK ((amount_minor > 0)),
    CONSTRAINT top_ups_status CHECK ((status = ANY (ARRAY['pending'::text, 'ordered'::text, 'done'::text, 'failed'::text])))
);

ALTER TABLE ONLY public.top_ups FORCE ROW LEVEL SECURITY;

CREATE TABLE public.usage_checkpoints (
    org_id uuid NOT NULL,
    assignment_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    run integer NOT NULL,
    hour timestamp with time zone NOT NULL,
    from_at timestamp with time zone NOT NULL,
    to_at timestamp with time zone NOT NULL,
    CONSTRAINT usage_checkpoints_hour CHECK (((from_at >= hour) AND (to_at <= (hour + '01:00:00'::interval)) AND (from_at < to_at)))
);

ALTER TABLE ONLY public.usage_checkpoints FORCE ROW LEVEL SECURITY;

CREATE TABLE public.wallet_claims (
    org_id uuid NOT NULL,
    instance_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    amount numeric(24,12) NOT NULL,
    CONSTRAINT wallet_claims_amount CHECK ((amount >= (0)::numeric))
);

ALTER TABLE ONLY public.wallet_claims FORCE ROW LEVEL SECURITY;

CREATE TABLE public.wallets (
    org_id uuid NOT NULL,
    currency text NOT NULL,
    mode text DEFAULT 'postpaid'::text NOT NULL,
    prepaid_minor bigint DEFAULT 0 NOT NULL,
    promo_minor bigint DEFAULT 0 NOT NULL,
    promo_held_minor bigint DEFAULT 0 NOT NULL,
    tax_ppm bigint DEFAULT 0 NOT NULL,
    topup_threshold_minor bigint,
    topup_amount_minor bigint,
    topup_monthly_max_minor bigint,
    ticked_at timestamp with time zone,
    next_tick_at timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL,
    exhausted_at timestamp with time zone,
    revision bigint DEFAULT 1 NOT NULL,
    CONSTRAINT wallets_mode CHECK ((mode = ANY (ARRAY['postpaid'::text, 'prepaid'::text]))),
    CONSTRAINT wallets_prepaid_not_negative CHECK ((prepaid_minor >= 0)),
    CONSTRAINT wallets_promo_not_negative CHECK ((promo_minor >= 0)),
    CONSTRAINT wallets_tax CHECK (((tax_ppm >= 0) AND (tax_ppm <= 1000000))),
    CONSTRAINT wallets_topup CHECK ((num_nulls(topup_threshold_minor, topup_amount_minor, topup_monthly_max_minor) = ANY (ARRAY[0, 3]))),
    CONSTRAINT wallets_topup_amount CHECK ((topup_amount_minor > 0))
);

ALTER TABLE ONLY public.wallets FORCE ROW LEVEL SECURITY;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_id UNIQUE (id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.approval_rules
    ADD CONSTRAINT approval_rules_pkey PRIMARY KEY (kind, currency);

ALTER TABLE ONLY public.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_id UNIQUE (id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.billing_accounts
    ADD CONSTRAINT billing_accounts_pkey PRIMARY KEY (org_id);

ALTER TABLE ONLY public.billing_holds
    ADD CONSTRAINT billing_holds_pkey PRIMARY KEY (org_id, invoice_id);

ALTER TABLE ONLY public.budget_alerts
    ADD CONSTRAINT budget_alerts_pkey PRIMARY KEY (org_id, budget_id, period, threshold);

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_id UNIQUE (id);

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.business_clock
    ADD CONSTRAINT business_clock_pkey PRIMARY KEY (one);

ALTER TABLE ONLY public.cells
    ADD CONSTRAINT cells_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.claim_cells
    ADD CONSTRAINT claim_cells_pkey PRIMARY KEY (gpu_id, unit);

ALTER TABLE ONLY public.claim_slots
    ADD CONSTRAINT claim_slots_pkey PRIMARY KEY (claim_id, gpu_id, start_unit);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_holder UNIQUE (kind, holder_id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_id UNIQUE (id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.contract_steps
    ADD CONSTRAINT contract_steps_pkey PRIMARY KEY (org_id, contract_id, no, step);

ALTER TABLE ONLY public.contract_terms
    ADD CONSTRAINT contract_terms_no_overlap EXCLUDE USING gist (org_id WITH =, kind WITH =, (
CASE
    WHEN (kind = ANY (ARRAY['discount'::text, 'fixed_discount'::text])) THEN name
    ELSE ''::text
END) WITH =, scope_meter WITH =, scope_family WITH =, COALESCE(scope_sku, '00000000-0000-0000-0000-000000000000'::uuid) WITH =, during WITH &&) WHERE ((cancelled_at IS NULL));

ALTER TABLE ONLY public.contract_terms
    ADD CONSTRAINT contract_terms_pkey PRIMARY KEY (org_id, contract_id, no);

ALTER TABLE ONLY public.contracts
    ADD CONSTRAINT contracts_id UNIQUE (id);

ALTER TABLE ONLY public.contracts
    ADD CONSTRAINT contracts_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.coupon_uses
    ADD CONSTRAINT coupon_uses_pkey PRIMARY KEY (org_id, code);

ALTER TABLE ONLY public.coupons
    ADD CONSTRAINT coupons_pkey PRIMARY KEY (code);

ALTER TABLE ONLY public.credit_grants
    ADD CONSTRAINT credit_grants_id UNIQUE (id);

ALTER TABLE ONLY public.credit_grants
    ADD CONSTRAINT credit_grants_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.credit_grants
    ADD CONSTRAINT credit_grants_source UNIQUE (source_id);

ALTER TABLE ONLY public.credit_uses
    ADD CONSTRAINT credit_uses_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.discrepancies
    ADD CONSTRAINT discrepancies_once UNIQUE (org_id, subject_id, meter, during);

ALTER TABLE ONLY public.discrepancies
    ADD CONSTRAINT discrepancies_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.dunning_schedules
    ADD CONSTRAINT dunning_schedules_pkey PRIMARY KEY (issuer);

ALTER TABLE ONLY public.dunnings
    ADD CONSTRAINT dunnings_pkey PRIMARY KEY (org_id, invoice_id);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (tx, id);

ALTER TABLE ONLY public.gpu_bindings
    ADD CONSTRAINT gpu_bindings_pair UNIQUE (gpu_id, org_id);

ALTER TABLE ONLY public.gpu_bindings
    ADD CONSTRAINT gpu_bindings_pkey PRIMARY KEY (gpu_id);

ALTER TABLE ONLY public.gpu_costs
    ADD CONSTRAINT gpu_costs_pkey PRIMARY KEY (gpu_model, currency, effective_from);

ALTER TABLE ONLY public.gpu_hours
    ADD CONSTRAINT gpu_hours_pkey PRIMARY KEY (gpu_id, hour, mode);

ALTER TABLE ONLY public.gpu_inventories
    ADD CONSTRAINT gpu_inventories_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_uuid UNIQUE (host_id, uuid);

ALTER TABLE ONLY public.host_bindings
    ADD CONSTRAINT host_bindings_pair UNIQUE (host_id, org_id);

ALTER TABLE ONLY public.host_bindings
    ADD CONSTRAINT host_bindings_pkey PRIMARY KEY (host_id);

ALTER TABLE ONLY public.host_desired
    ADD CONSTRAINT host_desired_pkey PRIMARY KEY (tx, id);

ALTER TABLE ONLY public.host_liveness
    ADD CONSTRAINT host_liveness_pkey PRIMARY KEY (host_id);

ALTER TABLE ONLY public.host_ports
    ADD CONSTRAINT host_ports_once UNIQUE (assignment_id, container_port, protocol);

ALTER TABLE ONLY public.host_ports
    ADD CONSTRAINT host_ports_pkey PRIMARY KEY (host_id, port, protocol);

ALTER TABLE ONLY public.host_sessions
    ADD CONSTRAINT host_sessions_pkey PRIMARY KEY (host_id);

ALTER TABLE ONLY public.host_spools
    ADD CONSTRAINT host_spools_pkey PRIMARY KEY (host_id);

ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_name UNIQUE (name);

ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT idempotency_keys_pkey PRIMARY KEY (org_id, method, path, key);

ALTER TABLE ONLY public.installations
    ADD CONSTRAINT installations_pkey PRIMARY KEY (one);

ALTER TABLE ONLY public.instance_keys
    ADD CONSTRAINT instance_keys_pkey PRIMARY KEY (org_id, instance_id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_client_token UNIQUE (org_id, client_token);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_id UNIQUE (id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_id UNIQUE (id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.invoice_lines
    ADD CONSTRAINT invoice_lines_pkey PRIMARY KEY (invoice_id, line_no);

ALTER TABLE ONLY public.invoice_numbers
    ADD CONSTRAINT invoice_numbers_pkey PRIMARY KEY (series, year, kind);

ALTER TABLE ONLY public.invoice_originals
    ADD CONSTRAINT invoice_originals_once PRIMARY KEY (invoice_id);

ALTER TABLE ONLY public.invoice_run_targets
    ADD CONSTRAINT invoice_run_targets_pkey PRIMARY KEY (run_id, org_id);

ALTER TABLE ONLY public.invoice_runs
    ADD CONSTRAINT invoice_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.invoice_taxes
    ADD CONSTRAINT invoice_taxes_pkey PRIMARY KEY (invoice_id, category, rate);

ALTER TABLE ONLY public.invoice_write_offs
    ADD CONSTRAINT invoice_write_offs_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_id UNIQUE (id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_number UNIQUE (number);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.issuer_versions
    ADD CONSTRAINT issuer_versions_start PRIMARY KEY (issuer, effective_from);

ALTER TABLE ONLY public.issuers
    ADD CONSTRAINT issuers_pkey PRIMARY KEY (slug);

ALTER TABLE ONLY public.issuers
    ADD CONSTRAINT issuers_prefix UNIQUE (prefix);

ALTER TABLE ONLY public.join_tokens
    ADD CONSTRAINT join_tokens_hash UNIQUE (hash);

ALTER TABLE ONLY public.join_tokens
    ADD CONSTRAINT join_tokens_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.ledger_books
    ADD CONSTRAINT ledger_books_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.ledger_journals
    ADD CONSTRAINT ledger_journals_id UNIQUE (id);

ALTER TABLE ONLY public.ledger_journals
    ADD CONSTRAINT ledger_journals_once UNIQUE (kind, reference_id);

ALTER TABLE ONLY public.ledger_journals
    ADD CONSTRAINT ledger_journals_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.ledger_postings
    ADD CONSTRAINT ledger_postings_pkey PRIMARY KEY (journal_id, line_no);

ALTER TABLE ONLY public.line_subjects
    ADD CONSTRAINT line_subjects_pkey PRIMARY KEY (invoice_id, line_no, subject_id);

ALTER TABLE ONLY public.liveness_writers
    ADD CONSTRAINT liveness_writers_pkey PRIMARY KEY (cell_id);

ALTER TABLE ONLY public.mode_changes
    ADD CONSTRAINT mode_changes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.month_closes
    ADD CONSTRAINT month_closes_pkey PRIMARY KEY (period);

ALTER TABLE ONLY public.observed_slices
    ADD CONSTRAINT observed_slices_pkey PRIMARY KEY (host_id, slice_key);

ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_id UNIQUE (id);

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.operator_keys
    ADD CONSTRAINT operator_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.organization_price_books
    ADD CONSTRAINT organization_price_books_no_overlap EXCLUDE USING gist (org_id WITH =, during WITH &&);

ALTER TABLE ONLY public.organization_price_books
    ADD CONSTRAINT organization_price_books_pkey PRIMARY KEY (org_id, price_book_id, during);

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_name UNIQUE (name);

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.payment_allocations
    ADD CONSTRAINT payment_allocations_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.payment_attempts
    ADD CONSTRAINT payment_attempts_id UNIQUE (id);

ALTER TABLE ONLY public.payment_attempts
    ADD CONSTRAINT payment_attempts_key UNIQUE (provider, intent_key);

ALTER TABLE ONLY public.payment_attempts
    ADD CONSTRAINT payment_attempts_once UNIQUE (org_id, subject_id, attempt_no);

ALTER TABLE ONLY public.payment_attempts
    ADD CONSTRAINT payment_attempts_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.payment_customers
    ADD CONSTRAINT payment_customers_pkey PRIMARY KEY (org_id);

ALTER TABLE ONLY public.payment_disputes
    ADD CONSTRAINT payment_disputes_id UNIQUE (id);

ALTER TABLE ONLY public.payment_disputes
    ADD CONSTRAINT payment_disputes_once UNIQUE (provider, provider_ref);

ALTER TABLE ONLY public.payment_disputes
    ADD CONSTRAINT payment_disputes_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.payment_refunds
    ADD CONSTRAINT payment_refunds_id UNIQUE (id);

ALTER TABLE ONLY public.payment_refunds
    ADD CONSTRAINT payment_refunds_key UNIQUE (refund_key);

ALTER TABLE ONLY public.payment_refunds
    ADD CONSTRAINT payment_refunds_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_id UNIQUE (id);

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_once UNIQUE (provider, provider_ref);

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.period_funding
    ADD CONSTRAINT period_funding_pkey PRIMARY KEY (org_id, period, close_no);

ALTER TABLE ONLY public.placement_changes
    ADD CONSTRAINT placement_changes_pkey PRIMARY KEY (tx, id);

ALTER TABLE ONLY public.pools
    ADD CONSTRAINT pools_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.price_books
    ADD CONSTRAINT price_books_name UNIQUE (name);

ALTER TABLE ONLY public.price_books
    ADD CONSTRAINT price_books_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.price_steps
    ADD CONSTRAINT price_steps_pkey PRIMARY KEY (price_version_id, sku_id, meter, step);

ALTER TABLE ONLY public.price_versions
    ADD CONSTRAINT price_versions_number UNIQUE (price_book_id, version);

ALTER TABLE ONLY public.price_versions
    ADD CONSTRAINT price_versions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.price_versions
    ADD CONSTRAINT price_versions_start UNIQUE (price_book_id, effective_from);

ALTER TABLE ONLY public.prices
    ADD CONSTRAINT prices_pkey PRIMARY KEY (price_version_id, sku_id, meter);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_id UNIQUE (id);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_name UNIQUE (org_id, name);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.promo_holds
    ADD CONSTRAINT promo_holds_pkey PRIMARY KEY (org_id, grant_id, period);

ALTER TABLE ONLY public.provider_events
    ADD CONSTRAINT provider_events_pkey PRIMARY KEY (provider, event_id);

ALTER TABLE ONLY public.quota_claims
    ADD CONSTRAINT quota_claims_pkey PRIMARY KEY (org_id, instance_id);

ALTER TABLE ONLY public.quota_usage
    ADD CONSTRAINT quota_usage_pkey PRIMARY KEY (org_id);

ALTER TABLE ONLY public.reconciliations
    ADD CONSTRAINT reconciliations_pkey PRIMARY KEY (org_id, day, subject_id, meter);

ALTER TABLE ONLY public.regions
    ADD CONSTRAINT regions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.registry_logins
    ADD CONSTRAINT registry_logins_id UNIQUE (id);

ALTER TABLE ONLY public.registry_logins
    ADD CONSTRAINT registry_logins_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.registry_logins
    ADD CONSTRAINT registry_logins_registry UNIQUE (org_id, registry);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_id UNIQUE (id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.run_proofs
    ADD CONSTRAINT run_proofs_pkey PRIMARY KEY (org_id, assignment_id);

ALTER TABLE ONLY public.skus
    ADD CONSTRAINT skus_code UNIQUE (code);

ALTER TABLE ONLY public.skus
    ADD CONSTRAINT skus_content UNIQUE (content_hash);

ALTER TABLE ONLY public.skus
    ADD CONSTRAINT skus_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.slice_samples
    ADD CONSTRAINT slice_samples_pkey PRIMARY KEY (host_id, spool_id, ordinal, at);

ALTER TABLE ONLY public.spot_prices
    ADD CONSTRAINT spot_prices_pkey PRIMARY KEY (region_id, sku_id, currency, effective_from);

ALTER TABLE ONLY public.ssh_authorities
    ADD CONSTRAINT ssh_authorities_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.statement_lines
    ADD CONSTRAINT statement_lines_once UNIQUE (account, bank_id);

ALTER TABLE ONLY public.statement_lines
    ADD CONSTRAINT statement_lines_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.tax_id_checks
    ADD CONSTRAINT tax_id_checks_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.tax_tables
    ADD CONSTRAINT tax_tables_version PRIMARY KEY (issuer, version);

ALTER TABLE ONLY public.top_ups
    ADD CONSTRAINT top_ups_id UNIQUE (id);

ALTER TABLE ONLY public.top_ups
    ADD CONSTRAINT top_ups_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.usage_checkpoints
    ADD CONSTRAINT usage_checkpoints_pkey PRIMARY KEY (org_id, assignment_id, hour);

ALTER TABLE ONLY public.usage_exclusions
    ADD CONSTRAINT usage_exclusions_no_overlap EXCLUDE USING gist (org_id WITH =, subject_id WITH =, meter WITH =, during WITH &&) WHERE ((lifted_at IS NULL));

ALTER TABLE ONLY public.usage_exclusions
    ADD CONSTRAINT usage_exclusions_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_id UNIQUE (id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_no_overlap EXCLUDE USING gist (org_id WITH =, subject_id WITH =, meter WITH =, during WITH &&);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_seq UNIQUE (org_id, subject_id, meter, seq);

ALTER TABLE ONLY public.wallet_claims
    ADD CONSTRAINT wallet_claims_pkey PRIMARY KEY (org_id, instance_id);

ALTER TABLE ONLY public.wallets
    ADD CONSTRAINT wallets_pkey PRIMARY KEY (org_id);

CREATE INDEX approvals_list ON public.approvals USING btree (id DESC);

CREATE UNIQUE INDEX approvals_one_live ON public.approvals USING btree (kind, body_hash, requested_by) WHERE (state = ANY (ARRAY['pending'::text, 'approved'::text]));

CREATE INDEX assignments_by_host ON public.assignments USING btree (host_id) WHERE (state <> 'released'::text);

CREATE INDEX assignments_by_instance ON public.assignments USING btree (org_id, instance_id);

CREATE UNIQUE INDEX assignments_one_live ON public.assignments USING btree (instance_id, run) WHERE (state = ANY (ARRAY['claimed'::text, 'applied'::text]));

CREATE INDEX audit_log_by_org ON public.audit_log USING btree (org_id, id);

CREATE INDEX claim_cells_by_claim ON public.claim_cells USING btree (claim_id);

CREATE INDEX claim_slots_by_gpu ON public.claim_slots USING btree (gpu_id);

CREATE INDEX claims_by_host ON public.claims USING btree (host_id);

CREATE INDEX credit_grants_expiry ON public.credit_grants USING btree (expires_at) WHERE ((lapsed_at IS NULL) AND (expires_at IS NOT NULL));

CREATE INDEX credit_uses_by_grant ON public.credit_uses USING btree (org_id, grant_id);

CREATE INDEX credit_uses_period ON public.credit_uses USING btree (org_id, period, close_no, id);

CREATE INDEX discrepancies_list ON public.discrepancies USING btree (id DESC);

CREATE INDEX discrepancies_open ON public.discrepancies USING btree (org_id, billing_period) WHERE (status = 'open'::text);

CREATE INDEX dunnings_work ON public.dunnings USING btree (next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX events_by_org ON public.events USING btree (org_id, tx, id);

CREATE INDEX gpu_hours_age ON public.gpu_hours USING btree (hour);

CREATE INDEX gpus_by_shape ON public.gpus USING btree (cell_id, model, mode_observed);

CREATE INDEX host_desired_by_host ON public.host_desired USING btree (host_id, tx, id);

CREATE INDEX host_ports_by_claim ON public.host_ports USING btree (claim_id);

CREATE INDEX hosts_wake ON public.hosts USING btree (next_wake_at) WHERE (next_wake_at IS NOT NULL);

CREATE INDEX idempotency_keys_age ON public.idempotency_keys USING btree (created_at);

CREATE INDEX instance_keys_key ON public.instance_keys USING btree (org_id, key_id);

CREATE INDEX instances_by_registry_login ON public.instances USING btree (org_id, registry_login_id) WHERE (registry_login_id IS NOT NULL);

CREATE INDEX instances_list ON public.instances USING btree (org_id, project_id, id DESC);

CREATE UNIQUE INDEX instances_name ON public.instances USING btree (org_id, project_id, name) WHERE (desired <> 'deleted'::text);

CREATE INDEX instances_recovering ON public.instances USING btree (pool_id, id) WHERE recovering;

CREATE INDEX instances_unconverged ON public.instances USING btree (id) WHERE (converged_generation <> generation);

CREATE INDEX instances_wake ON public.instances USING btree (next_wake_at) WHERE (next_wake_at IS NOT NULL);

CREATE INDEX interruptions_by_instance ON public.interruptions USING btree (org_id, instance_id, from_at);

CREATE UNIQUE INDEX interruptions_open ON public.interruptions USING btree (instance_id) WHERE (to_at IS NULL);

CREATE INDEX invoice_lines_advances ON public.invoice_lines USING btree (org_id, reference) WHERE (component = 'advance_deduction'::text);

CREATE INDEX invoice_lines_corrects ON public.invoice_lines USING btree (corrects_invoice) WHERE (corrects_invoice IS NOT NULL);

CREATE INDEX invoice_originals_org ON public.invoice_originals USING btree (org_id, invoice_id);

CREATE INDEX invoice_run_targets_pending ON public.invoice_run_targets USING btree (run_id, attempts, org_id) WHERE (status = 'pending'::text);

CREATE UNIQUE INDEX invoice_runs_one_running ON public.invoice_runs USING btree (period) WHERE (status = 'running'::text);

CREATE INDEX invoice_runs_wake ON public.invoice_runs USING btree (next_wake_at) WHERE (next_wake_at IS NOT NULL);

CREATE INDEX invoice_write_offs_by_invoice ON public.invoice_write_offs USING btree (org_id, invoice_id);

CREATE UNIQUE INDEX invoices_advance_once ON public.invoices USING btree (org_id, source_id) WHERE ((kind = 'advance'::text) AND live);

CREATE UNIQUE INDEX invoices_billed_once ON public.invoices USING btree (org_id, period, close_no) WHERE (live AND (kind = 'usage'::text));

CREATE INDEX invoices_by_bare_number ON public.invoices USING btree (upper(regexp_replace(number, '[^[:alnum:]]'::text, ''::text, 'g'::text))) WHERE (number IS NOT NULL);

CREATE INDEX invoices_notes_of ON public.invoices USING btree (corrects) WHERE (corrects IS NOT NULL);

CREATE INDEX invoices_open_totals ON public.invoices USING btree (total_minor) WHERE (status = 'open'::text);

CREATE INDEX invoices_waiting ON public.invoices USING btree (org_id) WHERE ((status = 'carried'::text) AND (carried_by IS NULL) AND live);

CREATE INDEX ledger_journals_day ON public.ledger_journals USING btree (effective_on);

CREATE INDEX ledger_postings_document ON public.ledger_postings USING btree (org_id, document_id) WHERE (document_id IS NOT NULL);

CREATE UNIQUE INDEX mode_changes_open ON public.mode_changes USING btree (gpu_id) WHERE (status = ANY (ARRAY['draining'::text, 'switching'::text]));

CREATE INDEX mode_changes_wake ON public.mode_changes USING btree (next_wake_at) WHERE (next_wake_at IS NOT NULL);

CREATE INDEX observed_slices_assignment ON public.observed_slices USING btree (assignment_id);

CREATE INDEX operations_list ON public.operations USING btree (org_id, project_id, id DESC);

CREATE INDEX operations_subject ON public.operations USING btree (org_id, subject_id, id DESC);

CREATE INDEX outbox_sent ON public.outbox USING btree (sent_at) WHERE (sent_at IS NOT NULL);

CREATE INDEX outbox_unsent ON public.outbox USING btree (id) WHERE (sent_at IS NULL);

CREATE INDEX outbox_unsent_key ON public.outbox USING btree (kind, key) WHERE (sent_at IS NULL);

CREATE INDEX payment_allocations_by_invoice ON public.payment_allocations USING btree (org_id, invoice_id);

CREATE INDEX payment_allocations_by_payment ON public.payment_allocations USING btree (org_id, payment_id);

CREATE UNIQUE INDEX payment_attempts_one_live ON public.payment_attempts USING btree (org_id, subject_id) WHERE (state = ANY (ARRAY['planned'::text, 'processing'::text, 'needs_action'::text]));

CREATE UNIQUE INDEX payment_attempts_ref ON public.payment_attempts USING btree (provider, provider_ref) WHERE (provider_ref <> ''::text);

CREATE INDEX payment_attempts_work ON public.payment_attempts USING btree (next_try_at) WHERE (next_try_at IS NOT NULL);

CREATE UNIQUE INDEX payment_customers_ref ON public.payment_customers USING btree (provider, customer_ref) WHERE (customer_ref <> ''::text);

CREATE INDEX payment_disputes_by_payment ON public.payment_disputes USING btree (org_id, payment_id);

CREATE INDEX payment_refunds_by_payment ON public.payment_refunds USING btree (org_id, payment_id);

CREATE UNIQUE INDEX payment_refunds_ref ON public.payment_refunds USING btree (provider_ref) WHERE (provider_ref <> ''::text);

CREATE INDEX payment_refunds_work ON public.payment_refunds USING btree (next_try_at) WHERE (next_try_at IS NOT NULL);

CREATE INDEX payments_free ON public.payments USING btree (org_id, id) WHERE (((allocated_minor + refunded_minor) + charged_back_minor) < amount_minor);

CREATE UNIQUE INDEX price_books_default ON public.price_books USING btree (currency) WHERE is_default;

CREATE INDEX provider_events_work ON public.provider_events USING btree (next_try_at) WHERE (next_try_at IS NOT NULL);

CREATE INDEX reconciliations_day ON public.reconciliations USING btree (day);

CREATE INDEX reservations_during ON public.reservations USING gist (org_id, during);

CREATE INDEX reservations_next ON public.reservations USING btree (next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX run_proofs_ended ON public.run_proofs USING btree (ended_at);

CREATE INDEX run_proofs_instance ON public.run_proofs USING btree (org_id, instance_id);

CREATE INDEX slice_samples_age ON public.slice_samples USING btree (at);

CREATE INDEX slice_samples_by_instance ON public.slice_samples USING btree (org_id, instance_id, at);

CREATE UNIQUE INDEX ssh_authorities_current ON public.ssh_authorities USING btree (current) WHERE current;

CREATE INDEX statement_lines_by_state ON public.statement_lines USING btree (state, id);

CREATE INDEX tax_id_checks_latest ON public.tax_id_checks USING btree (org_id, tax_id, checked_at DESC);

CREATE UNIQUE INDEX top_ups_one_open ON public.top_ups USING btree (org_id) WHERE (status = ANY (ARRAY['pending'::text, 'ordered'::text]));

CREATE INDEX usage_checkpoints_age ON public.usage_checkpoints USING btree (hour);

CREATE INDEX usage_checkpoints_instance ON public.usage_checkpoints USING btree (org_id, instance_id, hour);

CREATE INDEX usage_exclusions_subject ON public.usage_exclusions USING btree (org_id, subject_id, meter);

CREATE UNIQUE INDEX usage_segments_one_open ON public.usage_segments USING btree (subject_id, meter) WHERE upper_inf(during);

CREATE INDEX usage_segments_open ON public.usage_segments USING btree (lower(during)) WHERE upper_inf(during);

CREATE INDEX usage_segments_period ON public.usage_segments USING btree (org_id, billing_period);

CREATE INDEX usage_segments_spot ON public.usage_segments USING btree (org_id, region, sku_id) WHERE (pricing_kind = 'spot'::text);

CREATE INDEX usage_segments_subject ON public.usage_segments USING btree (org_id, subject_id, meter, seq);

CREATE INDEX wallets_due ON public.wallets USING btree (next_tick_at);

CREATE TRIGGER audit_log_immutable BEFORE DELETE OR UPDATE ON public.audit_log FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER audit_log_no_truncate BEFORE TRUNCATE ON public.audit_log FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE CONSTRAINT TRIGGER claim_slots_cells AFTER INSERT ON public.claim_slots DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.claim_slots_cells();

CREATE TRIGGER claim_slots_unbind AFTER DELETE ON public.claim_slots FOR EACH ROW WHEN ((old.bound_gpu_id IS NOT NULL)) EXECUTE FUNCTION public.claim_slots_unbind();

CREATE TRIGGER claims_count_host AFTER INSERT OR DELETE OR UPDATE ON public.claims FOR EACH ROW EXECUTE FUNCTION public.claims_count_host();

CREATE TRIGGER claims_unbind AFTER DELETE ON public.claims FOR EACH ROW WHEN ((old.bound_host_id IS NOT NULL)) EXECUTE FUNCTION public.claims_unbind();

CREATE TRIGGER contract_steps_immutable BEFORE DELETE OR UPDATE ON public.contract_steps FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER contract_steps_no_truncate BEFORE TRUNCATE ON public.contract_steps FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER contract_terms_as_contract BEFORE INSERT OR UPDATE ON public.contract_terms FOR EACH ROW EXECUTE FUNCTION public.contract_terms_as_contract();

CREATE TRIGGER contract_terms_ends BEFORE DELETE OR UPDATE ON public.contract_terms FOR EACH ROW EXECUTE FUNCTION public.ends_early_only();

CREATE TRIGGER contract_terms_no_truncate BEFORE TRUNCATE ON public.contract_terms FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER contracts_ends BEFORE DELETE OR UPDATE ON public.contracts FOR EACH ROW EXECUTE FUNCTION public.ends_early_only();

CREATE TRIGGER contracts_no_truncate BEFORE TRUNCATE ON public.contracts FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER credit_uses_immutable BEFORE DELETE OR UPDATE ON public.credit_uses FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER credit_uses_no_truncate BEFORE TRUNCATE ON public.credit_uses FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER gpu_costs_immutable BEFORE DELETE OR UPDATE ON public.gpu_costs FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER gpu_costs_no_truncate BEFORE TRUNCATE ON public.gpu_costs FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER gpu_inventories_immutable BEFORE DELETE OR UPDATE ON public.gpu_inventories FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER gpu_inventories_no_truncate BEFORE TRUNCATE ON public.gpu_inventories FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_lines_guard BEFORE INSERT OR DELETE OR UPDATE ON public.invoice_lines FOR EACH ROW EXECUTE FUNCTION public.invoice_parts_guard();

CREATE TRIGGER invoice_lines_no_truncate BEFORE TRUNCATE ON public.invoice_lines FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_originals_immutable BEFORE DELETE OR UPDATE ON public.invoice_originals FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_originals_no_truncate BEFORE TRUNCATE ON public.invoice_originals FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_taxes_guard BEFORE INSERT OR DELETE OR UPDATE ON public.invoice_taxes FOR EACH ROW EXECUTE FUNCTION public.invoice_parts_guard();

CREATE TRIGGER invoice_taxes_no_truncate BEFORE TRUNCATE ON public.invoice_taxes FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_write_offs_immutable BEFORE DELETE OR UPDATE ON public.invoice_write_offs FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoice_write_offs_no_truncate BEFORE TRUNCATE ON public.invoice_write_offs FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER invoices_guard BEFORE DELETE OR UPDATE ON public.invoices FOR EACH ROW EXECUTE FUNCTION public.invoices_guard();

CREATE TRIGGER invoices_no_truncate BEFORE TRUNCATE ON public.invoices FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER issuer_versions_immutable BEFORE DELETE OR UPDATE ON public.issuer_versions FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER issuer_versions_no_truncate BEFORE TRUNCATE ON public.issuer_versions FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE CONSTRAINT TRIGGER ledger_journal_balances AFTER INSERT OR DELETE OR UPDATE ON public.ledger_postings DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.ledger_journal_balances();

CREATE TRIGGER ledger_journal_closed BEFORE INSERT ON public.ledger_postings FOR EACH ROW EXECUTE FUNCTION public.ledger_journal_closed();

CREATE TRIGGER ledger_journals_immutable BEFORE DELETE OR UPDATE ON public.ledger_journals FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER ledger_journals_no_truncate BEFORE TRUNCATE ON public.ledger_journals FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER ledger_month_open BEFORE INSERT ON public.ledger_journals FOR EACH ROW EXECUTE FUNCTION public.ledger_month_open();

CREATE TRIGGER ledger_postings_immutable BEFORE DELETE OR UPDATE ON public.ledger_postings FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER ledger_postings_no_truncate BEFORE TRUNCATE ON public.ledger_postings FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER line_subjects_guard BEFORE INSERT OR DELETE OR UPDATE ON public.line_subjects FOR EACH ROW EXECUTE FUNCTION public.invoice_parts_guard();

CREATE TRIGGER line_subjects_no_truncate BEFORE TRUNCATE ON public.line_subjects FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER month_closes_immutable BEFORE DELETE OR UPDATE ON public.month_closes FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER month_closes_no_truncate BEFORE TRUNCATE ON public.month_closes FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER organization_price_books_ends BEFORE DELETE OR UPDATE ON public.organization_price_books FOR EACH ROW EXECUTE FUNCTION public.ends_early_only();

CREATE TRIGGER payment_allocations_immutable BEFORE DELETE OR UPDATE ON public.payment_allocations FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER payment_allocations_no_truncate BEFORE TRUNCATE ON public.payment_allocations FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER price_steps_immutable BEFORE DELETE OR UPDATE ON public.price_steps FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER price_steps_no_truncate BEFORE TRUNCATE ON public.price_steps FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER price_versions_immutable BEFORE DELETE OR UPDATE ON public.price_versions FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER price_versions_no_truncate BEFORE TRUNCATE ON public.price_versions FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER prices_immutable BEFORE DELETE OR UPDATE ON public.prices FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER prices_no_truncate BEFORE TRUNCATE ON public.prices FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER quota_claims_count AFTER INSERT OR DELETE OR UPDATE ON public.quota_claims FOR EACH ROW EXECUTE FUNCTION public.quota_claims_count();

CREATE TRIGGER reservations_ends BEFORE DELETE OR UPDATE ON public.reservations FOR EACH ROW EXECUTE FUNCTION public.ends_early_only();

CREATE TRIGGER reservations_no_truncate BEFORE TRUNCATE ON public.reservations FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER skus_immutable BEFORE DELETE OR UPDATE ON public.skus FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER skus_no_truncate BEFORE TRUNCATE ON public.skus FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER spot_prices_append BEFORE INSERT ON public.spot_prices FOR EACH ROW EXECUTE FUNCTION public.spot_prices_append();

CREATE TRIGGER spot_prices_immutable BEFORE DELETE OR UPDATE ON public.spot_prices FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER spot_prices_no_truncate BEFORE TRUNCATE ON public.spot_prices FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER tax_id_checks_immutable BEFORE DELETE OR UPDATE ON public.tax_id_checks FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER tax_id_checks_no_truncate BEFORE TRUNCATE ON public.tax_id_checks FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER tax_tables_immutable BEFORE DELETE OR UPDATE ON public.tax_tables FOR EACH ROW EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER tax_tables_no_truncate BEFORE TRUNCATE ON public.tax_tables FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

CREATE TRIGGER usage_segments_no_truncate BEFORE TRUNCATE ON public.usage_segments FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_change();

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_instance FOREIGN KEY (org_id, instance_id) REFERENCES public.instances(org_id, id);

ALTER TABLE ONLY public.assignments
    ADD CONSTRAINT assignments_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.billing_holds
    ADD CONSTRAINT billing_holds_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.budget_alerts
    ADD CONSTRAINT budget_alerts_budget FOREIGN KEY (org_id, budget_id) REFERENCES public.budgets(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.budgets
    ADD CONSTRAINT budgets_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.cells
    ADD CONSTRAINT cells_region FOREIGN KEY (region_id) REFERENCES public.regions(id);

ALTER TABLE ONLY public.claim_cells
    ADD CONSTRAINT claim_cells_claim FOREIGN KEY (org_id, claim_id) REFERENCES public.claims(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.claim_cells
    ADD CONSTRAINT claim_cells_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.claim_slots
    ADD CONSTRAINT claim_slots_claim FOREIGN KEY (org_id, claim_id) REFERENCES public.claims(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.claim_slots
    ADD CONSTRAINT claim_slots_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.claim_slots
    ADD CONSTRAINT claim_slots_gpu_binding FOREIGN KEY (bound_gpu_id, org_id) REFERENCES public.gpu_bindings(gpu_id, org_id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_host_binding FOREIGN KEY (bound_host_id, org_id) REFERENCES public.host_bindings(host_id, org_id);

ALTER TABLE ONLY public.claims
    ADD CONSTRAINT claims_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.contract_steps
    ADD CONSTRAINT contract_steps_term FOREIGN KEY (org_id, contract_id, no) REFERENCES public.contract_terms(org_id, contract_id, no);

ALTER TABLE ONLY public.contract_terms
    ADD CONSTRAINT contract_terms_contract FOREIGN KEY (org_id, contract_id) REFERENCES public.contracts(org_id, id);

ALTER TABLE ONLY public.contract_terms
    ADD CONSTRAINT contract_terms_sku FOREIGN KEY (scope_sku) REFERENCES public.skus(id);

ALTER TABLE ONLY public.contracts
    ADD CONSTRAINT contracts_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.coupon_uses
    ADD CONSTRAINT coupon_uses_coupon FOREIGN KEY (code) REFERENCES public.coupons(code);

ALTER TABLE ONLY public.coupon_uses
    ADD CONSTRAINT coupon_uses_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.credit_grants
    ADD CONSTRAINT credit_grants_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.credit_uses
    ADD CONSTRAINT credit_uses_grant FOREIGN KEY (org_id, grant_id) REFERENCES public.credit_grants(org_id, id);

ALTER TABLE ONLY public.discrepancies
    ADD CONSTRAINT discrepancies_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.dunnings
    ADD CONSTRAINT dunnings_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.gpu_bindings
    ADD CONSTRAINT gpu_bindings_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.gpu_hours
    ADD CONSTRAINT gpu_hours_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.gpus
    ADD CONSTRAINT gpus_inventory FOREIGN KEY (inventory_hash) REFERENCES public.gpu_inventories(hash);

ALTER TABLE ONLY public.host_bindings
    ADD CONSTRAINT host_bindings_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.host_desired
    ADD CONSTRAINT host_desired_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.host_desired
    ADD CONSTRAINT host_desired_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.host_liveness
    ADD CONSTRAINT host_liveness_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.host_ports
    ADD CONSTRAINT host_ports_assignment FOREIGN KEY (org_id, assignment_id) REFERENCES public.assignments(org_id, id);

ALTER TABLE ONLY public.host_ports
    ADD CONSTRAINT host_ports_claim FOREIGN KEY (org_id, claim_id) REFERENCES public.claims(org_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.host_ports
    ADD CONSTRAINT host_ports_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.host_sessions
    ADD CONSTRAINT host_sessions_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.host_spools
    ADD CONSTRAINT host_spools_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_pool FOREIGN KEY (pool_id) REFERENCES public.pools(id);

ALTER TABLE ONLY public.instance_keys
    ADD CONSTRAINT instance_keys_instance FOREIGN KEY (org_id, instance_id) REFERENCES public.instances(org_id, id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_locked_version FOREIGN KEY (locked_price_version_id) REFERENCES public.price_versions(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_offer FOREIGN KEY (offer_id) REFERENCES public.offers(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_pool FOREIGN KEY (pool_id) REFERENCES public.pools(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_price_book FOREIGN KEY (price_book_id) REFERENCES public.price_books(id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_registry_login FOREIGN KEY (org_id, registry_login_id) REFERENCES public.registry_logins(org_id, id) ON DELETE SET NULL (registry_login_id);

ALTER TABLE ONLY public.instances
    ADD CONSTRAINT instances_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_assignment FOREIGN KEY (org_id, assignment_id) REFERENCES public.assignments(org_id, id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.interruptions
    ADD CONSTRAINT interruptions_instance FOREIGN KEY (org_id, instance_id) REFERENCES public.instances(org_id, id);

ALTER TABLE ONLY public.invoice_lines
    ADD CONSTRAINT invoice_lines_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.invoice_lines
    ADD CONSTRAINT invoice_lines_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.invoice_run_targets
    ADD CONSTRAINT invoice_run_targets_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.invoice_run_targets
    ADD CONSTRAINT invoice_run_targets_run FOREIGN KEY (run_id) REFERENCES public.invoice_runs(id);

ALTER TABLE ONLY public.invoice_taxes
    ADD CONSTRAINT invoice_taxes_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.invoice_write_offs
    ADD CONSTRAINT invoice_write_offs_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_carried_by FOREIGN KEY (org_id, carried_by) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_corrects FOREIGN KEY (org_id, corrects) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_issuer FOREIGN KEY (issuer) REFERENCES public.issuers(slug);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.invoices
    ADD CONSTRAINT invoices_replaces FOREIGN KEY (org_id, replaces) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.issuer_versions
    ADD CONSTRAINT issuer_versions_issuer FOREIGN KEY (issuer) REFERENCES public.issuers(slug);

ALTER TABLE ONLY public.join_tokens
    ADD CONSTRAINT join_tokens_pool FOREIGN KEY (pool_id) REFERENCES public.pools(id);

ALTER TABLE ONLY public.ledger_journals
    ADD CONSTRAINT ledger_journals_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.ledger_postings
    ADD CONSTRAINT ledger_postings_journal FOREIGN KEY (org_id, journal_id) REFERENCES public.ledger_journals(org_id, id);

ALTER TABLE ONLY public.line_subjects
    ADD CONSTRAINT line_subjects_line FOREIGN KEY (invoice_id, line_no) REFERENCES public.invoice_lines(invoice_id, line_no);

ALTER TABLE ONLY public.liveness_writers
    ADD CONSTRAINT liveness_writers_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.mode_changes
    ADD CONSTRAINT mode_changes_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.mode_changes
    ADD CONSTRAINT mode_changes_gpu FOREIGN KEY (gpu_id) REFERENCES public.gpus(id);

ALTER TABLE ONLY public.observed_slices
    ADD CONSTRAINT observed_slices_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_pool FOREIGN KEY (pool_id) REFERENCES public.pools(id);

ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_region FOREIGN KEY (region_id) REFERENCES public.regions(id);

ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.organization_price_books
    ADD CONSTRAINT organization_price_books_book FOREIGN KEY (price_book_id) REFERENCES public.price_books(id);

ALTER TABLE ONLY public.organization_price_books
    ADD CONSTRAINT organization_price_books_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_issuer FOREIGN KEY (issuer) REFERENCES public.issuers(slug);

ALTER TABLE ONLY public.payment_allocations
    ADD CONSTRAINT payment_allocations_invoice FOREIGN KEY (org_id, invoice_id) REFERENCES public.invoices(org_id, id);

ALTER TABLE ONLY public.payment_allocations
    ADD CONSTRAINT payment_allocations_payment FOREIGN KEY (org_id, payment_id) REFERENCES public.payments(org_id, id);

ALTER TABLE ONLY public.payment_attempts
    ADD CONSTRAINT payment_attempts_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.payment_customers
    ADD CONSTRAINT payment_customers_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.payment_disputes
    ADD CONSTRAINT payment_disputes_payment FOREIGN KEY (org_id, payment_id) REFERENCES public.payments(org_id, id);

ALTER TABLE ONLY public.payment_refunds
    ADD CONSTRAINT payment_refunds_payment FOREIGN KEY (org_id, payment_id) REFERENCES public.payments(org_id, id);

ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.period_funding
    ADD CONSTRAINT period_funding_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.placement_changes
    ADD CONSTRAINT placement_changes_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.pools
    ADD CONSTRAINT pools_cell FOREIGN KEY (cell_id) REFERENCES public.cells(id);

ALTER TABLE ONLY public.price_steps
    ADD CONSTRAINT price_steps_price FOREIGN KEY (price_version_id, sku_id, meter) REFERENCES public.prices(price_version_id, sku_id, meter);

ALTER TABLE ONLY public.price_versions
    ADD CONSTRAINT price_versions_book FOREIGN KEY (price_book_id) REFERENCES public.price_books(id);

ALTER TABLE ONLY public.prices
    ADD CONSTRAINT prices_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.prices
    ADD CONSTRAINT prices_version FOREIGN KEY (price_version_id) REFERENCES public.price_versions(id);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.promo_holds
    ADD CONSTRAINT promo_holds_grant FOREIGN KEY (org_id, grant_id) REFERENCES public.credit_grants(org_id, id);

ALTER TABLE ONLY public.quota_claims
    ADD CONSTRAINT quota_claims_instance FOREIGN KEY (org_id, instance_id) REFERENCES public.instances(org_id, id);

ALTER TABLE ONLY public.quota_usage
    ADD CONSTRAINT quota_usage_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.reconciliations
    ADD CONSTRAINT reconciliations_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.registry_logins
    ADD CONSTRAINT registry_logins_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_book FOREIGN KEY (price_book_id) REFERENCES public.price_books(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_offer FOREIGN KEY (offer_id) REFERENCES public.offers(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_region FOREIGN KEY (region_id) REFERENCES public.regions(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.reservations
    ADD CONSTRAINT reservations_version FOREIGN KEY (locked_price_version_id) REFERENCES public.price_versions(id);

ALTER TABLE ONLY public.run_proofs
    ADD CONSTRAINT run_proofs_assignment FOREIGN KEY (org_id, assignment_id) REFERENCES public.assignments(org_id, id);

ALTER TABLE ONLY public.run_proofs
    ADD CONSTRAINT run_proofs_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.slice_samples
    ADD CONSTRAINT slice_samples_host FOREIGN KEY (host_id) REFERENCES public.hosts(id);

ALTER TABLE ONLY public.spot_prices
    ADD CONSTRAINT spot_prices_region FOREIGN KEY (region_id) REFERENCES public.regions(id);

ALTER TABLE ONLY public.spot_prices
    ADD CONSTRAINT spot_prices_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.statement_lines
    ADD CONSTRAINT statement_lines_org FOREIGN KEY (matched_org) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.tax_id_checks
    ADD CONSTRAINT tax_id_checks_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.tax_tables
    ADD CONSTRAINT tax_tables_issuer FOREIGN KEY (issuer) REFERENCES public.issuers(slug);

ALTER TABLE ONLY public.top_ups
    ADD CONSTRAINT top_ups_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.usage_checkpoints
    ADD CONSTRAINT usage_checkpoints_assignment FOREIGN KEY (org_id, assignment_id) REFERENCES public.assignments(org_id, id);

ALTER TABLE ONLY public.usage_exclusions
    ADD CONSTRAINT usage_exclusions_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_book FOREIGN KEY (price_book_id) REFERENCES public.price_books(id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_project FOREIGN KEY (org_id, project_id) REFERENCES public.projects(org_id, id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_sku FOREIGN KEY (sku_id) REFERENCES public.skus(id);

ALTER TABLE ONLY public.usage_segments
    ADD CONSTRAINT usage_segments_version FOREIGN KEY (locked_price_version_id) REFERENCES public.price_versions(id);

ALTER TABLE ONLY public.wallet_claims
    ADD CONSTRAINT wallet_claims_instance FOREIGN KEY (org_id, instance_id) REFERENCES public.instances(org_id, id);

ALTER TABLE ONLY public.wallets
    ADD CONSTRAINT wallets_org FOREIGN KEY (org_id) REFERENCES public.organizations(id);

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY api_keys_org ON public.api_keys TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY api_keys_system ON public.api_keys TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.assignments ENABLE ROW LEVEL SECURITY;

CREATE POLICY assignments_org ON public.assignments TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY assignments_system ON public.assignments TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.audit_log ENABLE ROW LEVEL SECURITY;

CREATE POLICY audit_log_org ON public.audit_log TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY audit_log_system ON public.audit_log TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.billing_accounts ENABLE ROW LEVEL SECURITY;

CREATE POLICY billing_accounts_org ON public.billing_accounts TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY billing_accounts_system ON public.billing_accounts TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.billing_holds ENABLE ROW LEVEL SECURITY;

CREATE POLICY billing_holds_org ON public.billing_holds TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY billing_holds_system ON public.billing_holds TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.budget_alerts ENABLE ROW LEVEL SECURITY;

CREATE POLICY budget_alerts_org ON public.budget_alerts TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY budget_alerts_system ON public.budget_alerts TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.budgets ENABLE ROW LEVEL SECURITY;

CREATE POLICY budgets_org ON public.budgets TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY budgets_system ON public.budgets TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.claim_cells ENABLE ROW LEVEL SECURITY;

CREATE POLICY claim_cells_org ON public.claim_cells TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY claim_cells_system ON public.claim_cells TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.claim_slots ENABLE ROW LEVEL SECURITY;

CREATE POLICY claim_slots_org ON public.claim_slots TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY claim_slots_system ON public.claim_slots TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.claims ENABLE ROW LEVEL SECURITY;

CREATE POLICY claims_org ON public.claims TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY claims_system ON public.claims TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.contract_steps ENABLE ROW LEVEL SECURITY;

CREATE POLICY contract_steps_org ON public.contract_steps TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY contract_steps_system ON public.contract_steps TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.contract_terms ENABLE ROW LEVEL SECURITY;

CREATE POLICY contract_terms_org ON public.contract_terms TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY contract_terms_system ON public.contract_terms TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.contracts ENABLE ROW LEVEL SECURITY;

CREATE POLICY contracts_org ON public.contracts TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY contracts_system ON public.contracts TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.coupon_uses ENABLE ROW LEVEL SECURITY;

CREATE POLICY coupon_uses_org ON public.coupon_uses TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY coupon_uses_system ON public.coupon_uses TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.credit_grants ENABLE ROW LEVEL SECURITY;

CREATE POLICY credit_grants_org ON public.credit_grants TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY credit_grants_system ON public.credit_grants TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.credit_uses ENABLE ROW LEVEL SECURITY;

CREATE POLICY credit_uses_org ON public.credit_uses TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY credit_uses_system ON public.credit_uses TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.discrepancies ENABLE ROW LEVEL SECURITY;

CREATE POLICY discrepancies_org ON public.discrepancies TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY discrepancies_system ON public.discrepancies TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.dunnings ENABLE ROW LEVEL SECURITY;

CREATE POLICY dunnings_org ON public.dunnings TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY dunnings_system ON public.dunnings TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.events ENABLE ROW LEVEL SECURITY;

CREATE POLICY events_org ON public.events TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY events_system ON public.events TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.gpu_bindings ENABLE ROW LEVEL SECURITY;

CREATE POLICY gpu_bindings_org ON public.gpu_bindings TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY gpu_bindings_system ON public.gpu_bindings TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.host_bindings ENABLE ROW LEVEL SECURITY;

CREATE POLICY host_bindings_org ON public.host_bindings TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY host_bindings_system ON public.host_bindings TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.host_ports ENABLE ROW LEVEL SECURITY;

CREATE POLICY host_ports_org ON public.host_ports TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY host_ports_system ON public.host_ports TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.idempotency_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY idempotency_keys_org ON public.idempotency_keys TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY idempotency_keys_system ON public.idempotency_keys TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.instance_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY instance_keys_org ON public.instance_keys TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY instance_keys_system ON public.instance_keys TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.instances ENABLE ROW LEVEL SECURITY;

CREATE POLICY instances_org ON public.instances TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY instances_system ON public.instances TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.interruptions ENABLE ROW LEVEL SECURITY;

CREATE POLICY interruptions_org ON public.interruptions TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY interruptions_system ON public.interruptions TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoice_lines ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoice_lines_org ON public.invoice_lines TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoice_lines_system ON public.invoice_lines TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoice_originals ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoice_originals_org ON public.invoice_originals TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoice_originals_system ON public.invoice_originals TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoice_run_targets ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoice_run_targets_org ON public.invoice_run_targets TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoice_run_targets_system ON public.invoice_run_targets TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoice_taxes ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoice_taxes_org ON public.invoice_taxes TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoice_taxes_system ON public.invoice_taxes TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoice_write_offs ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoice_write_offs_org ON public.invoice_write_offs TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoice_write_offs_system ON public.invoice_write_offs TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.invoices ENABLE ROW LEVEL SECURITY;

CREATE POLICY invoices_org ON public.invoices TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY invoices_system ON public.invoices TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.ledger_journals ENABLE ROW LEVEL SECURITY;

CREATE POLICY ledger_journals_org ON public.ledger_journals TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY ledger_journals_system ON public.ledger_journals TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.ledger_postings ENABLE ROW LEVEL SECURITY;

CREATE POLICY ledger_postings_org ON public.ledger_postings TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY ledger_postings_system ON public.ledger_postings TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.line_subjects ENABLE ROW LEVEL SECURITY;

CREATE POLICY line_subjects_org ON public.line_subjects TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY line_subjects_system ON public.line_subjects TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.operations ENABLE ROW LEVEL SECURITY;

CREATE POLICY operations_org ON public.operations TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY operations_system ON public.operations TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.organization_price_books ENABLE ROW LEVEL SECURITY;

CREATE POLICY organization_price_books_org ON public.organization_price_books TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY organization_price_books_system ON public.organization_price_books TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.organizations ENABLE ROW LEVEL SECURITY;

CREATE POLICY organizations_org ON public.organizations TO tranche_org USING ((id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY organizations_system ON public.organizations TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payment_allocations ENABLE ROW LEVEL SECURITY;

CREATE POLICY payment_allocations_org ON public.payment_allocations TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payment_allocations_system ON public.payment_allocations TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payment_attempts ENABLE ROW LEVEL SECURITY;

CREATE POLICY payment_attempts_org ON public.payment_attempts TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payment_attempts_system ON public.payment_attempts TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payment_customers ENABLE ROW LEVEL SECURITY;

CREATE POLICY payment_customers_org ON public.payment_customers TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payment_customers_system ON public.payment_customers TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payment_disputes ENABLE ROW LEVEL SECURITY;

CREATE POLICY payment_disputes_org ON public.payment_disputes TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payment_disputes_system ON public.payment_disputes TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payment_refunds ENABLE ROW LEVEL SECURITY;

CREATE POLICY payment_refunds_org ON public.payment_refunds TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payment_refunds_system ON public.payment_refunds TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.payments ENABLE ROW LEVEL SECURITY;

CREATE POLICY payments_org ON public.payments TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY payments_system ON public.payments TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.period_funding ENABLE ROW LEVEL SECURITY;

CREATE POLICY period_funding_org ON public.period_funding TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY period_funding_system ON public.period_funding TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;

CREATE POLICY projects_org ON public.projects TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY projects_system ON public.projects TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.promo_holds ENABLE ROW LEVEL SECURITY;

CREATE POLICY promo_holds_org ON public.promo_holds TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY promo_holds_system ON public.promo_holds TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.quota_claims ENABLE ROW LEVEL SECURITY;

CREATE POLICY quota_claims_org ON public.quota_claims TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY quota_claims_system ON public.quota_claims TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.quota_usage ENABLE ROW LEVEL SECURITY;

CREATE POLICY quota_usage_org ON public.quota_usage TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY quota_usage_system ON public.quota_usage TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.reconciliations ENABLE ROW LEVEL SECURITY;

CREATE POLICY reconciliations_org ON public.reconciliations TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY reconciliations_system ON public.reconciliations TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.registry_logins ENABLE ROW LEVEL SECURITY;

CREATE POLICY registry_logins_org ON public.registry_logins TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY registry_logins_system ON public.registry_logins TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.reservations ENABLE ROW LEVEL SECURITY;

CREATE POLICY reservations_org ON public.reservations TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY reservations_system ON public.reservations TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.run_proofs ENABLE ROW LEVEL SECURITY;

CREATE POLICY run_proofs_org ON public.run_proofs TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY run_proofs_system ON public.run_proofs TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.slice_samples ENABLE ROW LEVEL SECURITY;

CREATE POLICY slice_samples_org ON public.slice_samples TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY slice_samples_system ON public.slice_samples TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.tax_id_checks ENABLE ROW LEVEL SECURITY;

CREATE POLICY tax_id_checks_org ON public.tax_id_checks TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY tax_id_checks_system ON public.tax_id_checks TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.top_ups ENABLE ROW LEVEL SECURITY;

CREATE POLICY top_ups_org ON public.top_ups TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY top_ups_system ON public.top_ups TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.usage_checkpoints ENABLE ROW LEVEL SECURITY;

CREATE POLICY usage_checkpoints_org ON public.usage_checkpoints TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY usage_checkpoints_system ON public.usage_checkpoints TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.usage_exclusions ENABLE ROW LEVEL SECURITY;

CREATE POLICY usage_exclusions_org ON public.usage_exclusions TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY usage_exclusions_system ON public.usage_exclusions TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.usage_segments ENABLE ROW LEVEL SECURITY;

CREATE POLICY usage_segments_org ON public.usage_segments TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY usage_segments_system ON public.usage_segments TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.wallet_claims ENABLE ROW LEVEL SECURITY;

CREATE POLICY wallet_claims_org ON public.wallet_claims TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY wallet_claims_system ON public.wallet_claims TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

ALTER TABLE public.wallets ENABLE ROW LEVEL SECURITY;

CREATE POLICY wallets_org ON public.wallets TO tranche_org USING ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid)) WITH CHECK ((org_id = (NULLIF(( SELECT current_setting('tranche.org_id'::text, true) AS current_setting), ''::text))::uuid));

CREATE POLICY wallets_system ON public.wallets TO tranche_owner, tranche_system USING (true) WITH CHECK (true);

GRANT USAGE ON SCHEMA public TO tranche;
GRANT USAGE ON SCHEMA public TO tranche_org;
GRANT USAGE ON SCHEMA public TO tranche_system;

GRANT ALL ON FUNCTION public.biz_at(real_at timestamp with time zone) TO tranche_org;
GRANT ALL ON FUNCTION public.biz_at(real_at timestamp with time zone) TO tranche_system;

GRANT ALL ON FUNCTION public.biz_now() TO tranche_org;
GRANT ALL ON FUNCTION public.biz_now() TO tranche_system;

GRANT ALL ON FUNCTION public.claim_slots_cells() TO tranche_org;
GRANT ALL ON FUNCTION public.claim_slots_cells() TO tranche_system;

GRANT ALL ON FUNCTION public.claim_slots_unbind() TO tranche_org;
GRANT ALL ON FUNCTION public.claim_slots_unbind() TO tranche_system;

GRANT ALL ON FUNCTION public.claims_count_host() TO tranche_org;
GRANT ALL ON FUNCTION public.claims_count_host() TO tranche_system;

GRANT ALL ON FUNCTION public.claims_unbind() TO tranche_org;
GRANT ALL ON FUNCTION public.claims_unbind() TO tranche_system;

GRANT ALL ON FUNCTION public.close_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_at timestamp with time zone, p_reason text, p_party text) TO tranche_org;
GRANT ALL ON FUNCTION public.close_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_at timestamp with time zone, p_reason text, p_party text) TO tranche_system;

GRANT ALL ON FUNCTION public.exclude_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_cause text, p_ref uuid) TO tranche_org;
GRANT ALL ON FUNCTION public.exclude_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_cause text, p_ref uuid) TO tranche_system;

REVOKE ALL ON FUNCTION public.immutable_table(t text) FROM PUBLIC;

GRANT ALL ON FUNCTION public.invoice_parts_guard() TO tranche_org;
GRANT ALL ON FUNCTION public.invoice_parts_guard() TO tranche_system;

GRANT ALL ON FUNCTION public.invoices_guard() TO tranche_org;
GRANT ALL ON FUNCTION public.invoices_guard() TO tranche_system;

GRANT ALL ON FUNCTION public.ledger_journal_balances() TO tranche_org;
GRANT ALL ON FUNCTION public.ledger_journal_balances() TO tranche_system;

GRANT ALL ON FUNCTION public.ledger_journal_closed() TO tranche_org;
GRANT ALL ON FUNCTION public.ledger_journal_closed() TO tranche_system;

REVOKE ALL ON FUNCTION public.lift_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_causes text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.lift_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_causes text[]) TO tranche_system;

GRANT ALL ON FUNCTION public.lock_meter(p_subject uuid, p_meter text) TO tranche_org;
GRANT ALL ON FUNCTION public.lock_meter(p_subject uuid, p_meter text) TO tranche_system;

GRANT ALL ON FUNCTION public.month_end(at timestamp with time zone) TO tranche_org;
GRANT ALL ON FUNCTION public.month_end(at timestamp with time zone) TO tranche_system;

GRANT ALL ON FUNCTION public.month_of(at timestamp with time zone) TO tranche_org;
GRANT ALL ON FUNCTION public.month_of(at timestamp with time zone) TO tranche_system;

GRANT ALL ON FUNCTION public.organizations_due(p_period text) TO tranche_system;

GRANT ALL ON FUNCTION public.quota_claims_count() TO tranche_org;
GRANT ALL ON FUNCTION public.quota_claims_count() TO tranche_system;

GRANT ALL ON FUNCTION public.refuse_change() TO tranche_org;
GRANT ALL ON FUNCTION public.refuse_change() TO tranche_system;

GRANT ALL ON FUNCTION public.seal_usage(p_org uuid, p_subject uuid, p_meter text, p_until timestamp with time zone) TO tranche_org;
GRANT ALL ON FUNCTION public.seal_usage(p_org uuid, p_subject uuid, p_meter text, p_until timestamp with time zone) TO tranche_system;

REVOKE ALL ON FUNCTION public.tenant_table(t text) FROM PUBLIC;

GRANT ALL ON FUNCTION public.usage_close_no(p_org uuid, p_at timestamp with time zone) TO tranche_org;
GRANT ALL ON FUNCTION public.usage_close_no(p_org uuid, p_at timestamp with time zone) TO tranche_system;

GRANT ALL ON FUNCTION public.usage_wall(p_org uuid) TO tranche_org;
GRANT ALL ON FUNCTION public.usage_wall(p_org uuid) TO tranche_system;

GRANT ALL ON FUNCTION public.uuid_v7() TO tranche_org;
GRANT ALL ON FUNCTION public.uuid_v7() TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.api_keys TO tranche_org;

GRANT UPDATE(revoked_at) ON TABLE public.api_keys TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.api_keys TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.approval_rules TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.approvals TO tranche_system;

GRANT UPDATE(state) ON TABLE public.approvals TO tranche_system;

GRANT UPDATE(decided_by) ON TABLE public.approvals TO tranche_system;

GRANT UPDATE(decided_at) ON TABLE public.approvals TO tranche_system;

GRANT UPDATE(executed_at) ON TABLE public.approvals TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.approvals TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.assignments TO tranche_system;
GRANT SELECT ON TABLE public.assignments TO tranche_org;

GRANT UPDATE(fence) ON TABLE public.assignments TO tranche_org;

GRANT UPDATE(state) ON TABLE public.assignments TO tranche_org;

GRANT UPDATE(releasing_at) ON TABLE public.assignments TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.assignments TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.audit_log TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.audit_log TO tranche_org;

GRANT USAGE ON SEQUENCE public.audit_log_id_seq TO tranche_system;
GRANT USAGE ON SEQUENCE public.audit_log_id_seq TO tranche_org;

GRANT SELECT ON TABLE public.usage_exclusions TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.usage_exclusions TO tranche_system;

GRANT UPDATE(lifted_at) ON TABLE public.usage_exclusions TO tranche_system;

GRANT UPDATE(lifted_close_no) ON TABLE public.usage_exclusions TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.usage_segments TO tranche_system;
GRANT SELECT ON TABLE public.usage_segments TO tranche_org;

GRANT UPDATE(close_reason) ON TABLE public.usage_segments TO tranche_org;

GRANT UPDATE(fault_party) ON TABLE public.usage_segments TO tranche_org;

GRANT UPDATE(during) ON TABLE public.usage_segments TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.usage_segments TO tranche_org;

GRANT SELECT ON TABLE public.billable_segments TO tranche_org;
GRANT SELECT ON TABLE public.billable_segments TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.billing_accounts TO tranche_system;
GRANT SELECT ON TABLE public.billing_accounts TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.billing_holds TO tranche_system;
GRANT SELECT ON TABLE public.billing_holds TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budget_alerts TO tranche_system;
GRANT SELECT ON TABLE public.budget_alerts TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.budgets TO tranche_system;
GRANT SELECT ON TABLE public.budgets TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.business_clock TO tranche_system;
GRANT SELECT ON TABLE public.business_clock TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.cells TO tranche_system;
GRANT SELECT ON TABLE public.cells TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.claim_cells TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.claim_slots TO tranche_system;
GRANT SELECT ON TABLE public.claim_slots TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.claims TO tranche_system;
GRANT SELECT ON TABLE public.claims TO tranche_org;

GRANT SELECT ON TABLE public.contract_steps TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.contract_steps TO tranche_system;

GRANT SELECT ON TABLE public.contract_terms TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.contract_terms TO tranche_system;

GRANT UPDATE(during) ON TABLE public.contract_terms TO tranche_system;

GRANT UPDATE(cancelled_at) ON TABLE public.contract_terms TO tranche_system;

GRANT SELECT ON TABLE public.contracts TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.contracts TO tranche_system;

GRANT UPDATE(during) ON TABLE public.contracts TO tranche_system;

GRANT UPDATE(cancelled_at) ON TABLE public.contracts TO tranche_system;

GRANT UPDATE(ended_by) ON TABLE public.contracts TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.contracts TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.coupon_uses TO tranche_system;
GRANT SELECT ON TABLE public.coupon_uses TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.coupons TO tranche_system;

GRANT UPDATE(uses) ON TABLE public.coupons TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.credit_grants TO tranche_system;
GRANT SELECT ON TABLE public.credit_grants TO tranche_org;

GRANT UPDATE(remaining_minor) ON TABLE public.credit_grants TO tranche_system;

GRANT UPDATE(lapsed_at) ON TABLE public.credit_grants TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.credit_uses TO tranche_system;
GRANT SELECT ON TABLE public.credit_uses TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.discrepancies TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.dunning_schedules TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.dunnings TO tranche_system;
GRANT SELECT ON TABLE public.dunnings TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.events TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.events TO tranche_org;

GRANT USAGE ON SEQUENCE public.events_id_seq TO tranche_system;
GRANT USAGE ON SEQUENCE public.events_id_seq TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.gpu_bindings TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.gpu_costs TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.gpu_hours TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.gpu_inventories TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.gpus TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_bindings TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_desired TO tranche_system;
GRANT INSERT ON TABLE public.host_desired TO tranche_org;

GRANT USAGE ON SEQUENCE public.host_desired_id_seq TO tranche_system;
GRANT USAGE ON SEQUENCE public.host_desired_id_seq TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_liveness TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_ports TO tranche_system;
GRANT SELECT ON TABLE public.host_ports TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_sessions TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.host_spools TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.hosts TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.idempotency_keys TO tranche_org;

GRANT UPDATE(status) ON TABLE public.idempotency_keys TO tranche_org;

GRANT UPDATE(headers) ON TABLE public.idempotency_keys TO tranche_org;

GRANT UPDATE(body) ON TABLE public.idempotency_keys TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.installations TO tranche_system;
GRANT SELECT ON TABLE public.installations TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.instance_keys TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.instance_keys TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.instances TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.instances TO tranche_org;

GRANT UPDATE(ssh_keys) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(desired) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(run) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(generation) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(converged_generation) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(attempts) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(recovering) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(excluded_hosts) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(next_wake_at) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(deadline_at) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(status) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(status_code) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(status_detail) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(ever_ran) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(operation_id) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(intent_at) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(started_at) ON TABLE public.instances TO tranche_org;

GRANT UPDATE(deleted_at) ON TABLE public.instances TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.interruptions TO tranche_system;
GRANT SELECT ON TABLE public.interruptions TO tranche_org;

GRANT UPDATE(to_at) ON TABLE public.interruptions TO tranche_org;

GRANT SELECT,INSERT,DELETE ON TABLE public.invoice_lines TO tranche_system;
GRANT SELECT ON TABLE public.invoice_lines TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.invoice_numbers TO tranche_system;

GRANT SELECT ON TABLE public.invoice_originals TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.invoice_originals TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.invoice_run_targets TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.invoice_runs TO tranche_system;

GRANT SELECT,INSERT,DELETE ON TABLE public.invoice_taxes TO tranche_system;
GRANT SELECT ON TABLE public.invoice_taxes TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.invoice_write_offs TO tranche_system;
GRANT SELECT ON TABLE public.invoice_write_offs TO tranche_org;

GRANT SELECT,INSERT,DELETE ON TABLE public.invoices TO tranche_system;
GRANT SELECT ON TABLE public.invoices TO tranche_org;

GRANT UPDATE(live) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(status) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(series) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(number) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(finalized_at) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(due_on) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(credited_minor) ON TABLE public.invoices TO tranche_system;

GRANT UPDATE(carried_by) ON TABLE public.invoices TO tranche_system;

GRANT SELECT ON TABLE public.issuer_versions TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.issuer_versions TO tranche_system;

GRANT SELECT ON TABLE public.issuers TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.issuers TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.join_tokens TO tranche_system;

GRANT SELECT,UPDATE ON TABLE public.ledger_books TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.ledger_journals TO tranche_system;
GRANT SELECT ON TABLE public.ledger_journals TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.ledger_postings TO tranche_system;
GRANT SELECT ON TABLE public.ledger_postings TO tranche_org;

GRANT SELECT,INSERT,DELETE ON TABLE public.line_subjects TO tranche_system;
GRANT SELECT ON TABLE public.line_subjects TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.liveness_writers TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.mode_changes TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.month_closes TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.observed_slices TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.offers TO tranche_system;
GRANT SELECT ON TABLE public.offers TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.operations TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.operations TO tranche_org;

GRANT UPDATE(status) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(step) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(percent) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(problem) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(superseded_by) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(finished_at) ON TABLE public.operations TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.operations TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.operator_keys TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.organization_price_books TO tranche_system;
GRANT SELECT ON TABLE public.organization_price_books TO tranche_org;

GRANT UPDATE(during) ON TABLE public.organization_price_books TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.organizations TO tranche_system;
GRANT SELECT ON TABLE public.organizations TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.outbox TO tranche_system;
GRANT INSERT ON TABLE public.outbox TO tranche_org;

GRANT USAGE ON SEQUENCE public.outbox_id_seq TO tranche_system;
GRANT USAGE ON SEQUENCE public.outbox_id_seq TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.payment_allocations TO tranche_system;
GRANT SELECT ON TABLE public.payment_allocations TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.payment_attempts TO tranche_system;
GRANT SELECT ON TABLE public.payment_attempts TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.payment_customers TO tranche_system;
GRANT SELECT ON TABLE public.payment_customers TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.payment_disputes TO tranche_system;
GRANT SELECT ON TABLE public.payment_disputes TO tranche_org;

GRANT UPDATE(fee_minor) ON TABLE public.payment_disputes TO tranche_system;

GRANT UPDATE(state) ON TABLE public.payment_disputes TO tranche_system;

GRANT UPDATE(closed_at) ON TABLE public.payment_disputes TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.payment_disputes TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.payment_refunds TO tranche_system;
GRANT SELECT ON TABLE public.payment_refunds TO tranche_org;

GRANT UPDATE(provider_ref) ON TABLE public.payment_refunds TO tranche_system;

GRANT UPDATE(state) ON TABLE public.payment_refunds TO tranche_system;

GRANT UPDATE(detail) ON TABLE public.payment_refunds TO tranche_system;

GRANT UPDATE(sends) ON TABLE public.payment_refunds TO tranche_system;

GRANT UPDATE(next_try_at) ON TABLE public.payment_refunds TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.payment_refunds TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.payments TO tranche_system;
GRANT SELECT ON TABLE public.payments TO tranche_org;

GRANT UPDATE(fee_minor) ON TABLE public.payments TO tranche_system;

GRANT UPDATE(fee_currency) ON TABLE public.payments TO tranche_system;

GRANT UPDATE(allocated_minor) ON TABLE public.payments TO tranche_system;

GRANT UPDATE(refunded_minor) ON TABLE public.payments TO tranche_system;

GRANT UPDATE(charged_back_minor) ON TABLE public.payments TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.payments TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.period_funding TO tranche_system;
GRANT SELECT ON TABLE public.period_funding TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.placement_changes TO tranche_system;

GRANT USAGE ON SEQUENCE public.placement_changes_id_seq TO tranche_system;
GRANT USAGE ON SEQUENCE public.placement_changes_id_seq TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.pools TO tranche_system;
GRANT SELECT ON TABLE public.pools TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.price_books TO tranche_system;
GRANT SELECT ON TABLE public.price_books TO tranche_org;

GRANT SELECT ON TABLE public.price_steps TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.price_steps TO tranche_system;

GRANT SELECT,INSERT ON TABLE public.price_versions TO tranche_system;
GRANT SELECT ON TABLE public.price_versions TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.prices TO tranche_system;
GRANT SELECT ON TABLE public.prices TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.projects TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.projects TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.promo_holds TO tranche_system;
GRANT SELECT ON TABLE public.promo_holds TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.provider_events TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.quota_claims TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.quota_claims TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.quota_usage TO tranche_system;
GRANT SELECT ON TABLE public.quota_usage TO tranche_org;

GRANT UPDATE(org_id) ON TABLE public.quota_usage TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.reconciliations TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.regions TO tranche_system;
GRANT SELECT ON TABLE public.regions TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.registry_logins TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.registry_logins TO tranche_org;

GRANT UPDATE(username) ON TABLE public.registry_logins TO tranche_org;

GRANT UPDATE(password_sealed) ON TABLE public.registry_logins TO tranche_org;

GRANT UPDATE(generation) ON TABLE public.registry_logins TO tranche_org;

GRANT UPDATE(revision) ON TABLE public.registry_logins TO tranche_org;

GRANT UPDATE(updated_at) ON TABLE public.registry_logins TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.reservations TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.reservations TO tranche_system;

GRANT UPDATE(during) ON TABLE public.reservations TO tranche_system;

GRANT UPDATE(next_at) ON TABLE public.reservations TO tranche_system;

GRANT UPDATE(cancelled_at) ON TABLE public.reservations TO tranche_system;

GRANT UPDATE(ended_by) ON TABLE public.reservations TO tranche_system;

GRANT UPDATE(revision) ON TABLE public.reservations TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_proofs TO tranche_system;
GRANT SELECT ON TABLE public.run_proofs TO tranche_org;

GRANT SELECT,INSERT ON TABLE public.skus TO tranche_system;
GRANT SELECT ON TABLE public.skus TO tranche_org;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.slice_samples TO tranche_system;
GRANT SELECT ON TABLE public.slice_samples TO tranche_org;

GRANT SELECT ON TABLE public.spot_prices TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.spot_prices TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.ssh_authorities TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.statement_lines TO tranche_system;

GRANT SELECT ON TABLE public.tax_id_checks TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.tax_id_checks TO tranche_system;

GRANT SELECT ON TABLE public.tax_tables TO tranche_org;
GRANT SELECT,INSERT ON TABLE public.tax_tables TO tranche_system;

GRANT SELECT,INSERT,UPDATE ON TABLE public.top_ups TO tranche_system;
GRANT SELECT ON TABLE public.top_ups TO tranche_org;

GRANT SELECT ON TABLE public.usage_checkpoints TO tranche_org;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.usage_checkpoints TO tranche_system;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.wallet_claims TO tranche_system;
GRANT SELECT,INSERT ON TABLE public.wallet_claims TO tranche_org;

GRANT UPDATE(amount) ON TABLE public.wallet_claims TO tranche_org;

GRANT SELECT,INSERT,UPDATE ON TABLE public.wallets TO tranche_system;
GRANT SELECT ON TABLE public.wallets TO tranche_org;

GRANT UPDATE(next_tick_at) ON TABLE public.wallets TO tranche_org;

