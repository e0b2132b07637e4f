package sheet_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/sheet"
)

func draw(t *testing.T, rows int, text string) []byte {
	t.Helper()
	fonts, err := sheet.LoadFonts("")
	require.NoError(t, err)
	d := sheet.New(fonts, sheet.Meta{Title: "A title", Author: "An author", Language: "en", Page: "Page", At: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)})
	head := sheet.Row{Cells: []sheet.Cell{{Paragraphs: []sheet.Paragraph{{Text: "Head", Style: sheet.Bold}}}}}
	g := sheet.Grid{Widths: []int{400, sheet.Width - 400}, Head: &head}
	for range rows {
		g.Rows = append(g.Rows, sheet.Row{Ruled: true, Cells: []sheet.Cell{
			{Paragraphs: []sheet.Paragraph{{Text: text}}}, {Right: true, Paragraphs: []sheet.Paragraph{{Text: text, Style: sheet.Small}}},
		}})
	}
	d.Draw(g)
	d.Space(10)
	out, err := d.Bytes()
	require.NoError(t, err)
	return out
}

func TestTheSameCallsGiveTheSameBytes(t *testing.T) {
	want := draw(t, 30, "Größe – 3 × ≠")
	require.True(t, bytes.HasPrefix(want, []byte("%PDF-")))
	require.Equal(t, want, draw(t, 30, "Größe – 3 × ≠"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			draw(t, 3, "another, beside it")
			if !bytes.Equal(want, draw(t, 30, "Größe – 3 × ≠")) {
				t.Error("documents made beside each other change each other")
			}
		})
	}
	wg.Wait()
}

func pages(pdf []byte) int { return bytes.Count(pdf, []byte("/Type /Page\n")) }

func TestRowsFlowOverPages(t *testing.T) {
	require.Equal(t, 1, pages(draw(t, 3, "short")))
	require.Greater(t, pages(draw(t, 120, "short")), 2)
	require.Greater(t, pages(draw(t, 1, strings.Repeat("a row that is taller than one page ", 500))), 1)
	require.Equal(t, 1, pages(draw(t, 1, strings.Repeat("unbroken", 40))), "a long word is cut")
	require.Equal(t, 1, pages(draw(t, 1, "")))
	require.Equal(t, 1, pages(draw(t, 1, "a\nb\t\x00\u202e🚀")), "no character breaks a document")
}

func TestFontsSayWhatTheyHave(t *testing.T) {
	fonts, err := sheet.LoadFonts("")
	require.NoError(t, err)
	require.True(t, fonts.Covers("Größe 3 €\nΩ Ж"))
	for _, text := range []string{"切", "🚀", "ع"} {
		require.False(t, fonts.Covers(text), text)
	}
	_, err = sheet.LoadFonts("sheet_test.go")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
	require.Contains(t, fault.From(err).Suggestion, "TrueType")
}
