package store

// walletChecks are the part of I5 that compares wallets with what moved them and
// with the ledger.
var walletChecks = []doctorCheck{
	{"I5", "grants that differ from their movements", `
		select format('grant_%s: %s left, %s by its movements', g.id, g.remaining_minor, g.amount_minor - coalesce(u.minor, 0))
		from credit_grants g left join (select grant_id, sum(amount_minor) as minor from credit_uses group by grant_id) u on u.grant_id = g.id
		where g.remaining_minor <> g.amount_minor - coalesce(u.minor, 0)`},
	{"I5", "wallets that differ from their grants", `
		select format('org_%s: prepaid %s, promo %s', w.org_id, w.prepaid_minor, w.promo_minor)
		from wallets w left join (
			select org_id, coalesce(sum(remaining_minor) filter (where kind = 'prepaid'), 0) as prepaid,
				coalesce(sum(remaining_minor) filter (where kind = 'promo'), 0) as promo
			from credit_grants group by org_id) g using (org_id)
		where w.prepaid_minor <> coalesce(g.prepaid, 0) or w.promo_minor <> coalesce(g.promo, 0)`},
	{"I5", "wallets that differ from the ledger", `
		with books as (
			select org_id, coalesce(sum(amount_minor) filter (where account = 'prepaid'), 0) as prepaid,
				coalesce(sum(amount_minor) filter (where account = 'promo'), 0) as promo,
				coalesce(sum(amount_minor) filter (where account = 'prepaid_used'), 0) as used
			from ledger_postings where account in ('prepaid', 'promo', 'prepaid_used') group by org_id
		), burned as (
			select org_id, sum(burned_minor) as minor from period_funding where invoice_id is null group by org_id
		)
		select format('org_%s: prepaid %s, promo %s, burned %s; ledger %s, %s, %s', w.org_id, w.prepaid_minor, w.promo_minor,
			coalesce(f.minor, 0), coalesce(b.prepaid, 0), coalesce(b.promo, 0), coalesce(b.used, 0))
		from wallets w left join books b using (org_id) left join burned f using (org_id)
		where w.prepaid_minor + coalesce(b.prepaid, 0) <> 0 or w.promo_minor + coalesce(b.promo, 0) <> 0
			or coalesce(f.minor, 0) + coalesce(b.used, 0) <> 0`},
}
