-- Budgets, and what operators pay for GPUs.

-- name: InsertBudget :exec
insert into budgets (org_id, id, name, scope, project_id, key_id, amount_minor, currency, thresholds, hard, created_by, created_at)
values (@org_id, @budget_id, @name, @scope, sqlc.narg('project_id'), sqlc.narg('key_id'), @amount_minor, @currency, @thresholds, @hard, @created_by, biz_now());

-- name: ListBudgets :many
select * from budgets where org_id = @org_id order by id;

-- name: GetBudget :one
select * from budgets where org_id = @org_id and id = @budget_id;

-- name: UpdateBudget :execrows
update budgets set name = @name, amount_minor = @amount_minor, thresholds = @thresholds, hard = @hard where org_id = @org_id and id = @budget_id;

-- name: DeleteBudget :execrows
delete from budgets where org_id = @org_id and id = @budget_id;

-- name: SaveSpent :exec
update budgets set period = @period, spent_minor = @spent_minor, checked_at = @at::timestamptz where org_id = @org_id and id = @budget_id;

-- name: BudgetAlerts :many
select budget_id, threshold from budget_alerts where org_id = @org_id and period = @period order by budget_id, threshold;

-- name: InsertBudgetAlert :execrows
insert into budget_alerts (org_id, budget_id, period, threshold, spent_minor, at)
values (@org_id, @budget_id, @period, @threshold, @spent_minor, @at::timestamptz) on conflict do nothing;

-- name: InsertGPUCost :exec
insert into gpu_costs (gpu_model, currency, effective_from, per_hour, set_by)
values (@gpu_model, @currency, @effective_from::timestamptz, cast(@per_hour::text as numeric), @set_by);

-- name: GPUCosts :many
-- What was in force at an instant.
select distinct on (gpu_model, currency) gpu_model, currency, effective_from, per_hour::text as per_hour
from gpu_costs where effective_from <= @at::timestamptz order by gpu_model, currency, effective_from desc;

-- name: RevenueLines :many
-- Net of the documents of a month, by what was sold; a credit note takes off what its document had.
select i.currency, i.org_id, o.name as org_name, l.component, l.sku_code, coalesce(s.gpu_model, '')::text as gpu_model,
  coalesce(s.mode, '')::text as mode, l.meter, sum(l.amount_minor)::bigint as amount_minor
from invoice_lines l
join invoices i on i.org_id = l.org_id and i.id = l.invoice_id
join organizations o on o.id = i.org_id
left join skus s on s.id = l.sku_id
where i.period = @period and i.status = 'open' and i.kind in ('usage', 'credit_note')
group by 1, 2, 3, 4, 5, 6, 7, 8 order by 1, 3, 4, 5, 8;

-- name: SKUModels :many
select id, code, gpu_model, mode from skus where id = any(@sku_ids::uuid[]);

-- name: UnbilledOrganizations :many
-- Who used something in a month and has no document of it.
select distinct u.org_id, o.name from usage_segments u join organizations o on o.id = u.org_id
where u.billing_period = @period and not exists (select 1 from invoices i where i.org_id = u.org_id and i.period = @period
  and i.close_no = 0 and i.kind = 'usage' and i.status <> 'draft')
order by u.org_id;
