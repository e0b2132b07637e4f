-- Wallets, grants and what uses them. The lock order is billing account, invoice, wallet.

-- name: EnsureWallet :exec
insert into wallets (org_id, currency) select id, currency from organizations where id = @org_id on conflict do nothing;

-- name: LockWallet :one
select * from wallets where org_id = @org_id for update;

-- name: GetWallet :one
select * from wallets where org_id = @org_id;

-- name: SetMoneyMode :exec
update wallets set mode = @mode, next_tick_at = timestamptz 'epoch', revision = revision + 1 where org_id = @org_id;

-- name: SetAutoTopUp :exec
update wallets set topup_threshold_minor = sqlc.narg('threshold'), topup_amount_minor = sqlc.narg('amount'),
  topup_monthly_max_minor = sqlc.narg('monthly_max'), next_tick_at = timestamptz 'epoch', revision = revision + 1 where org_id = @org_id;

-- name: LookAtWalletSoon :exec
update wallets set next_tick_at = timestamptz 'epoch' where org_id = @org_id;

-- name: SaveWalletTick :exec
update wallets set promo_held_minor = @promo_held, tax_ppm = @tax_ppm, ticked_at = @at::timestamptz, next_tick_at = @next_at::timestamptz,
  exhausted_at = case when @exhausted::boolean then coalesce(exhausted_at, @at::timestamptz) end, revision = revision + 1
where org_id = @org_id;

-- name: PostponeWallet :exec
update wallets set next_tick_at = biz_now() + make_interval(secs => @wait_seconds::double precision)
where org_id = @org_id and next_tick_at <= biz_now();

-- name: WalletsDue :many
select w.org_id from wallets w
where w.next_tick_at <= biz_now()
  and (w.mode = 'prepaid' or w.prepaid_minor > 0 or w.promo_minor > 0 or exists (select 1 from budgets b where b.org_id = w.org_id))
order by w.next_tick_at limit @size;

-- name: InsertGrant :execrows
with granted as (
  insert into credit_grants (org_id, id, kind, name, priority, expires_at, scope, amount_minor, tax_minor, remaining_minor, currency,
    source_id, created_by, created_at)
  values (@org_id, @grant_id, @kind, @name, @priority, sqlc.narg('expires_at'), @scope, @amount_minor, @tax_minor, @amount_minor, @currency,
    @source_id, @created_by, @at::timestamptz)
  on conflict (source_id) do nothing
  returning org_id, kind, amount_minor
)
update wallets w set prepaid_minor = w.prepaid_minor + case when g.kind = 'prepaid' then g.amount_minor else 0 end,
  promo_minor = w.promo_minor + case when g.kind = 'promo' then g.amount_minor else 0 end,
  next_tick_at = timestamptz 'epoch', revision = w.revision + 1
from granted g where w.org_id = g.org_id;

-- name: LiveGrants :many
select * from credit_grants where org_id = @org_id and kind = @kind and remaining_minor > 0 and lapsed_at is null order by id;

-- name: GrantsByID :many
select * from credit_grants where org_id = @org_id and id = any(@grant_ids::uuid[]) order by id;

-- name: GrantBySource :one
select * from credit_grants where org_id = @org_id and source_id = @source_id;

-- name: ListGrants :many
select * from credit_grants where org_id = @org_id and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid)
order by id desc limit @size;

-- name: ExpiredGrants :many
select org_id, id from credit_grants where lapsed_at is null and expires_at <= biz_now() order by expires_at, id limit @size;

-- name: ExpiredGrantsOf :many
select id from credit_grants where org_id = @org_id and lapsed_at is null and expires_at <= biz_now() order by expires_at, id;

-- name: MoveGrants :execrows
-- Positive amounts take from grants, negative ones give back; a grant that lapsed and gets something back lapses again.
with moved as (
  select t.grant_id, sum(t.amount) as amount
  from (select unnest(@grant_ids::uuid[]) as grant_id, unnest(@amounts::bigint[]) as amount) as t group by 1
), grants as (
  update credit_grants g set remaining_minor = g.remaining_minor - m.amount,
    lapsed_at = case when m.amount < 0 then null else g.lapsed_at end
  from moved m where g.org_id = @org_id and g.id = m.grant_id returning g.kind, m.amount
)
update wallets w set prepaid_minor = w.prepaid_minor - coalesce((select sum(amount) from grants where kind = 'prepaid'), 0),
  promo_minor = w.promo_minor - coalesce((select sum(amount) from grants where kind = 'promo'), 0), revision = w.revision + 1
