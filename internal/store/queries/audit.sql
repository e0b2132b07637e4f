-- The audit log: rows are inserted plain and never change.

-- name: InsertAudit :exec
insert into audit_log (org_id, actor, credential, operation, resource, result, request_id)
values (@org_id, @actor, @credential, @operation, @resource, @result, @request_id);
