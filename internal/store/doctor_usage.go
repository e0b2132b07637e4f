package store

// usageChecks are the checks of I4 and of the part of I5 that compares documents and
// ledger with usage. What was billed or reconciled long ago was checked in its time.
var usageChecks = []doctorCheck{
	// I4: segments never overlap; no more is billed than proven.
	{"I4", "overlapping segments", `
		select format('seg_%s and seg_%s of inst_%s', a.id, b.id, a.subject_id)
		from usage_segments a join usage_segments b on b.org_id = a.org_id and b.subject_id = a.subject_id
			and b.meter = a.meter and b.id > a.id and a.during && b.during`},
	{"I4", "open segments of what is not meant to run", `
		select format('seg_%s of inst_%s', u.id, i.id)
		from usage_segments u join instances i on i.org_id = u.org_id and i.id = u.subject_id
		where upper_inf(u.during) and (i.desired <> 'running' or u.run <> i.run)`},
	{"I4", "billed while the platform interrupted it", `
		select format('intr_%s of inst_%s', x.id, x.instance_id)
		from s cross join interruptions x cross join lateral (
			select x.from_at + s.biz as lo, coalesce(x.to_at, biz_now()) - s.biz as hi) w
		where w.lo < w.hi and exists (select 1 from billable_segments u where u.org_id = x.org_id and u.subject_id = x.instance_id
			and u.during && tstzrange(w.lo, w.hi))`},
	{"I4", "open interruptions of what is not interrupted", `
		select format('intr_%s of inst_%s (%s)', x.id, i.id, i.status)
		from interruptions x join instances i on i.org_id = x.org_id and i.id = x.instance_id
		where x.to_at is null and (i.status = 'running' or i.desired <> 'running')`},
	{"I4", "billed beyond the proof", `
		select format('inst_%s run %s: %s too long', x.subject_id, x.run, x.excess)
		from s cross join (
			select b.subject_id, b.run, (select coalesce(sum(upper(r) - lower(r)), interval '0')
				from unnest(b.billed - coalesce(p.proven, '{}'::tstzmultirange)) r) as excess
			from (select subject_id, run, range_agg(tstzrange(lower(during),
						case when upper_inf(during) then greatest(biz_now(), lower(during)) else upper(during) end)) as billed
					from billable_segments where subject_kind = 'instance' and meter = 'gpu' group by subject_id, run) b
			left join (select p.instance_id, p.run, range_agg(tstzrange(p.started_at,
						greatest(p.last_proof_at, case when p.ended_at is null then l.last_proof_biz end))) as proven
					from run_proofs p left join host_liveness l on l.host_id = p.host_id
					group by p.instance_id, p.run) p on p.instance_id = b.subject_id and p.run = b.run) x
		where x.excess > s.biz`},
	{"I4", "proven but never billed", `
		select format('inst_%s run %s from %s', p.instance_id, p.run, p.started_at)
		from s cross join run_proofs p join assignments a on a.org_id = p.org_id and a.id = p.assignment_id
		where p.last_proof_at - p.started_at > s.biz
			and (a.releasing_at is null or biz_at(a.releasing_at) > p.started_at + s.biz)
			and not exists (select 1 from usage_segments u where u.org_id = p.org_id and u.subject_id = p.instance_id
				and u.run = p.run and lower(u.during) <= p.started_at + s.biz)`},
	{"I4", "segments that no seal has continued", `
		select format('seg_%s of %s %s', u.id, u.subject_kind, u.subject_id)
		from s cross join usage_segments u
		where upper_inf(u.during) and month_end(lower(u.during)) < biz_now() - s.biz`},
	{"I4", "proven time that is unbilled for no reason", `
		select format('inst_%s on %s: %s µs', r.subject_id, to_char(r.day at time zone 'UTC', 'YYYY-MM-DD'), r.reasons ->> 'unexplained')
		from s cross join reconciliations r
		where r.day > biz_now() - interval '45 days'
			and (r.reasons ->> 'unexplained')::bigint > 4 * extract(epoch from s.biz) * 1000000`},
	{"I4", "exclusions of no usage", `
		select format('inst_%s %s %s', x.subject_id, x.meter, x.cause) from usage_exclusions x
		where x.lifted_at is null and not exists (select 1 from usage_segments u where u.org_id = x.org_id and u.subject_id = x.subject_id
			and u.meter = x.meter and u.during && x.during)`},

	// I5: per (subject, meter), all documents of a month together bill its usage, as it
	// was known at their last close.
	{"I5", "invoiced usage that differs from the segments", `
		with months as (
			select i.org_id, i.period, max(i.as_of_close) as known from invoices i
			where i.status in ('open', 'carried') and i.as_of_close is not null group by 1, 2
			having max(i.finalized_at) > biz_now() - interval '45 days'
		), billed as (
			select i.org_id, i.period, x.subject_id, l.meter, sum(x.quantity) as quantity
			from months m join invoices i on i.org_id = m.org_id and i.period = m.period
			join invoice_lines l on l.invoice_id = i.id
			join line_subjects x on x.invoice_id = l.invoice_id and x.line_no = l.line_no
			where i.as_of_close is not null and i.status in ('open', 'carried') and not exists (select 1 from invoices r where r.replaces = i.id)
				and (l.component in ('usage', 'covered') or l.component = 'adjustment' and (l.variant like 'usage/%' or l.variant like 'covered/%'))
			group by 1, 2, 3, 4
		), known as (
			select u.org_id, u.billing_period as period, u.subject_id, u.meter, u.units, m.known, tstzmultirange(u.during) - coalesce((
				select range_agg(x.during) from usage_exclusions x where x.org_id = u.org_id and x.subject_id = u.subject_id and x.meter = u.meter
					and x.close_no <= m.known and (x.lifted_close_no is null or x.lifted_close_no > m.known)), '{}') as during
			from months m join usage_segments u on u.org_id = m.org_id and u.billing_period = m.period and u.close_no <= m.known
			where not upper_inf(u.during)
		), used as (
			select k.org_id, k.period, k.subject_id, k.meter, sum(k.units * case when k.meter = 'egress' then 1
				else (extract(epoch from upper(w) - lower(w)) * 1000000)::numeric end) as quantity
			from known k cross join lateral unnest(k.during) w group by 1, 2, 3, 4
		)
		select format('%s of org_%s, subject %s %s: invoiced %s, used %s', period, org_id, subject_id, meter, b.quantity, u.quantity)
		from billed b full join used u using (org_id, period, subject_id, meter)
		where coalesce(b.quantity, 0) <> coalesce(u.quantity, 0)`},
	{"I5", "unbilled receivables that differ from the accruals", `
		select format('org_%s: ledger %s, accrued %s', coalesce(l.org_id, f.org_id), coalesce(l.minor, 0), coalesce(f.minor, 0))
		from (select org_id, sum(amount_minor) as minor from ledger_postings where account = 'unbilled_receivable' group by org_id) l
		full join (select org_id, sum(accrued_minor) as minor from period_funding group by org_id) f using (org_id)
		where coalesce(l.minor, 0) <> coalesce(f.minor, 0)`},
}
