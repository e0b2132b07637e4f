package rating

import (
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/billing"
)

// Rate makes the lines: usage with one billing.LineKey is summed exactly and
// rounded once, and what terms add and take off follows in the order of components.
// Duplicates of a segment count once. It fails with fault.Internal for usage that
// cannot be priced, that overlaps, or of which two versions are given, and for
// monthly amounts over a period that is not within one calendar month; with
// fault.Invalid for terms that fail billing.Terms.Check; with money.ErrRange for a
// quantity or line beyond its bounds.
func Rate(in Inputs) (Result, error) {
	e, err := newEngine(&in, in.Period)
	if err != nil {
		return Result{}, err
	}
	b := &bill{e: e, lines: map[billing.LineKey]*line{}, slots: map[slotKey]*slotUse{}}
	b.expectMinimums()
	if err := e.run(b.add); err != nil {
		return Result{}, err
	}
	res := Result{Engine: Engine, Segments: e.segments(), Reservations: e.uses()}
	p := &purse{e: e}
	if res.Lines, err = b.usageLines(p); err != nil {
		return Result{}, err
	}
	flat, err := p.components()
	if err != nil {
		return Result{}, err
	}
	res.Lines, res.Promos = append(res.Lines, flat...), p.promos
	for i := range res.Lines {
		res.Lines[i].No = i + 1
	}
	res.Document, res.DocumentHash, err = document(e, b, res)
	return res, err
}

// usageLines finishes components 1 to 5: usage and what is derived from it, in the
// order of the document, and fills the purse with what they come to.
func (b *bill) usageLines(p *purse) ([]billing.Line, error) {
	var out []billing.Line
	pots := map[*line]*pot{}
	for _, l := range b.sorted() {
		done, err := l.finish()
		if err != nil {
			return nil, err
		}
		pots[l] = p.put(l, done.Amount)
		out = append(out, done)
	}
	for _, d := range slices.Concat(b.minimums(), b.capped()) {
		done, err := d.finish()
		if err != nil {
			return nil, err
		}
		out = append(out, done)
		if d.component == billing.MinimumCharge {
			p.put(d.base, done.Amount)
			continue
		}
		pot := pots[d.base]
		if pot.net, err = pot.net.Add(done.Amount); err != nil {
			return nil, fmt.Errorf("taking a cap off a line: %w", err)
		}
	}
	slices.SortFunc(out, func(x, y billing.Line) int {
		return compareKeys(x.Key, y.Key, x.SKUCode, y.SKUCode, x.During.From.UnixMicro(), y.During.From.UnixMicro())
	})
	p.sort()
	return out, nil
}

// segments counts the segments that contribute; pieces of one count once.
func (e *engine) segments() (n int64) {
	var last *Usage
	for _, v := range e.entries {
		if last == nil || last.ID != v.u.ID {
			n, last = n+1, v.u
		}
	}
	return n
}
