-- The cost export: what documents do not say of the resources on them.

-- name: ResourcesUsed :many
-- Region and labels of what was used in a month, as they were when it was used last.
select distinct on (subject_kind, subject_id) subject_kind, subject_id, region, labels
from usage_segments
where org_id = @org_id and billing_period = @period
order by subject_kind, subject_id, lower(during) desc;

-- name: PrepaidAtIssue :many
-- What the prepaid balance paid on documents when they were issued: later returns are on other documents.
select j.reference_id as document_id, sum(p.amount_minor)::bigint as amount_minor
from ledger_journals j join ledger_postings p on p.org_id = j.org_id and p.journal_id = j.id
where j.org_id = @org_id and j.reference_id = any(@documents::uuid[]) and j.kind = any(@kinds::text[])
  and p.account in ('prepaid', 'prepaid_used') and p.document_id is not null
group by 1;
