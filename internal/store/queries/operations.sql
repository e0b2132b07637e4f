-- Operations: the record of a long-running request.

-- name: InsertOperation :exec
insert into operations (org_id, id, project_id, kind, subject_id, generation, request_id, created_at, deadline_at)
values (@org_id, @operation_id, @project_id, @kind, @subject_id, @generation, @request_id, @at, @deadline_at);

-- name: SupersedeOperations :many
-- A newer intent ends what is unfinished of the older ones.
update operations set status = 'cancelled', superseded_by = @operation_id, step = '',
  finished_at = greatest(@at::timestamptz, created_at), revision = revision + 1
where org_id = @org_id and subject_id = @subject_id and id <> @operation_id and status in ('queued', 'running')
returning id;

-- name: OperationRows :many
select * from operations
where org_id = @org_id
  and (sqlc.narg(project_id)::uuid is null or project_id = sqlc.narg(project_id)::uuid)
  and (sqlc.narg(operation_id)::uuid is null or id = sqlc.narg(operation_id)::uuid)
  and (sqlc.narg(status)::text is null or status = sqlc.narg(status)::text)
  and (sqlc.narg(subject_id)::uuid is null or subject_id = sqlc.narg(subject_id)::uuid)
  and (sqlc.narg(before)::uuid is null or id < sqlc.narg(before)::uuid)
order by id desc limit @size;
