-- Invoice runs as work that survives its workers: one row an organization.
-- +goose Up
alter table invoice_runs
  add column next_wake_at timestamptz,
  add constraint invoice_runs_status check (status in ('running', 'succeeded', 'failed'));
create index invoice_runs_wake on invoice_runs (next_wake_at) where next_wake_at is not null;
create unique index invoice_runs_one_running on invoice_runs (period) where status = 'running';
create table invoice_run_targets (
  run_id uuid not null constraint invoice_run_targets_run references invoice_runs,
  org_id uuid not null constraint invoice_run_targets_org references organizations (id),
  status text not null default 'pending' constraint invoice_run_targets_status check (status in ('pending', 'done', 'failed')),
  attempts integer not null default 0,
  problem_code text not null default '',
  problem_detail text not null default '',
  finished_at timestamptz,
  primary key (run_id, org_id)
);
create index invoice_run_targets_pending on invoice_run_targets (run_id, attempts, org_id) where status = 'pending';
select tenant_table('invoice_run_targets');
grant select, insert, update on invoice_run_targets to tranche_system;

-- Which organizations a month still owes a document: those with usage that no document
-- of a late enough close has billed, with an agreed least amount, or with an amount
-- that was carried on for a year.
-- +goose StatementBegin
create function organizations_due(p_period text) returns setof uuid language sql stable as $$
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
-- +goose StatementEnd
grant execute on function organizations_due to tranche_system;
