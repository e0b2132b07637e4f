package sheet

import (
	"strings"
	"unicode"
)

// run is text in one font.
type run struct {
	text string
	han  bool
}

// line is what stands beside each other.
type line struct {
	runs  []run
	style Style
	width float64 // mm
}

// missing stands for a character that no font has; Noto Sans has it.
const missing = '\uFFFD'

// runs splits text by font; a character without a glyph becomes the replacement sign.
func (d *Document) runs(text string) []run {
	var out []run
	for _, r := range text {
		isHan := false
		switch {
		case d.fonts.latinHas.has(r):
		case d.fonts.hanHas.has(r):
			isHan = true
		default:
			r = missing
		}
		if last := len(out) - 1; last >= 0 && out[last].han == isHan {
			out[last].text += string(r)
			continue
		}
		out = append(out, run{text: string(r), han: isHan})
	}
	return out
}

func (d *Document) use(style Style, isHan bool) {
	look := looks[style]
	switch {
	case isHan:
		d.pdf.SetFont(han, "", look.points)
	case look.bold:
		d.pdf.SetFont(latin, "B", look.points)
	default:
		d.pdf.SetFont(latin, "", look.points)
	}
}

func (d *Document) measure(text string, style Style) float64 {
	width := 0.0
	for _, r := range d.runs(text) {
		d.use(style, r.han)
		width += d.pdf.GetStringWidth(r.text)
	}
	return width
}

func (d *Document) finish(text string, style Style) line {
	text = strings.TrimRight(text, " ")
	return line{runs: d.runs(text), style: style, width: d.measure(text, style)}
}

// lines wraps a paragraph at spaces and between Han characters; a word wider than
// the room is cut. Text always makes at least one line.
func (d *Document) lines(p Paragraph, room float64) []line {
	var out []line
	for part := range strings.SplitSeq(p.Text, "\n") {
		current, width := "", 0.0
		for _, w := range words(part) {
			wide := d.measure(w, p.Style)
			if visible := d.measure(strings.TrimRight(w, " "), p.Style); current != "" && width+visible > room {
				out = append(out, d.finish(current, p.Style))
				current, width = "", 0
			}
			for wide > room && len([]rune(w)) > 1 {
				head, tail := d.cut(w, p.Style, room)
				if strings.TrimSpace(tail) == "" {
					break
				}
				out = append(out, d.finish(head, p.Style))
				w, wide = tail, d.measure(tail, p.Style)
			}
			current, width = current+w, width+wide
		}
		out = append(out, d.finish(current, p.Style))
	}
	return out
}

// cut splits a word where it fills the room; the head has at least one character.
func (d *Document) cut(word string, style Style, room float64) (head, tail string) {
	width := 0.0
	for i, r := range word {
		width += d.measure(string(r), style)
		if width > room && i > 0 {
			return word[:i], word[i:]
		}
	}
	return word, ""
}

// words splits text behind spaces and hyphens and around Han characters.
func words(text string) []string {
	var out []string
	start := 0
	runes := []rune(text)
	for i := range runes {
		breaks := i+1 < len(runes) && runes[i] == ' ' && runes[i+1] != ' ' ||
			i+1 < len(runes) && ideograph(runes[i]) && !unicode.IsPunct(runes[i+1]) && runes[i+1] != ' '
		if breaks {
			out = append(out, string(runes[start:i+1]))
			start = i + 1
		}
	}
	return append(out, string(runes[start:]))
}

func ideograph(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r >= 0x3000 && r <= 0x303F || r >= 0xFF00 && r <= 0xFF60
}

// write draws a line with its top left corner at (x, y) mm.
func (d *Document) write(l line, x, y float64) {
	look := looks[l.style]
	d.pdf.SetTextColor(look.grey, look.grey, look.grey)
	d.pdf.SetXY(x, y)
	for _, r := range l.runs {
		d.use(l.style, r.han)
		d.pdf.CellFormat(d.pdf.GetStringWidth(r.text), look.lineHeight, r.text, "", 0, "LM", false, 0, "")
	}
}
