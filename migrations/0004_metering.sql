-- Metering: no segment crosses a month, what is not billed after all, hourly
-- checkpoints, reconciliation and its discrepancies.
-- +goose Up

-- +goose StatementBegin
create function month_end(at timestamptz) returns timestamptz language sql immutable parallel safe as $$
  select (date_trunc('month', at at time zone 'UTC') + interval '1 month') at time zone 'UTC'
$$;
-- +goose StatementEnd
-- +goose StatementBegin
create function month_of(at timestamptz) returns text language sql immutable parallel safe as $$
  select (extract(year from at at time zone 'UTC') * 100 + extract(month from at at time zone 'UTC'))::int::text
$$;
-- +goose StatementEnd
-- +goose StatementBegin
create function uuid_v7() returns uuid language sql volatile parallel safe as $$
  select encode(set_byte(b, 6, (get_byte(b, 6) & 15) | 112), 'hex')::uuid
  from (select substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
    || substring(uuid_send(gen_random_uuid()) from 7) as b) as x
$$;
-- +goose StatementEnd

alter table usage_segments add constraint usage_segments_one_month check (upper_inf(during) or upper(during) <= month_end(lower(during)));
alter table usage_segments add constraint usage_segments_month check (replace(billing_period, '-', '') = month_of(lower(during)));
create index usage_segments_open on usage_segments (lower(during)) where upper_inf(during);

-- Time of a segment that is not billed after all: its end was known later than the
-- segment, its proof contradicts it, or it was free. Segments never shrink; this is
-- how. close_no and lifted_close_no say after which close each was accepted, so that
-- a closed period can be read as it was.
create table usage_exclusions (
  org_id uuid not null constraint usage_exclusions_org references organizations (id),
  id uuid not null,
  subject_id uuid not null,
  meter text not null,
  run integer not null,
  during tstzrange not null,
  cause text not null,
  ref uuid,
  close_no integer not null default 0,
  recorded_at timestamptz not null default clock_timestamp(),
  lifted_at timestamptz,
  lifted_close_no integer,
  primary key (org_id, id),
  constraint usage_exclusions_bounds check (not isempty(during) and lower_inc(during) and not upper_inc(during)
    and not lower_inf(during) and not upper_inf(during)),
  constraint usage_exclusions_lifted check ((lifted_at is null) = (lifted_close_no is null)),
  constraint usage_exclusions_no_overlap exclude using gist
    (org_id with =, subject_id with =, meter with =, during with &&) where (lifted_at is null)
);
create index usage_exclusions_subject on usage_exclusions (org_id, subject_id, meter);
select tenant_table('usage_exclusions');
grant select on usage_exclusions to tranche_org, tranche_system;
grant insert, update (lifted_at, lifted_close_no) on usage_exclusions to tranche_system;

-- What is billed: segments without what is excluded now. A piece after a hole has an
-- id made of the segment's and its place.
create view billable_segments with (security_invoker = true) as
select u.org_id, u.id, u.id as segment_id, u.subject_kind, u.subject_id, u.project_id, u.meter, u.start_id, u.seq, u.run, u.assignment_id,
  u.units, u.sku_id, u.sku_snapshot, u.price_book_id, u.locked_price_version_id, u.pricing_kind, u.region, u.isolation_gpu,
  u.isolation_host, u.subject_name, u.labels, u.open_reason, u.close_reason, u.fault_party, u.simulated, u.recorded_at,
  u.billing_period, u.close_no, u.during
from usage_segments u
where not exists (select 1 from usage_exclusions x where x.org_id = u.org_id and x.subject_id = u.subject_id and x.meter = u.meter
  and x.lifted_at is null and x.during && u.during)
union all
select u.org_id, case when p.n = 1 then u.id else md5(u.id::text || p.n)::uuid end, u.id,
  u.subject_kind, u.subject_id, u.project_id, u.meter, u.start_id, u.seq, u.run, u.assignment_id,
  u.units, u.sku_id, u.sku_snapshot, u.price_book_id, u.locked_price_version_id, u.pricing_kind, u.region, u.isolation_gpu,
  u.isolation_host, u.subject_name, u.labels, u.open_reason, u.close_reason, u.fault_party, u.simulated, u.recorded_at,
  u.billing_period, u.close_no, p.during
from (select org_id, subject_id, meter, range_agg(during) as gone from usage_exclusions where lifted_at is null group by 1, 2, 3) x
join usage_segments u on u.org_id = x.org_id and u.subject_id = x.subject_id and u.meter = x.meter and u.during && x.gone
cross join lateral unnest(tstzmultirange(u.during) - x.gone) with ordinality as p(during, n);
grant select on billable_segments to tranche_org, tranche_system;

-- One writer of a meter at a time, until the transaction ends.
-- +goose StatementBegin
create function lock_meter(p_subject uuid, p_meter text) returns void language sql volatile as $$
  select pg_advisory_xact_lock(hashtextextended('tranche usage ' || p_subject || p_meter, 0))
$$;
-- +goose StatementEnd

-- The functions below run as the owner, because a tenant's transaction may end usage
-- but not write it: this is the wall in the place of the row policies.
-- +goose StatementBegin
create function usage_wall(p_org uuid) returns void language plpgsql as $$
begin
  if coalesce(current_setting('tranche.org_id', true), '') not in ('', p_org::text) then
    raise exception 'usage of another organization' using errcode = 'insufficient_privilege';
  end if;
end $$;
-- +goose StatementEnd

