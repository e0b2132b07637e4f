package histories

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Region is where all of a customer's instances are.
const Region = "local"

// WithTerms draws a customer who agreed something beside the list: reservations, free
// quotas, tiers, discounts, contract prices, commitments, promotions.
func WithTerms(seed uint64, most int) *Customer {
	c := New(seed, most)
	r := rand.New(rand.NewPCG(seed, 0x7465726d73))
	t := &c.Terms
	if r.IntN(2) == 0 {
		c.tier(r)
	}
	for range r.IntN(3) {
		t.Reservations = append(t.Reservations, billing.ReservedCapacity{
			ID: id.Reservation(uuid(r)), Name: "reserved", Family: c.SKUs[r.IntN(len(c.SKUs))].Family, Region: Region,
			Units: 1 + r.Int64N(2), During: term(r),
		})
	}
	for i := range r.IntN(3) {
		t.FreeQuotas = append(t.FreeQuotas, billing.FreeQuota{
			Contract: id.Contract(uuid(r)), Name: fmt.Sprintf("free %d", i), Scope: c.scope(r, metering.GPU),
			Quantity: big.NewInt(r.Int64N(400 * hour)), During: metering.Interval{From: instant(epoch - 2*day)},
		})
	}
	for i := range r.IntN(3) {
		t.Discounts = append(t.Discounts, billing.ScopedDiscount{
			Contract: id.Contract(uuid(r)), Discount: billing.Discount{Name: fmt.Sprintf("discount %d", i), PPM: r.Int64N(600_000)},
			Scope: c.scope(r, ""), During: term(r),
		})
	}
	if r.IntN(2) == 0 {
		key := billing.PriceKey{SKU: c.SKUs[r.IntN(len(c.SKUs))].ID, Meter: metering.GPU}
		t.Prices = append(t.Prices, billing.ContractPrice{Contract: id.Contract(uuid(r)), Key: key, During: term(r), Price: price(r, c.Currency)})
	}
	c.flat(r)
	return c
}

// flat draws what is agreed as an amount of a month.
func (c *Customer) flat(r *rand.Rand) {
	always := metering.Interval{From: instant(epoch - 2*day)}
	if r.IntN(3) == 0 {
		c.Terms.Commitments = []billing.CommittedAmount{{
			Contract: id.Contract(uuid(r)), Name: "commitment", Amount: money.NewAmount(r.Int64N(300_000), c.Currency), During: always,
		}}
	}
	if r.IntN(3) == 0 {
		c.Terms.FixedDiscounts = []billing.AmountOff{{
			Contract: id.Contract(uuid(r)), Name: "off", Amount: money.NewAmount(1+r.Int64N(50_000), c.Currency), During: always,
		}}
	}
	for i := range r.IntN(3) {
		c.Terms.Promos = append(c.Terms.Promos, billing.Promo{
			Grant: id.Grant(uuid(r)), Name: fmt.Sprintf("promo %d", i), Priority: r.IntN(2), Remaining: money.NewAmount(1+r.Int64N(30_000), c.Currency),
		})
	}
}

// term draws an interval that begins and ends anywhere, or does not end.
func term(r *rand.Rand) metering.Interval {
	from := epoch + r.Int64N(60*day)
	during := metering.Interval{From: instant(from)}
	if r.IntN(2) == 0 {
		during.To = instant(from + 1 + r.Int64N(60*day))
	}
	return during
}

func (c *Customer) scope(r *rand.Rand, meter metering.Meter) billing.Scope {
	s := billing.Scope{Meter: meter}
	switch r.IntN(3) {
	case 0:
		s.Family = c.SKUs[r.IntN(len(c.SKUs))].Family
	case 1:
		s.SKU = c.SKUs[r.IntN(len(c.SKUs))].ID
	}
	return s
}

// tier gives some SKUs a graduated or volume price; nobody has a lock then.
func (c *Customer) tier(r *rand.Rand) {
	for i := range c.Instances {
		c.Instances[i].Locked = -1
	}
	for v := range c.Book.Versions {
		c.Book.Versions[v].Tiers = map[billing.PriceKey]billing.Tiers{}
		for _, sku := range c.SKUs {
			if r.IntN(3) == 0 {
				continue
			}
			key := billing.PriceKey{SKU: sku.ID, Meter: metering.GPU}
			tiers := billing.Tiers{Kind: []billing.Tiering{billing.Graduated, billing.Volume}[r.IntN(2)]}
			end := int64(0)
			for range 1 + r.IntN(2) {
				end += 1 + r.Int64N(300*hour)
				tiers.Steps = append(tiers.Steps, billing.Step{UpTo: big.NewRat(end, hour), Price: price(r, c.Currency)})
			}
			tiers.Steps = append(tiers.Steps, billing.Step{Price: price(r, c.Currency)})
			c.Book.Versions[v].Tiers[key] = tiers
			c.Book.Versions[v].Prices[key] = tiers.Steps[0].Price
		}
	}
}