where w.org_id = @org_id and (select count(*) from grants) = (select count(*) from moved);

-- name: InsertUses :exec
insert into credit_uses (org_id, grant_id, kind, period, close_no, amount_minor, reason, at)
select @org_id, t.grant_id, @kind, @period, @close_no, t.amount, @reason, @at::timestamptz
from (select unnest(@grant_ids::uuid[]) as grant_id, unnest(@amounts::bigint[]) as amount) as t;

-- name: UsesOfPeriod :many
select grant_id, amount_minor from credit_uses
where org_id = @org_id and period = @period and close_no = @close_no and kind = @kind and reason in ('burn', 'invoice', 'credit')
order by id;

-- name: LapseGrant :exec
update credit_grants set lapsed_at = @at::timestamptz where org_id = @org_id and id = @grant_id;

-- name: PromosOf :many
-- What promotional grants have for a month: without what earlier months, which are not invoiced yet, hold.
select g.id, g.name, g.priority, g.expires_at, g.scope, g.currency,
  (g.remaining_minor - coalesce((select sum(h.amount_minor) from promo_holds h
    where h.org_id = g.org_id and h.grant_id = g.id and h.period < @period), 0))::bigint as available
from credit_grants g
where g.org_id = @org_id and g.kind = 'promo' and g.remaining_minor > 0
  and (g.expires_at is null or g.expires_at > @from_at::timestamptz) and g.created_at < @to_at::timestamptz
order by g.id;

-- name: ClearHolds :exec
delete from promo_holds where org_id = @org_id and period = @period;

-- name: InsertHolds :exec
insert into promo_holds (org_id, grant_id, period, amount_minor)
select @org_id, t.grant_id, @period, t.amount
from (select unnest(@grant_ids::uuid[]) as grant_id, unnest(@amounts::bigint[]) as amount) as t;

-- name: HoldsOf :many
select grant_id, period, amount_minor from promo_holds where org_id = @org_id order by period, grant_id;

-- name: FundingOf :one
select * from period_funding where org_id = @org_id and period = @period and close_no = @close_no;

-- name: FundingOfInvoice :one
select * from period_funding where org_id = @org_id and invoice_id = @invoice_id;

-- name: SaveFunding :exec
insert into period_funding (org_id, period, close_no, accrued_minor, burned_minor, excess_minor, outage_minor, accrued_rev, burned_rev,
  invoice_id, accrued_at)
values (@org_id, @period, @close_no, @accrued_minor, @burned_minor, @excess_minor, @outage_minor, @accrued_rev, @burned_rev,
  sqlc.narg('invoice_id'), sqlc.narg('accrued_at'))
on conflict (org_id, period, close_no) do update set accrued_minor = excluded.accrued_minor, burned_minor = excluded.burned_minor,
  excess_minor = excluded.excess_minor, outage_minor = excluded.outage_minor, accrued_rev = excluded.accrued_rev,
  burned_rev = excluded.burned_rev, invoice_id = excluded.invoice_id, accrued_at = excluded.accrued_at;

-- name: OverrunsOf :many
select period, excess_minor, outage_minor from period_funding where org_id = @org_id and excess_minor > 0 order by period;

-- name: BilledPeriod :one
-- The month had its document: it is no longer previewed, also when that was cancelled.
select exists (select 1 from invoices where org_id = @org_id and period = @period and close_no = 0 and kind = 'usage' and status <> 'draft')::boolean;

-- name: UnbilledMonths :many
-- Those of some months with usage that have no document. Each costs a look at an index.
select p.period::text as period from unnest(@periods::text[]) as p(period)
where exists (select 1 from usage_segments u where u.org_id = @org_id and u.billing_period = p.period)
  and not exists (select 1 from invoices i where i.org_id = @org_id and i.period = p.period and i.close_no = 0 and i.kind = 'usage'
    and i.status <> 'draft')