-- The close that what is accepted now about an instant belongs to: 0 in time. A
-- finalize that is on its way is waited for.
-- +goose StatementBegin
create function usage_close_no(p_org uuid, p_at timestamptz) returns integer language plpgsql volatile as $$
declare n integer;
begin
  select case when p_at < closed_until then close_no else 0 end into n from billing_accounts where org_id = p_org for share;
  return coalesce(n, 0);
end $$;
-- +goose StatementEnd

-- Takes what is billed of a run in a range back; 0 for the run means any.
-- +goose StatementBegin
create function exclude_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_cause text, p_ref uuid)
returns integer language plpgsql security definer set search_path = public, pg_temp as $$
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
-- +goose StatementEnd

-- Bills again what was excluded in a range for one of the causes; 0 for the run means any.
-- +goose StatementBegin
create function lift_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_during tstzrange, p_causes text[])
returns integer language plpgsql security definer set search_path = public, pg_temp as $$
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
-- +goose StatementEnd

-- The seal: what runs over the end of a month goes on in a new row, with the same
-- start and price lock, and the organization's price book of the new month.
-- +goose StatementBegin
create function seal_usage(p_org uuid, p_subject uuid, p_meter text, p_until timestamptz)
returns integer language plpgsql security definer set search_path = public, pg_temp as $$
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
-- +goose StatementEnd

-- Ends what runs on a meter, one microsecond after its start at the earliest, and
-- takes back what is billed of the same run later than that. A run of 0 is the newest.
-- True: something was open.
-- +goose StatementBegin
create function close_usage(p_org uuid, p_subject uuid, p_meter text, p_run integer, p_at timestamptz, p_reason text, p_party text)
returns boolean language plpgsql security definer set search_path = public, pg_temp as $$
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
-- +goose StatementEnd
grant execute on function month_end, month_of, uuid_v7, lock_meter, usage_wall, usage_close_no, seal_usage, close_usage,
  exclude_usage, lift_usage to tranche_org, tranche_system;
revoke execute on function lift_usage from public, tranche_org;

-- What was proven of a run, hour by hour: evidence, never a bound of a segment.
create table usage_checkpoints (
  org_id uuid not null,
  assignment_id uuid not null,
  instance_id uuid not null,
  run integer not null,
  hour timestamptz not null,
  from_at timestamptz not null,
  to_at timestamptz not null,
  primary key (org_id, assignment_id, hour),
  constraint usage_checkpoints_hour check (from_at >= hour and to_at <= hour + interval '1 hour' and from_at < to_at),
  constraint usage_checkpoints_assignment foreign key (org_id, assignment_id) references assignments (org_id, id)
);
create index usage_checkpoints_instance on usage_checkpoints (org_id, instance_id, hour);
create index usage_checkpoints_age on usage_checkpoints (hour);
select tenant_table('usage_checkpoints');
grant select on usage_checkpoints to tranche_org, tranche_system;
grant insert, update, delete on usage_checkpoints to tranche_system;

create index run_proofs_ended on run_proofs (ended_at);

-- How long a GPU could have been sold in each hour, business time, as far as it was
-- looked at: observed_us beside it says how much that is.
create table gpu_hours (
  gpu_id uuid not null constraint gpu_hours_gpu references gpus,
  hour timestamptz not null,
  host_id uuid not null,
  model text not null,
  mode text not null,
  observed_us bigint not null default 0,
  sellable_us bigint not null default 0,
  observed_at timestamptz not null,
  primary key (gpu_id, hour, mode),
  constraint gpu_hours_bounds check (sellable_us >= 0 and sellable_us <= observed_us and observed_us <= 3600000000)
);
create index gpu_hours_age on gpu_hours (hour);
grant select, insert, update, delete on gpu_hours to tranche_system;

-- One row per instance and day: what was billed beside what was proven, microseconds.
create table reconciliations (
  org_id uuid not null constraint reconciliations_org references organizations (id),
  day timestamptz not null,
  subject_id uuid not null,
  meter text not null,
  billed_us bigint not null,
  proven_us bigint not null,
  over_us bigint not null,
  under_us bigint not null,
  leakage_us bigint not null,
  reasons jsonb not null default '{}',
  recorded_at timestamptz not null default clock_timestamp(),
  primary key (org_id, day, subject_id, meter)
);
create index reconciliations_day on reconciliations (day);
select tenant_table('reconciliations');
grant select, insert, update on reconciliations to tranche_system;

create table discrepancies (
  org_id uuid not null constraint discrepancies_org references organizations (id),
  id uuid not null,
  subject_id uuid not null,
  subject_name text not null,
  meter text not null,
  run integer not null,
  billing_period text not null,
  during tstzrange not null,
  evidence jsonb not null default '{}',
  status text not null default 'open' constraint discrepancies_status check (status in ('open', 'resolved')),
  verdict text not null default '' constraint discrepancies_verdict check (verdict in ('', 'billed', 'proven')),
  reason text not null default '',
  resolved_by text not null default '',
  opened_at timestamptz not null,
  resolved_at timestamptz,
  primary key (org_id, id),
  constraint discrepancies_once unique (org_id, subject_id, meter, during),
  constraint discrepancies_resolved check ((status = 'resolved') = (resolved_at is not null and verdict <> '' and reason <> ''))
);
create index discrepancies_open on discrepancies (org_id, billing_period) where status = 'open';
create index discrepancies_list on discrepancies (id desc);
select tenant_table('discrepancies');
grant select, insert, update on discrepancies to tranche_system;