// Line is what a line of an invoice must be: whole microseconds and minor units.
type Line struct{ Micros, Minor int64 }

// walk rates a month instant by instant.
type walk struct {
	c      *Customer
	month  metering.Interval
	quota  []*big.Int          // what is left of each free quota, in their order
	quotas []billing.FreeQuota // by contract, name
	pool   map[string]int64    // position by family and meter
	sums   map[string]*sum     // by line
	volume []func()            // what waits for the pool's total
	starts map[[2]int]int64    // first instant by instance and start
}

// sum is a line being summed.
type sum struct {
	name   string
	scope  billing.Scope
	micros int64
	exact  *big.Rat
}

// unit is one slice that runs during an elementary interval.
type unit struct {
	truth   Truth
	sku     billing.SKU
	subject id.Instance
	started int64
	covered bool
}

// OwedUnder is what the lines of a month must be under the customer's terms, grouped
// by LineGroup and ordered by size: everything that begins or ends cuts time into
// pieces within which nothing changes, and each piece is rated by hand.
func (c *Customer) OwedUnder(month metering.Interval) map[string][]Line {
	w := &walk{c: c, month: month, pool: map[string]int64{}, sums: map[string]*sum{}, starts: map[[2]int]int64{}}
	w.quotas = slices.SortedFunc(slices.Values(c.Terms.FreeQuotas), func(a, b billing.FreeQuota) int {
		return cmp.Or(bytes.Compare(a.Contract[:], b.Contract[:]), cmp.Compare(a.Name, b.Name))
	})
	for _, q := range w.quotas {
		w.quota = append(w.quota, new(big.Int).Set(q.Quantity))
	}
	for _, t := range c.Truths {
		k := [2]int{t.Instance, t.Start}
		if at, ok := w.starts[k]; !ok || t.From < at {
			w.starts[k] = t.From
		}
	}
	edges := w.edges()
	for i := 1; i < len(edges); i++ {
		for _, meter := range []metering.Meter{metering.GPU, metering.GPURetained} {
			w.piece(meter, edges[i-1], edges[i])
		}
	}
	for _, late := range w.volume {
		late()
	}
	return w.lines()
}

// edges are all instants of the month at which something begins or ends.
func (w *walk) edges() []int64 {
	from, to := w.month.From.UnixMicro(), w.month.To.UnixMicro()
	edges := []int64{from, to}
	add := func(at int64) {
		if at > from && at < to {
			edges = append(edges, at)
		}
	}
	during := func(i metering.Interval) {
		add(i.From.UnixMicro())
		if !i.Open() {
			add(i.To.UnixMicro())
		}
	}
	for _, t := range w.c.Truths {
		add(t.From)
		add(t.To)
	}
	for _, v := range w.c.Book.Versions {
		add(v.EffectiveFrom.UnixMicro())
	}
	for _, x := range w.c.Terms.Reservations {
		during(x.During)
	}
	for _, x := range w.c.Terms.Discounts {
		during(x.During)
	}
	for _, x := range w.c.Terms.Prices {
		during(x.During)
	}
	slices.Sort(edges)
	return slices.Compact(edges)
}

func within(i metering.Interval, at int64) bool {
	return i.From.UnixMicro() <= at && (i.Open() || at < i.To.UnixMicro())
}

func matches(s billing.Scope, meter metering.Meter, sku billing.SKU) bool {
	return (s.Meter == "" || s.Meter == meter) && (s.Family == "" || s.Family == sku.Family) && (s.SKU == [16]byte{} || s.SKU == sku.ID)
}

// piece rates what runs on one meter in [from, to).
func (w *walk) piece(meter metering.Meter, from, to int64) {
	var units []*unit
	for _, t := range w.c.Truths {
		if t.Meter == meter && t.From <= from && to <= t.To {
			units = append(units, &unit{
				truth: t, sku: w.c.SKUs[t.SKU], subject: w.c.Instances[t.Instance].ID, started: w.starts[[2]int{t.Instance, t.Start}],
			})
		}
	}
	if len(units) == 0 {
		return
	}
	if meter == metering.GPU {
		w.reserve(units, from, to)
	}
	slices.SortFunc(units, func(a, b *unit) int { return bytes.Compare(a.subject[:], b.subject[:]) })
	for from < to {
		from = w.stretch(meter, units, from, to)
	}
}

