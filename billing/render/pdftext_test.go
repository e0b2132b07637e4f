package render_test

import (
	"bytes"
	"cmp"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// stroke is a piece of text where a PDF shows it, in points from the lower left.
type stroke struct {
	x, y float64
	text string
}

var (
	streams = regexp.MustCompile(`(?s)stream\n(.*?)\nendstream`)
	shows   = regexp.MustCompile(`(?s)BT ([\d.-]+) ([\d.-]+) Td \((.*?[^\\]|)\)\s*Tj ET`)
)

// textOf reads back what a PDF shows, a line of text a line of the page.
func textOf(t *testing.T, pdf []byte) string {
	t.Helper()
	var b strings.Builder
	for _, s := range streams.FindAllSubmatch(pdf, -1) {
		r, err := zlib.NewReader(bytes.NewReader(s[1]))
		if err != nil {
			continue // a stream of another kind
		}
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		if !bytes.Contains(content, []byte(" Td (")) {
			continue
		}
		b.WriteString(pageText(t, content))
		b.WriteString("\f\n")
	}
	return b.String()
}

func pageText(t *testing.T, content []byte) string {
	t.Helper()
	var strokes []stroke
	for _, m := range shows.FindAllSubmatch(content, -1) {
		x, err := strconv.ParseFloat(string(m[1]), 64)
		require.NoError(t, err)
		y, err := strconv.ParseFloat(string(m[2]), 64)
		require.NoError(t, err)
		strokes = append(strokes, stroke{x, y, unicodeOf(m[3])})
	}
	slices.SortStableFunc(strokes, func(a, b stroke) int { return cmp.Compare(b.y, a.y) })
	var b strings.Builder
	for len(strokes) > 0 {
		end := slices.IndexFunc(strokes, func(s stroke) bool { return strokes[0].y-s.y > 1.5 })
		if end < 0 {
			end = len(strokes)
		}
		beside := strokes[:end]
		slices.SortStableFunc(beside, func(a, b stroke) int { return cmp.Compare(a.x, b.x) })
		for i, s := range beside {
			if i > 0 {
				b.WriteString(" | ")
			}
			b.WriteString(s.text)
		}
		b.WriteByte('\n')
		strokes = strokes[end:]
	}
	return b.String()
}

// unicodeOf undoes the escapes of a PDF string and reads it as UTF-16.
func unicodeOf(escaped []byte) string {
	var raw []byte
	for i := 0; i < len(escaped); i++ {
		if escaped[i] == '\\' && i+1 < len(escaped) {
			i++
			if escaped[i] == 'r' {
				raw = append(raw, '\r')
				continue
			}
		}
		raw = append(raw, escaped[i])
	}
	if len(raw)%2 == 1 {
		return fmt.Sprintf("?%x", raw)
	}
	units := make([]uint16, len(raw)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(raw[2*i:])
	}
	return string(utf16.Decode(units))
}
