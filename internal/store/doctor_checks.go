package store

// doctorCheck is one part of an invariant: a query whose rows are the offenders,
// each named in one column, ids as their prefix and the database's form. It may read s: s.machine and s.biz are the tolerance in
// machine and business time. A transition that is under way is no offence.
type doctorCheck struct{ invariant, name, sql string }

var doctorChecks = []doctorCheck{
	// I1: a unit has at most one claim; sums fit; bound is bound to one.
	{"I1", "slots without their cells", `
		select format('claim_%s on gpu_%s unit %s', s.claim_id, s.gpu_id, u)
		from claim_slots s cross join generate_series(s.start_unit, s.start_unit + s.size_units - 1) u
		left join claim_cells c on c.gpu_id = s.gpu_id and c.unit = u and c.claim_id = s.claim_id
		where c.gpu_id is null`},
	{"I1", "cells without their slot", `
		select format('gpu_%s unit %s of claim_%s', c.gpu_id, c.unit, c.claim_id)
		from claim_cells c where not exists (select 1 from claim_slots s where s.claim_id = c.claim_id
			and s.gpu_id = c.gpu_id and c.unit >= s.start_unit and c.unit < s.start_unit + s.size_units)`},
	{"I1", "overlapping slots", `
		select format('gpu_%s: claim_%s and claim_%s', a.gpu_id, a.claim_id, b.claim_id)
		from claim_slots a join claim_slots b on b.gpu_id = a.gpu_id
			and (b.claim_id, b.start_unit) > (a.claim_id, a.start_unit)
			and int4range(a.start_unit, a.start_unit + a.size_units) && int4range(b.start_unit, b.start_unit + b.size_units)`},
	{"I1", "host sums", `
		select format('host %s counts %s CPUs and %s MiB, claims hold %s and %s', h.name, h.vcpu_used, h.ram_mib_used, c.vcpu, c.ram)
		from hosts h cross join lateral (
			select coalesce(sum(vcpu), 0) as vcpu, coalesce(sum(ram_mib), 0) as ram from claims where host_id = h.id) c
		where h.vcpu_used <> c.vcpu or h.ram_mib_used <> c.ram or h.vcpu_used > h.vcpu or h.ram_mib_used > h.ram_mib`},
	{"I1", "hosts of two organizations", `
		select format('host %s holds claims of %s organizations', h.name, count(distinct c.org_id))
		from hosts h join pools p on p.id = h.pool_id join claims c on c.host_id = h.id
		where p.tenancy = 'one_org_per_host' group by h.id having count(distinct c.org_id) > 1`},
	{"I1", "shared GPUs of two organizations", `
		select format('GPU %s holds claims of %s organizations', g.uuid, count(distinct s.org_id))
		from gpus g join claim_slots s on s.gpu_id = g.id
		where s.gpu_mode like 'mps%' or s.gpu_mode like 'timeslice%' group by g.id having count(distinct s.org_id) > 1`},
	{"I1", "claims without their holder", `
		select format('claim_%s of asg_%s', c.id, c.holder_id) from claims c
		where c.kind = 'assignment' and not exists (select 1 from assignments a where a.id = c.holder_id and a.state <> 'released')`},
	{"I1", "assignments without their claim", `
		select format('asg_%s (%s) of inst_%s', a.id, a.state, a.instance_id) from assignments a
		where a.state <> 'released' and not exists (select 1 from claims c where c.kind = 'assignment' and c.holder_id = a.id)`},

	// I2: what hosts report is accounted for; nothing is transitional for ever.
	{"I2", "slices nobody ordered", `
		select format('host %s slice %s (%s)', h.name, o.slice_key, o.state)
		from s cross join observed_slices o join hosts h on h.id = o.host_id
		left join assignments a on a.id = o.assignment_id and a.host_id = o.host_id and a.state <> 'released'
		where a.id is null and o.state <> 'free' and o.since < clock_timestamp() - s.machine`},
	{"I2", "assignments that stay claimed", `
		select format('asg_%s of inst_%s on host %s', a.id, a.instance_id, h.name)
		from s cross join assignments a join hosts h on h.id = a.host_id
		left join observed_slices o on o.host_id = a.host_id and o.assignment_id = a.id
		where a.state = 'claimed' and h.liveness = 'live'
			and least(greatest(a.ordered_at, o.progress_at), a.ordered_at + interval '15 minutes')
				< clock_timestamp() - s.machine - interval '5 minutes'`},
	{"I2", "releases that a live host does not acknowledge", `
		select format('asg_%s of inst_%s on host %s', a.id, a.instance_id, h.name)
		from s cross join assignments a join hosts h on h.id = a.host_id
		where a.state = 'releasing' and h.liveness = 'live' and a.releasing_at < clock_timestamp() - s.machine - interval '5 minutes'`},
	{"I2", "applied but not reported", `
		select format('asg_%s of inst_%s on host %s', a.id, a.instance_id, h.name)
		from s cross join assignments a join hosts h on h.id = a.host_id join host_sessions x on x.host_id = h.id
		where a.state = 'applied' and h.liveness = 'live' and x.gateway <> ''
			and a.applied_at < clock_timestamp() - s.machine - interval '60 seconds'
			and x.started_at < clock_timestamp() - s.machine - interval '60 seconds'
			and not exists (select 1 from observed_slices o where o.host_id = a.host_id and o.assignment_id = a.id
				and o.state <> 'unknown')`},

	// I3: no accepted request is lost; a failed one charges nothing.
	{"I3", "operations past their deadline", `
		select format('%s op_%s of inst_%s', o.kind, o.id, o.subject_id) from s cross join operations o
		where o.status in ('queued', 'running') and o.deadline_at < clock_timestamp() - s.machine`},
	{"I3", "operations that nothing carries on", `
		select format('%s op_%s of inst_%s', o.kind, o.id, o.subject_id)
		from s cross join operations o left join instances i on i.org_id = o.org_id and i.id = o.subject_id
		where o.status in ('queued', 'running') and o.kind like 'instance.%'
			and o.created_at < biz_now() - s.biz
			and (i.id is null or (i.converged_generation = i.generation and i.next_wake_at is null)
				or i.operation_id is distinct from o.id)`},
	{"I3", "instances that nobody will look at", `
		select format('inst_%s (%s)', i.id, i.status) from instances i
		where i.converged_generation <> i.generation and i.next_wake_at is null
			and not exists (select 1 from outbox o where o.kind = 'instance' and o.sent_at is null)`},
	{"I3", "recovering instances that nobody will look at", `
		select format('inst_%s (%s)', i.id, i.status) from instances i
		where i.recovering and i.next_wake_at is null
			and not exists (select 1 from outbox o where o.kind = 'instance' and o.sent_at is null)`},
	{"I3", "wake-ups that are not delivered", `
		select format('outbox row %s for %s', o.id, o.key) from s cross join outbox o
		where o.sent_at is null and o.created_at < clock_timestamp() - s.machine`},
	{"I3", "running without an assignment of the run", `
		select format('inst_%s', i.id) from instances i where i.status = 'running'
			and not exists (select 1 from assignments a where a.instance_id = i.id and a.run = i.run and a.state in ('claimed', 'applied'))`},
	{"I3", "failed but charged", `
		select format('inst_%s', i.id) from instances i where i.status = 'failed' and not i.ever_ran
			and exists (select 1 from usage_segments u where u.subject_id = i.id)`},

	// I5: journals sum to zero; documents add up.
	{"I5", "journals that do not sum to zero", `
		select format('journal %s: %s %s', j.id, coalesce(sum(p.amount_minor), 0), j.currency)
		from ledger_journals j left join ledger_postings p on p.journal_id = j.id
		group by j.id, j.currency having coalesce(sum(p.amount_minor), 0) <> 0 or count(p.*) < 2 or count(distinct p.currency) > 1`},
	{"I5", "invoices that do not add up", `
		select format('invoice %s', coalesce(i.number, 'inv_' || i.id)) from invoices i
		where i.subtotal_minor <> (select coalesce(sum(amount_minor), 0) from invoice_lines l where l.invoice_id = i.id)
			or i.tax_minor <> (select coalesce(sum(amount_minor), 0) from invoice_taxes x where x.invoice_id = i.id)
			or i.total_minor <> i.subtotal_minor + i.tax_minor`},
	{"I5", "lines that differ from their subjects", `
		select format('inv_%s line %s', l.invoice_id, l.line_no) from invoice_lines l
		left join lateral (select count(*) as n, sum(amount_minor) as minor, sum(quantity) as quantity
			from line_subjects x where x.invoice_id = l.invoice_id and x.line_no = l.line_no) x on true
		where (l.component in ('usage', 'covered') or x.n > 0) -- other lines may be of no subject
			and (l.amount_minor <> coalesce(x.minor, 0) or l.quantity <> coalesce(x.quantity, 0))`},
	{"I5", "finalized invoices without their journal", `
		select format('invoice %s', i.number) from invoices i where i.status = 'open' and i.total_minor <> 0
			and (i.kind <> 'advance' or i.tax_minor <> 0) -- an advance posts its tax alone
			and not exists (select 1 from ledger_journals j where j.reference_id = i.id)`},
	{"I5", "gaps in invoice numbers", `
		select format('%s %s: %s numbers, %s invoices', n.series, n.year, n.last, c.n)
		from invoice_numbers n cross join lateral (
			select count(*) as n from invoices i where i.series = n.series and i.kind = n.kind
				and i.number like '%-' || n.year || '-%') c
		where n.last <> c.n`},

	// I13: quota is the sum of its claims.
	{"I13", "totals that differ from the claims", `
		select format('org_%s counts %s instances and %s GPUs, claims hold %s and %s', u.org_id, u.instances, u.gpus, c.i, c.g)
		from quota_usage u cross join lateral (select coalesce(sum(instances), 0) as i, coalesce(sum(gpus), 0) as g
			from quota_claims where org_id = u.org_id) c
		where u.instances <> c.i or u.gpus <> c.g`},
	{"I13", "instances outside quota", `
		select format('inst_%s (%s)', i.id, i.status) from instances i where i.desired <> 'deleted'
			and not exists (select 1 from quota_claims q where q.org_id = i.org_id and q.instance_id = i.id)`},
	{"I13", "deleted but counted", `
		select format('inst_%s', i.id) from s cross join instances i
		join quota_claims q on q.org_id = i.org_id and q.instance_id = i.id cross join business_clock b
		where i.desired = 'deleted'
			and i.intent_at < biz_now() - s.biz - interval '2 minutes' * b.scale`},
}