// reserve covers the oldest starts by what is reserved.
func (w *walk) reserve(units []*unit, from, to int64) {
	slices.SortFunc(units, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.started, b.started), bytes.Compare(a.subject[:], b.subject[:]))
	})
	reserved := slices.SortedFunc(slices.Values(w.c.Terms.Reservations), func(a, b billing.ReservedCapacity) int {
		return cmp.Or(a.During.From.Compare(b.During.From), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for _, r := range reserved {
		left := r.Units
		if !within(r.During, from) {
			continue
		}
		for _, u := range units {
			if left > 0 && !u.covered && u.sku.Family == r.Family {
				u.covered, left = true, left-1
				w.free(u, r.ID.String(), to-from)
			}
		}
	}
}

// free adds time that costs nothing.
func (w *walk) free(u *unit, reference string, micros int64) {
	w.add(fmt.Sprintf("covered %s %s", w.group(u), reference), LineGroupOf("covered", w.c.Projects[w.c.Instances[u.truth.Instance].Project], u.truth.Meter, u.sku.Code),
		billing.Scope{Meter: u.truth.Meter, Family: u.sku.Family, SKU: u.sku.ID}, micros, new(big.Rat))
}

func (w *walk) group(u *unit) string {
	return fmt.Sprintf("%s %s %s", w.c.Projects[w.c.Instances[u.truth.Instance].Project], u.truth.Meter, u.sku.Code)
}

// stretch rates as much of [from, to) as no free quota ends in, and returns its end.
func (w *walk) stretch(meter metering.Meter, units []*unit, from, to int64) int64 {
	length := to - from
	open, takers, shorter := w.allot(meter, units, length)
	for shorter > 0 {
		length = shorter
		open, takers, shorter = w.allot(meter, units, length)
	}
	for i, q := range w.quotas {
		for _, u := range takers[i] {
			w.free(u, q.Contract.String()+q.Name, length)
		}
		w.quota[i].Sub(w.quota[i], big.NewInt(int64(len(takers[i]))*length))
	}
	w.charge(open, from, length)
	return from + length
}

// allot says which units take from which free quota for so long; a length above 0 is
// how long to ask for instead, because a quota ends before.
func (w *walk) allot(meter metering.Meter, units []*unit, length int64) (open []*unit, takers [][]*unit, shorter int64) {
	open = slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return u.covered })
	takers = make([][]*unit, len(w.quotas))
	for i, q := range w.quotas {
		left := w.quota[i].Int64()
		mine := func(u *unit) bool { return matches(q.Scope, meter, u.sku) }
		k := int64(0)
		for _, u := range open {
			if mine(u) {
				k++
			}
		}
		if k > 0 && left > 0 && left < k*length && length > 1 {
			return nil, nil, max(1, left/k)
		}
		var rest []*unit
		for _, u := range open {
			if mine(u) && int64(len(takers[i])+1)*length <= left {
				takers[i] = append(takers[i], u)
			} else {
				rest = append(rest, u)
			}
		}
		open = rest
	}
	return open, takers, 0
}

// charge prices uncovered units for some microseconds, unit by unit within each.
func (w *walk) charge(open []*unit, from, length int64) {
	count := map[string]int64{}
	for _, u := range open {
		count[u.sku.Family+string(u.truth.Meter)]++
	}
	place := map[string]int64{}
	for _, u := range open {
		pool := u.sku.Family + string(u.truth.Meter)
		w.chargeUnit(u, from, length, w.pool[pool]+place[pool], count[pool], pool)
		place[pool]++
	}
	for pool, k := range count {
		w.pool[pool] += k * length
	}
}

// chargeUnit prices one unit whose microseconds lie at position, position + step, …
// of its pool.
func (w *walk) chargeUnit(u *unit, from, length, position, step int64, pool string) {
	version, _ := w.c.inForce(from, w.month.To.UnixMicro())
	v := w.c.Book.Versions[version]
	key := billing.PriceKey{SKU: u.sku.ID, Meter: u.truth.Meter}
	for _, p := range w.c.Terms.Prices {
		if p.Key == key && within(p.During, from) {
			w.contract(u, from, length, p, version)
			return
		}
	}
	tiers, tiered := v.Tiers[key]
	switch {
	case !tiered:
		name, price := w.c.priced(u.truth, version)
		w.line(u, from, name, length, price)
	case tiers.Kind == billing.Graduated:
		done := int64(0)
		for i, s := range tiers.Steps {
			upTo := length
			if s.UpTo != nil {
				end := s.UpTo.Num().Int64() * (hour / s.UpTo.Denom().Int64())
				upTo = min(length, max(0, (end-position+step-1)/step))
				if end <= position {
					upTo = 0
				}
			}
			if upTo > done {
				w.line(u, from, fmt.Sprintf("%s tier %d", v.ID, i), upTo-done, decimal(s.Price.Decimal()))
				done = upTo
			}
		}
	default:
		w.volume = append(w.volume, func() {
			for i, s := range tiers.Steps {
				if s.UpTo == nil || w.pool[pool] <= s.UpTo.Num().Int64()*(hour/s.UpTo.Denom().Int64()) {
					w.line(u, from, fmt.Sprintf("%s tier %d", v.ID, i), length, decimal(s.Price.Decimal()))
					return
				}
			}
		})
	}
}

