-- Invoice runs: what is left to do, and what became of it.

-- name: InsertRunTargets :execrows
insert into invoice_run_targets (run_id, org_id)
select @run_id, o.id from organizations o where o.id in (select organizations_due(@period::text))
on conflict do nothing;

-- name: AnyOrganizationDue :one
select exists(select organizations_due(@period::text));

-- name: RunningInvoiceRun :one
select id from invoice_runs where period = @period and status = 'running';

-- name: WakeInvoiceRunAt :exec
update invoice_runs set next_wake_at = sqlc.narg('wake_at')::timestamptz where id = @run_id and status = 'running';

-- name: InvoiceRunForWork :one
select id, period, status from invoice_runs where id = @run_id;

-- name: PendingRunTargets :many
select org_id, attempts from invoice_run_targets where run_id = @run_id and status = 'pending'
order by attempts, org_id limit @size;

-- name: SettleRunTarget :exec
update invoice_run_targets set status = @status, attempts = attempts + 1, problem_code = @problem_code, problem_detail = @problem_detail,
  finished_at = case when @status = 'pending' then null else clock_timestamp() end
where run_id = @run_id and org_id = @org_id and status = 'pending';

-- name: FirstFailedRunTarget :one
select problem_code, problem_detail from invoice_run_targets where run_id = @run_id and status = 'failed' order by org_id limit 1;

-- name: FinishInvoiceRun :execrows
update invoice_runs set status = @status, finished_at = biz_now(), result = @result, next_wake_at = null
where id = @run_id and status = 'running';

-- name: InvoiceRunProgress :one
select count(*) filter (where status = 'pending')::bigint as pending, count(*) filter (where status = 'done')::bigint as done,
  count(*) filter (where status = 'failed')::bigint as failed
from invoice_run_targets where run_id = @run_id;

-- name: SweepInvoiceRuns :many
update invoice_runs r set next_wake_at = clock_timestamp() + interval '30 seconds'
from (
  select id from invoice_runs where next_wake_at <= clock_timestamp()
  order by next_wake_at limit @size for no key update skip locked) d
where r.id = d.id
returning r.id;
