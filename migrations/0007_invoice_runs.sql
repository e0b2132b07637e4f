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
