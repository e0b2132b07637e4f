package render_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/internal/testkit/golden"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

func fonts(t *testing.T, han string) render.Fonts {
	t.Helper()
	f, err := render.LoadFonts(han)
	require.NoError(t, err)
	return f
}

const han = "testdata/han.ttf"

func pdf(t *testing.T, v billing.Invoice, f render.Fonts) []byte {
	t.Helper()
	b, err := render.PDF(v, f)
	require.NoError(t, err)
	return b
}

// Each situation's documents lie in testdata/document, to be read and checked by hand.
func TestEveryRenderingOfEverySituation(t *testing.T) {
	all := situations.All(t)
	require.GreaterOrEqual(t, len(all), 12)
	withHan := fonts(t, han)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			folder := "document/" + s.Name + "/"
			html, err := render.HTML(s.Invoice)
			require.NoError(t, err)
			golden.Assert(t, folder+"invoice.html", html)
			lines, err := render.LinesCSV(s.Invoice)
			require.NoError(t, err)
			golden.Assert(t, folder+"lines.csv", lines)
			subjects, err := render.SubjectsCSV(s.Invoice)
			require.NoError(t, err)
			golden.Assert(t, folder+"subjects.csv", subjects)
			json, err := render.JSON(s.Invoice)
			require.NoError(t, err)
			golden.Assert(t, folder+"invoice.json", json)
			file := pdf(t, s.Invoice, withHan)
			golden.Assert(t, folder+"pdf.txt", fmt.Appendf(nil, "sha256 %x\n\n%s", sha256.Sum256(file), textOf(t, file)))
		})
	}
}

func TestTheSameDocumentGivesTheSameBytes(t *testing.T) {
	for _, name := range []string{"plain-usage", "chinese"} {
		v := situations.Named(t, name)
		require.Equal(t, pdf(t, v, fonts(t, han)), pdf(t, v, fonts(t, han)))
	}
}
