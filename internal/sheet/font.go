package sheet

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/tranche-cloud/tranche/internal/fault"
)

//go:embed fonts/NotoSans-Regular.ttf
var notoRegular []byte

//go:embed fonts/NotoSans-Bold.ttf
var notoBold []byte

// Fonts are the typefaces of documents: Noto Sans for Latin, Greek and Cyrillic,
// and, where one is configured, a font for Han characters.
type Fonts struct {
	han              []byte
	latinHas, hanHas *glyphs
}

// LoadFonts reads the Han font, a plain TrueType file; "" for none. It fails with
// fault.Invalid for a file that cannot be read or is of another kind, such as a
// collection (.ttc) or one with PostScript outlines.
func LoadFonts(han string) (Fonts, error) {
	f := Fonts{latinHas: latinGlyphs, hanHas: &glyphs{}}
	if han == "" {
		return f, nil
	}
	bad := fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("The Han font %s cannot be used.", han)).
		Suggest("Name a plain TrueType file (.ttf), such as DroidSansFallbackFull.ttf of Debian's fonts-droid-fallback; collections (.ttc) and PostScript outlines (.otf) do not work.")
	data, err := os.ReadFile(han)
	if err != nil {
		return Fonts{}, bad.Because(err)
	}
	if f.hanHas, err = glyphsOf(data); err != nil {
		return Fonts{}, bad.Because(err)
	}
	f.han = data
	return f, nil
}

// Covers reports whether every character of the text can be shown.
func (f Fonts) Covers(text string) bool {
	for _, r := range text {
		if r != '\n' && !f.latinHas.has(r) && !f.hanHas.has(r) {
			return false
		}
	}
	return true
}

// glyphs is which characters of the basic plane a font has; others never show.
type glyphs struct{ bits [1 << 10]uint64 }

func (g *glyphs) has(r rune) bool {
	return r >= 0 && r < 1<<16 && g.bits[r>>6]&(1<<(r&63)) != 0
}

func (g *glyphs) add(first, last int) {
	for r := first; r <= last && r < 1<<16; r++ {
		g.bits[r>>6] |= 1 << (r & 63)
	}
}

var latinGlyphs = mustGlyphs(notoRegular)

func mustGlyphs(font []byte) *glyphs {
	g, err := glyphsOf(font)
	if err != nil {
		panic(err)
	}
	return g
}

// glyphsOf reads the character map of a TrueType file.
func glyphsOf(font []byte) (*glyphs, error) {
	if len(font) < 12 || !bytes.Equal(font[:4], []byte{0, 1, 0, 0}) {
		return nil, fmt.Errorf("no plain TrueType file")
	}
	r := reader(font)
	for i := range int(r.u16(4)) {
		entry := 12 + 16*i
		if string(r.at(entry, 4)) == "cmap" {
			return charactersOf(r, int(r.u32(entry+8)))
		}
	}
	return nil, fmt.Errorf("a TrueType file without a character map")
}

// reader reads big-endian numbers; beyond the end they are 0.
type reader []byte

func (r reader) at(i, n int) []byte {
	if i < 0 || i+n > len(r) {
		return make([]byte, n)
	}
	return r[i : i+n]
}

func (r reader) u16(i int) uint16 { return binary.BigEndian.Uint16(r.at(i, 2)) }
func (r reader) u32(i int) uint32 { return binary.BigEndian.Uint32(r.at(i, 4)) }

// charactersOf reads the Unicode map of the basic plane, format 4, which is the one
// that the PDF writer reads.
func charactersOf(r reader, cmap int) (*glyphs, error) {
	for i := range int(r.u16(cmap + 2)) {
		record := cmap + 4 + 8*i
		platform, encoding, sub := r.u16(record), r.u16(record+2), cmap+int(r.u32(record+4))
		if r.u16(sub) != 4 || platform == 3 && encoding != 1 || platform != 0 && platform != 3 {
			continue
		}
		g := &glyphs{}
		segments := int(r.u16(sub+6)) / 2
		ends, starts := sub+14, sub+16+2*segments
		for s := range segments {
			first, last := int(r.u16(starts+2*s)), int(r.u16(ends+2*s))
			if first == 0xFFFF {
				continue
			}
			for c := first; c <= last; c++ {
				if r.glyph(starts, segments, s, c, first) != 0 {
					g.add(c, c)
				}
			}
		}
		return g, nil
	}
	return nil, fmt.Errorf("a TrueType file without a Unicode map of format 4")
}

// glyph is the index of a character in segment s, 0 for none.
func (r reader) glyph(starts, segments, s, c, first int) uint16 {
	deltas, offsets := starts+2*segments, starts+4*segments
	offset := int(r.u16(offsets + 2*s))
	if offset == 0 {
		return uint16(c) + r.u16(deltas+2*s) //nolint:gosec // the format adds modulo 65536
	}
	g := r.u16(offsets + 2*s + offset + 2*(c-first))
	if g == 0 {
		return 0
	}
	return g + r.u16(deltas+2*s)
}
