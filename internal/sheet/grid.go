package sheet

// Draw adds a grid. A row moves to the next page whole if it fits there; a row
// taller than a page continues on the next.
func (d *Document) Draw(g Grid) {
	if g.Head != nil && d.y+d.height(d.layout(g, *g.Head))+3*padMM+looks[Plain].lineHeight > bottomMM {
		d.page()
	}
	if g.Whole {
		d.keep(g)
	}
	d.head(g)
	for _, row := range g.Rows {
		cells := d.layout(g, row)
		if full := d.height(cells); d.y+full > bottomMM && full < bottomMM-topMM-20 {
			d.page()
			d.head(g)
		}
		d.row(g, row, cells)
	}
}

// keep begins a page if the grid fits on one, but no longer on this one.
func (d *Document) keep(g Grid) {
	whole := 0.0
	for _, row := range g.Rows {
		whole += d.height(d.layout(g, row))
	}
	if d.y+whole > bottomMM && whole < bottomMM-topMM {
		d.page()
	}
}

// laid is a cell cut into lines.
type laid struct {
	lines []line
	right bool
}

func (d *Document) layout(g Grid, row Row) []laid {
	out := make([]laid, len(row.Cells))
	for i, c := range row.Cells {
		out[i].right = c.Right
		for _, p := range c.Paragraphs {
			out[i].lines = append(out[i].lines, d.lines(p, float64(g.Widths[i])*mmPerUnit-gapMM)...)
		}
	}
	return out
}

func (d *Document) height(cells []laid) float64 {
	tallest := 0.0
	for _, c := range cells {
		h := 0.0
		for _, l := range c.lines {
			h += looks[l.style].lineHeight
		}
		tallest = max(tallest, h)
	}
	return tallest + 2*padMM
}

func (d *Document) head(g Grid) {
	if g.Head == nil {
		return
	}
	d.row(g, *g.Head, d.layout(g, *g.Head))
	d.rule(60)
}

func (d *Document) rule(grey int) {
	d.pdf.SetDrawColor(grey, grey, grey)
	d.pdf.SetLineWidth(0.2)
	d.pdf.Line(marginMM, d.y, marginMM+Width*mmPerUnit, d.y)
}

// row draws cells from the current height on, over as many pages as they take.
func (d *Document) row(g Grid, row Row, cells []laid) {
	if row.Ruled {
		d.rule(210)
	}
	for {
		lowest, rest := d.y+padMM, false
		x := marginMM
		for i := range cells {
			y := d.y + padMM
			width := float64(g.Widths[i]) * mmPerUnit
			for len(cells[i].lines) > 0 && y+looks[cells[i].lines[0].style].lineHeight <= bottomMM {
				l := cells[i].lines[0]
				cells[i].lines = cells[i].lines[1:]
				at := x
				if cells[i].right {
					at = x + width - gapMM - l.width
				}
				d.write(l, at, y)
				y += looks[l.style].lineHeight
			}
			lowest = max(lowest, y)
			rest = rest || len(cells[i].lines) > 0
			x += width
		}
		d.y = lowest + padMM
		if !rest {
			return
		}
		d.page()
	}
}
