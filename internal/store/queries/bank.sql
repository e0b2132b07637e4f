-- Bank statement lines and what they may be for.

-- name: InsertStatementLine :execrows
insert into statement_lines (id, account, bank_id, booked_on, amount_minor, currency, reference, payer, state, imported_by)
values (@line_id, @account, @bank_id, cast(@booked_on::timestamptz as date), @amount_minor, @currency, @reference, @payer, 'queued', @imported_by)
on conflict (account, bank_id) do nothing;

-- name: StatementLineByBankID :one
select * from statement_lines where account = @account and bank_id = @bank_id;

-- name: StatementLinesByBankIDs :many
select * from statement_lines where account = @account and bank_id = any(@bank_ids::text[]);

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
-- Open documents whose number is in the reference, or whose organization is, or that are owed with just the amount.
with d as (
  select i.org_id, i.id, i.number, i.currency, o.name as org_name,
    (select coalesce(sum(p.amount_minor), 0) from ledger_postings p
      where p.org_id = i.org_id and p.document_id = i.id and p.account = 'receivable')::bigint as owed_minor,
    (select coalesce(sum(w.amount_minor), 0) from invoice_write_offs w where w.org_id = i.org_id and w.invoice_id = i.id)::bigint as written_minor,
    strpos(@reference::text, upper(regexp_replace(i.number, '[^[:alnum:]]', '', 'g'))) > 0 as named
  from invoices i join organizations o on o.id = i.org_id
  where i.status = 'open' and i.kind <> 'credit_note' and i.number is not null
)
select d.org_id, d.id, d.number::text as number, d.currency, d.org_name, d.owed_minor, d.written_minor from d
where d.named or (d.currency = @currency::text and d.owed_minor = @amount_minor::bigint)
order by d.named desc, d.id limit 50;
