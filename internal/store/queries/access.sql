-- How tenants get in: registry logins, SSH authorities, what a run needs secretly.

-- name: PutRegistryLogin :one
insert into registry_logins (org_id, id, registry, username, password_sealed, created_at, updated_at)
select @org_id, @login_id, @registry, @username, @password_sealed, n.at, n.at from (select biz_now() as at) n
returning *;

-- name: UpdateRegistryLogin :one
update registry_logins set username = @username, password_sealed = @password_sealed, generation = generation + 1,
  revision = revision + 1, updated_at = greatest(biz_now(), updated_at)
where org_id = @org_id and id = @login_id returning *;

-- name: ListRegistryLogins :many
select * from registry_logins
where org_id = @org_id and (sqlc.narg('before')::uuid is null or id < sqlc.narg('before'))
order by id desc limit @size;

-- name: GetRegistryLogin :one
select * from registry_logins where org_id = @org_id and id = @login_id;

-- name: DeleteRegistryLogin :execrows
delete from registry_logins where org_id = @org_id and id = @login_id;

-- name: SerializeAuthorities :exec
select pg_advisory_xact_lock(hashtextextended('tranche ssh authorities', 0));

-- name: SSHAuthorities :many
select * from ssh_authorities where retired_at is null order by current desc, created_at desc;

-- name: DemoteSSHAuthorities :exec
update ssh_authorities set current = false where current;

-- name: InsertSSHAuthority :exec
insert into ssh_authorities (id, public_key, private_sealed) values (@authority_id, @public_key, @private_sealed);

-- name: RetireSSHAuthority :execrows
update ssh_authorities set retired_at = clock_timestamp() where id = @authority_id and not current and retired_at is null;

-- name: HostsWithSSH :many
select id, cell_id from hosts where reach_ssh_port > 0 and state <> 'retired';

-- name: RunSecrets :one
-- Only of an assignment that is to run on this host by this fence.
select a.org_id, a.instance_id, i.image, i.env_sealed, i.registry_login_id
from assignments a join instances i on i.org_id = a.org_id and i.id = a.instance_id
where a.id = @assignment_id and a.host_id = @host_id and a.fence = @fence and a.state in ('claimed', 'applied')
  and i.desired = 'running' and i.run = a.run;

-- name: LoginsFor :many
select * from registry_logins where org_id = @org_id and (registry = @registry or id = sqlc.narg('login_id')::uuid);

-- name: SetSSHKeys :execrows
update instances set ssh_keys = @ssh_keys::text[], generation = generation + 1, converged_generation = case
    when converged_generation = generation then generation + 1 else converged_generation end, revision = revision + 1
where org_id = @org_id and project_id = @project_id and id = @instance_id and desired <> 'deleted';

-- name: LiveAssignmentHosts :many
select host_id, cell_id from assignments where org_id = @org_id and instance_id = @instance_id and state in ('claimed', 'applied');
