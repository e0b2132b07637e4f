-- Bank statement lines and what they may be for.

-- name: InsertStatementLine :execrows
insert into statement_lines (id, account, bank_id, booked_on, amount_minor, currency, reference, payer, state, imported_by)
values (@line_id, @account, @bank_id, cast(@booked_on::timestamptz as date), @amount_minor, @currency, @reference, @payer, 'queued', @imported_by)
on conflict (account, bank_id) do nothing;

-- name: StatementLineByBankID :one
select * from statement_lines where account = @account and bank_id = @bank_id;

-- name: StatementLinesByBankIDs :many
select * from statement_lines where account = @account and bank_id = any(@bank_ids::text[]);

-- name: StatementLineByID :one
select * from statement_lines where id = @line_id;

-- name: StatementLineForUpdate :one
select * from statement_lines where id = @line_id for no key update;

-- name: ListStatementLines :many
select * from statement_lines where (@state::text = '' or state = @state) and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before')::uuid)
order by id desc limit @size;

-- name: ExplainStatementLine :exec
update statement_lines set why = @why where id = @line_id;

-- name: DecideStatementLine :execrows
update statement_lines set state = @state, why = @why, matched_org = sqlc.narg('matched_org')::uuid, payment_id = sqlc.narg('payment_id')::uuid,
  decided_by = @decided_by, decided_at = clock_timestamp(), revision = revision + 1
where id = @line_id and state = 'queued';

-- name: TransferCandidates :many
-- Open documents of these numbers (without case and separators), or of these organizations and owed with just the amount; for a
-- person to choose from also of others that nothing was paid of.
with d as (
  select i.org_id, i.id, true as named from invoices i
  where upper(regexp_replace(i.number, '[^[:alnum:]]', '', 'g')) = any(@numbers::text[])
  union all
  select i.org_id, i.id, false from invoices i
  where (i.org_id = any(@orgs::uuid[]) or @by_total::boolean and i.total_minor = @amount_minor)
    and i.status = 'open' and i.currency = @currency::text and (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
      where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable') = @amount_minor::bigint
), once as (select org_id, id, bool_or(named) as named from d group by org_id, id)
select i.org_id, i.id, i.number::text as number, i.currency, o.name as org_name,
  (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
    where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable')::bigint as owed_minor,
  (select coalesce(sum(w.amount_minor), 0) from invoice_write_offs w where w.org_id = i.org_id and w.invoice_id = i.id)::bigint as written_minor
from once d join invoices i on i.org_id = d.org_id and i.id = d.id join organizations o on o.id = i.org_id
where i.status = 'open' and i.kind <> 'credit_note' and i.number is not null
order by d.named desc, i.id limit 50;
