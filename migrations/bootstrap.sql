-- Cluster-wide roles, run once by a superuser before the first migration.
-- tranche_owner owns the database; tranche is the login of the control plane and
-- takes one of the two roles inside each transaction (NOINHERIT).
do $$
begin
  if not exists (select 1 from pg_roles where rolname = 'tranche_owner') then
    create role tranche_owner login;
  end if;
  if not exists (select 1 from pg_roles where rolname = 'tranche_org') then
    create role tranche_org nologin;
  end if;
  if not exists (select 1 from pg_roles where rolname = 'tranche_system') then
    create role tranche_system nologin;
  end if;
  if not exists (select 1 from pg_roles where rolname = 'tranche') then
    create role tranche login noinherit;
  end if;
end
$$;
grant tranche_org, tranche_system to tranche;