// contract prices by a contract, a lock being a ceiling still.
func (w *walk) contract(u *unit, from, length int64, p billing.ContractPrice, version int) {
	agreed := decimal(p.Price.Decimal())
	inst := w.c.Instances[u.truth.Instance]
	if inst.Locked >= 0 {
		locked := w.c.Book.Versions[inst.Locked]
		if ceiling := decimal(locked.Prices[p.Key].Decimal()); ceiling.Cmp(agreed) < 0 {
			w.line(u, from, w.group(u)+" "+locked.ID.String(), length, ceiling)
			return
		}
	}
	w.line(u, from, fmt.Sprintf("%s contract %s %d", w.group(u), p.Contract, 0*version), length, agreed)
}

// line adds time at a price, less the discounts in force.
func (w *walk) line(u *unit, from int64, name string, micros int64, price *big.Rat) {
	factor := big.NewRat(1, 1)
	var applied []string
	for _, d := range w.c.Terms.Discounts {
		if matches(d.Scope, u.truth.Meter, u.sku) && within(d.During, from) {
			factor.Mul(factor, big.NewRat(1_000_000-d.PPM, 1_000_000))
			applied = append(applied, d.Contract.String()+d.Name)
		}
	}
	slices.Sort(applied)
	exact := big.NewRat(micros, hour)
	exact.Mul(exact, price).Mul(exact, factor)
	project := w.c.Projects[w.c.Instances[u.truth.Instance].Project]
	w.add(fmt.Sprint("usage ", w.group(u), " ", name, applied), LineGroupOf("usage", project, u.truth.Meter, u.sku.Code),
		billing.Scope{Meter: u.truth.Meter, Family: u.sku.Family, SKU: u.sku.ID}, micros, exact)
}

func (w *walk) add(line, group string, scope billing.Scope, micros int64, exact *big.Rat) {
	s := w.sums[line]
	if s == nil {
		s = &sum{name: group, scope: scope, exact: new(big.Rat)}
		w.sums[line] = s
	}
	s.micros += micros
	s.exact.Add(s.exact, exact)
}

// lines rounds each line once and adds what is agreed as amounts.
func (w *walk) lines() map[string][]Line {
	out := map[string][]Line{}
	net := int64(0)
	for _, s := range w.sums {
		minor := roundHalfAway(s.exact, w.c.Currency.Exponent())
		net += minor
		out[s.name] = append(out[s.name], Line{Micros: s.micros, Minor: minor})
	}
	flat := func(component string, minor int64) {
		if minor != 0 {
			out[component] = append(out[component], Line{Minor: minor})
			net += minor
		}
	}
	for _, x := range w.c.Terms.Commitments {
		flat("commitment", max(0, x.Amount.Minor()-net))
	}
	for _, x := range w.c.Terms.FixedDiscounts {
		flat("fixed_discount", -min(x.Amount.Minor(), net))
	}
	promos := slices.SortedFunc(slices.Values(w.c.Terms.Promos), func(a, b billing.Promo) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), bytes.Compare(a.Grant[:], b.Grant[:]))
	})
	for _, x := range promos {
		flat("promo_credit", -min(x.Remaining.Minor(), net))
	}
	for _, lines := range out {
		sortLines(lines)
	}
	return out
}

func sortLines(lines []Line) {
	slices.SortFunc(lines, func(a, b Line) int { return cmp.Or(cmp.Compare(a.Micros, b.Micros), cmp.Compare(a.Minor, b.Minor)) })
}

// LineGroupOf names lines that differ in price, tier, contract or discounts only.
func LineGroupOf(component string, project id.Project, meter metering.Meter, sku string) string {
	return fmt.Sprintf("%s %s %s %s", component, project, meter, sku)
}

// Grouped is the product's lines in the form of OwedUnder.
func Grouped(lines []billing.Line) map[string][]Line {
	out := map[string][]Line{}
	for _, l := range lines {
		group := string(l.Key.Component)
		line := Line{Minor: l.Amount.Minor()}
		if l.Key.Component == billing.UsageCharge || l.Key.Component == billing.Covered {
			group = LineGroupOf(group, l.Key.Project, l.Key.Meter, l.SKUCode)
			line.Micros = l.Quantity.Int64()
		}
		out[group] = append(out[group], line)
	}
	for _, lines := range out {
		sortLines(lines)
	}
	return out
}