order by 1;

-- name: AccrualDue :many
-- Who used something in months and was not accrued since an instant.
select o.id as org_id, p.period::text as period from organizations o cross join unnest(@periods::text[]) as p(period)
left join period_funding f on f.org_id = o.id and f.period = p.period and f.close_no = 0
where (f.accrued_at is null or f.accrued_at < @since::timestamptz)
  and exists (select 1 from usage_segments u where u.org_id = o.id and u.billing_period = p.period)
  and not exists (select 1 from invoices i where i.org_id = o.id and i.period = p.period and i.close_no = 0 and i.kind = 'usage'
    and i.status <> 'draft')
order by 2, 1;

-- name: ClaimWallet :exec
insert into wallet_claims (org_id, instance_id, project_id, key_id, amount)
values (@org_id, @instance_id, @project_id, @key_id, cast(@amount::text as numeric))
on conflict (org_id, instance_id) do update set amount = excluded.amount;

-- name: DropWalletClaims :exec
-- Of instances that shall not run any more.
delete from wallet_claims c using instances i
where c.org_id = @org_id and i.org_id = c.org_id and i.id = c.instance_id and i.desired <> 'running';

-- name: WalletClaims :many
-- Of instances that shall run: what each keeps.
select c.instance_id, c.project_id, c.key_id, c.amount::text as amount
from wallet_claims c join instances i on i.org_id = c.org_id and i.id = c.instance_id
where c.org_id = @org_id and i.desired = 'running' and i.id <> @without;

-- name: NoteMaker :exec
insert into instance_keys (org_id, instance_id, key_id) values (@org_id, @instance_id, @key_id) on conflict do nothing;

-- name: InstancesOfKeys :many
select instance_id, key_id from instance_keys where org_id = @org_id and key_id = any(@keys::uuid[]);

-- name: RunningInstances :many
-- Of an organization, of one of its projects, or made by one of its keys.
select i.id, i.project_id from instances i
left join instance_keys k on k.org_id = i.org_id and k.instance_id = i.id
where i.org_id = @org_id and i.desired = 'running'
  and (sqlc.narg('project_id')::uuid is null or i.project_id = sqlc.narg('project_id'))
  and (sqlc.narg('key_id')::uuid is null or k.key_id = sqlc.narg('key_id'))
order by i.id;

-- name: TopUpsOfMonth :one
select coalesce(sum(amount_minor) filter (where period = @period and status <> 'failed'), 0)::bigint as amount_minor,
  count(*) filter (where status in ('pending', 'ordered'))::bigint as under_way,
  coalesce(max(ended_at) filter (where status = 'failed'), timestamptz 'epoch')::timestamptz as failed_at
from top_ups where org_id = @org_id and (period = @period or status in ('pending', 'ordered'));

-- name: InsertTopUp :exec
insert into top_ups (org_id, id, period, amount_minor, currency, created_at) values (@org_id, @top_up_id, @period, @amount_minor, @currency, @at::timestamptz);

-- name: PendingTopUps :many
select org_id, id, amount_minor, currency from top_ups where status = 'pending' order by created_at limit @size;

-- name: MarkTopUp :execrows
update top_ups set status = @status, tries = tries + 1, ended_at = case when @status in ('done', 'failed') then biz_now() end
where org_id = @org_id and id = @top_up_id and status in ('pending', 'ordered');

-- name: InsertCoupon :exec
insert into coupons (code, name, amount_minor, currency, priority, valid_until, grant_days, max_uses, created_by, created_at)
values (@code, @name, @amount_minor, @currency, @priority, sqlc.narg('valid_until'), sqlc.narg('grant_days'), @max_uses, @created_by, biz_now());

-- name: UseCoupon :one
update coupons set uses = uses + 1 where code = @code and uses < max_uses and (valid_until is null or valid_until > biz_now())
returning name, amount_minor, currency, priority, grant_days;

-- name: NoteCouponUse :exec
insert into coupon_uses (org_id, code, grant_id, at) values (@org_id, @code, @grant_id, @at::timestamptz);
