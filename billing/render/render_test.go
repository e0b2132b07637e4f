package render_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/testkit/situations"
)

func page(t *testing.T, v billing.Invoice) string {
	t.Helper()
	b, err := render.HTML(v)
	require.NoError(t, err)
	return string(b)
}

func TestWhatAFinancePersonLooksFor(t *testing.T) {
	v := situations.Named(t, "plain-usage")
	html := page(t, v)
	for _, want := range []string{
		"TR-2026-000001", "Acme &amp; Sons", "partitioned", "host: shared kernel", "dedicated", "host: single org host",
		"1.501944 GPU-hours", "5407000001 gpu_us", "5,407.000001", "per GPU-hour", "0.49", "0.74", "77.19", "77.93",
		"Tax S 19 % of 77.93", ">14.81<", "92.74 EUR", "Simulated hardware", "(simulated)", "2 December 2026", "DE123456789",
	} {
		require.Contains(t, html, want)
	}
	require.Equal(t, 1, strings.Count(html, "(simulated)"), "only the line that was")
	require.NotContains(t, html, "may still change")
	require.Contains(t, page(t, situations.Named(t, "preview")), "may still change")
}

// The content that article 226 of the EU's VAT directive asks for, on the stored
// original.
func TestTheOriginalHasItsLegalContent(t *testing.T) {
	f := fonts(t, han)
	for name, wants := range map[string][]string{
		"plain-usage": {
			"Date of issue | 2 December 2026", "Number | TR-2026-000001", "Tranche Cloud GmbH", "Slicestraße 1", "Tax id DE123456789",
			"Acme & Sons AG", "80331 München", "Tax id DE987654321", "Date of supply | 30 November 2026", "1.501944 GPU-hours", "per GPU-hour",
			"H200-141 mig 1g.18gb (simulated)", "Isolation: partitioned, host: shared kernel", "Tax S 19 % of 77.93 | 14.81", "Total | 92.74 EUR",
			"DE02120300000000202051", "Payable by | 16 December 2026", "Simulated hardware", "Content hash", "Page 1 / 1",
		},
		"discounts":        {"Discount: Volume agreement 1 -10 %", "Discount: Partner discount", "-5.00"},
		"reverse-charge":   {"Reverse charge. VAT is due by the recipient", "FR12345678901", "Tax AE 0 % of 99.60 | 0.00"},
		"promo-prepaid":    {"Promotional credit: Welcome credit", "Tax S 20 % of 80.00 | 16.00", "Total | 96.00 EUR", "Paid from prepaid balance | -30.00", "Amount due | 66.00 EUR"},
		"credit-note":      {"Credit note", "Amount credited | -24.31 EUR", "Corrects invoice | TR-2026-000001 of 2 December 2026", "Host failure on 12 November", "-7.000000 GPU-hours", "Corrects invoice TR-2026-000001, line 2"},
		"re-issue":         {"Replaces invoice | TR-2026-000001 of 2 December 2026"},
		"advance":          {"Advance invoice", "Date of payment | 4 November 2026", "Amount due | 119.00 EUR"},
		"advance-deducted": {"Advance invoiced before: Advance", "-100.00"},
		"no-tax-table":     {"Not subject to tax. No tax was computed"},
		"reservation":      {"Covered, reserved: H200-141", "500.000000 GPU-hours", "720.000000 reserved"},
		"german":           {"Rechnung", "2. Dezember 2026", "3.704,19", "1.234,56", "3,000416", "Steuer S 19 % auf"},
		"chinese":          {"发票", "2026年12月2日", "切片云（北京）有限公司", "433.96 CNY"},
	} {
		text := textOf(t, pdf(t, situations.Named(t, name), f))
		for _, want := range wants {
			if !strings.Contains(want, " | ") && name == "chinese" {
				text = strings.ReplaceAll(text, " | ", "") // between runs of two fonts
			}
			require.Contains(t, text, want, name)
		}
	}
}

func TestTheTableHeadIsRepeatedAndPagesAreNumbered(t *testing.T) {
	text := textOf(t, pdf(t, situations.Named(t, "many-lines"), fonts(t, "")))
	pages := strings.Split(strings.TrimSuffix(text, "\f\n"), "\f\n")
	require.Greater(t, len(pages), 3)
	require.Contains(t, text, fmt.Sprintf("Seite 2 / %d", len(pages)))
	for i, p := range pages[:len(pages)-1] {
		require.Contains(t, p, "Beschreibung", "page %d", i+1)
	}
	for no := range 45 {
		require.Regexp(t, regexp.MustCompile(`(?m)^`+big.NewInt(int64(no+1)).String()+` \| `), text)
	}
	require.NotContains(t, text, strings.Repeat("x", 60), "a long word is cut, not overprinted")
}

// What was paid later is no part of the original, but of copies.
func TestTheOriginalStaysAsItWasIssued(t *testing.T) {
	f := fonts(t, "")
	v := situations.Named(t, "plain-usage")
	before := pdf(t, v, f)
	v, err := v.Settled(billing.Settlement{Paid: v.Total})
	require.NoError(t, err)
	require.Equal(t, before, pdf(t, v, f))
	require.Contains(t, page(t, v), "<dt>Payable by</dt>")
	require.Contains(t, page(t, v), ">-92.74<")
}

func TestAMissingHanFontIsSaidOnTheInvoice(t *testing.T) {
	v := situations.Named(t, "chinese")
	with, without := textOf(t, pdf(t, v, fonts(t, han))), textOf(t, pdf(t, v, fonts(t, "")))
	require.NotContains(t, with, "\uFFFD")
	require.Contains(t, without, "This PDF has no font for some characters")
	require.Contains(t, without, "Invoice", "captions that can be read")
	require.NotContains(t, without, "切")
	v.Buyer.Name = "emoji 🚀 and العربية"
	text := textOf(t, pdf(t, v, fonts(t, han)))
	require.Contains(t, text, "emoji \uFFFD and", "no character is dropped silently")
	require.Contains(t, strings.ReplaceAll(text, " | ", ""), "本 PDF 缺少部分字符的字体")
}

func TestAFontThatCannotBeUsedIsRefused(t *testing.T) {
	for _, path := range []string{"testdata/none.ttf", "testdata/README.md", "testdata"} {
		_, err := render.LoadFonts(path)
		require.Equal(t, fault.Invalid, fault.KindOf(err), path)
		require.NotEmpty(t, fault.From(err).Suggestion)
	}
}

func TestAnUnknownLocaleIsEnglish(t *testing.T) {
	v := situations.Named(t, "german")
	require.Contains(t, page(t, v), `<html lang="de">`)
	for locale, want := range map[string]string{"fr": "en", "": "en", "zh-CN": "zh-Hans", "DE": "de", "en-US": "en"} {
		v.Locale = locale
		require.Contains(t, page(t, v), `<html lang="`+want+`">`, locale)
	}
}

// Each caption has its words in each language: none shows by its key, and a German or
// Chinese page has no English ones.
func TestEveryLanguageHasItsWords(t *testing.T) {
	for _, s := range situations.All(t) {
		for _, locale := range []string{"en", "de", "zh"} {
			s.Invoice.Locale = locale
			html := page(t, s.Invoice)
			require.NotRegexp(t, `\b(component|unit|units|measure|isolation|tax|pricing)\.[a-zA-Z_]`, html, "%s in %s", s.Name, locale)
			require.NotContains(t, html, "%!", s.Name)
			for _, word := range []string{"Net total", "Description", "Unit price", "Date of issue", "Quantities are exact"} {
				require.Equal(t, locale == "en", strings.Contains(html, word), "%s: %s in %s", s.Name, word, locale)
			}
		}
	}
}

func TestRealHardwareCarriesNoRemark(t *testing.T) {
	v := situations.Named(t, "plain-usage")
	for i := range v.Lines {
		v.Lines[i].Simulated = false
	}
	require.NotContains(t, strings.ToLower(page(t, v)), "simulated")
	require.NotContains(t, strings.ToLower(textOf(t, pdf(t, v, fonts(t, "")))), "simulated")
}

// Everything a customer can name is text on the page, never markup.
func TestNamesAreEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.Hash}}</style>`
	v := situations.Named(t, "plain-usage")
	v.Buyer = billing.Party{Name: evil, Address: []string{evil}, Country: evil, TaxID: evil}
	v.Seller.Name, v.Number, v.Reason, v.Notes = evil, evil, evil, []string{evil}
	v.Lines = append([]billing.Line(nil), v.Lines...)
	for i := range v.Lines {
		v.Lines[i].Description, v.Lines[i].ProjectName, v.Lines[i].SKUCode = evil, evil, evil
		v.Lines[i].Key.IsolationGPU = evil
		for j := range v.Lines[i].Subjects {
			v.Lines[i].Subjects[j].Name = evil
		}
	}
	html := page(t, v)
	require.NotContains(t, html, "<script")
	require.NotContains(t, html, "<img")
	require.Equal(t, 1, strings.Count(html, "</style>"))
	require.Contains(t, html, "&lt;script&gt;")
	require.Contains(t, html, "{{.Hash}}", "not evaluated")
}

func TestPageLoadsUnderItsPolicy(t *testing.T) {
	html := page(t, situations.Named(t, "reservation"))
	found := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(html)
	require.Len(t, found, 2)
	sum := sha256.Sum256([]byte(found[1]))
	require.Contains(t, render.ContentSecurityPolicy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	for _, banned := range []string{"<script", " style=", " src=", " href=", "@import", "url(", "http:", "https:"} {
		require.NotContains(t, html, banned)
	}
	require.NotRegexp(t, `<[^>]* on[a-z]+=`, html)
}

// The figures that a page shows add up to the document, read back from the page.
func TestTheFiguresOnThePageAddUp(t *testing.T) {
	cells := regexp.MustCompile(`(?s)<td class="n">([^<]*)</td></tr>`)
	for _, s := range situations.All(t) {
		s.Invoice.Locale = "en"
		html := page(t, s.Invoice)
		_, table, _ := strings.Cut(html, `<table class="lines">`)
		table, rest, _ := strings.Cut(table, `</table>`)
		body, foot, _ := strings.Cut(table, "<tfoot>")
		zero := money.NewAmount(0, s.Invoice.Currency)
		net := zero
		for _, m := range cells.FindAllStringSubmatch(body, -1) {
			net = plus(t, net, m[1])
		}
		require.Equal(t, s.Invoice.Subtotal, net, s.Name)
		sums := cells.FindAllStringSubmatch(foot, -1)
		require.Equal(t, s.Invoice.Subtotal, plus(t, zero, sums[0][1]), s.Name)
		require.Equal(t, s.Invoice.Due.String(), strings.ReplaceAll(sums[len(sums)-1][1], ",", ""), s.Name)
		require.Contains(t, foot, strings.ReplaceAll(s.Invoice.Total.String(), s.Invoice.Total.Decimal(), "")+"</td>", s.Name)
		for _, shares := range strings.Split(rest, `<table class="shares">`)[1:] {
			body, foot, _ := strings.Cut(shares, "<tfoot>")
			sum := zero
			for _, m := range cells.FindAllStringSubmatch(body, -1) {
				sum = plus(t, sum, m[1])
			}
			require.Equal(t, plus(t, zero, cells.FindStringSubmatch(foot)[1]), sum, "%s: resources sum to their line", s.Name)
		}
	}
}

func plus(t *testing.T, a money.Amount, text string) money.Amount {
	t.Helper()
	b, err := money.ParseAmount(strings.ReplaceAll(text, ",", ""), a.Currency())
	require.NoError(t, err)
	sum, err := a.Add(b)
	require.NoError(t, err)
	return sum
}

func TestLargeQuantitiesStayExact(t *testing.T) {
	v := situations.Named(t, "plain-usage")
	v.Lines = append([]billing.Line(nil), v.Lines...)
	v.Lines[0].Quantity, _ = new(big.Int).SetString("123456789012345678901234567890", 10)
	require.Contains(t, page(t, v), "123456789012345678901234567890 gpu_us")
}

func TestCSVIsNoFormula(t *testing.T) {
	v := situations.Named(t, "no-tax-table")
	v.Lines = append([]billing.Line(nil), v.Lines...)
	for _, evil := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"} {
		v.Lines[0].Description, v.Lines[0].ProjectName = evil, evil
		for name, make := range map[string]func(billing.Invoice) ([]byte, error){"lines": render.LinesCSV, "subjects": render.SubjectsCSV} {
			out, err := make(v)
			require.NoError(t, err)
			records, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
			require.NoError(t, err)
			for _, r := range records[1:] {
				require.NotContains(t, r, evil, name)
				for _, cell := range r {
					require.NotRegexp(t, `^[=@\t\r\n]|^[+-][^\d]`, cell, name)
				}
			}
		}
	}
}

// CSV and JSON sum to the document in every currency, with a point in every locale.
func TestCopiesForProgramsSumToTheDocument(t *testing.T) {
	for _, s := range situations.All(t) {
		v := s.Invoice
		for _, make := range []func(billing.Invoice) ([]byte, error){render.LinesCSV, render.SubjectsCSV} {
			out, err := make(v)
			require.NoError(t, err)
			records, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
			require.NoError(t, err)
			want, got := money.NewAmount(0, v.Currency), money.NewAmount(0, v.Currency)
			for _, r := range records[1:] {
				for i, head := range records[0] {
					if head == "amount" {
						got = plus(t, got, r[i])
					}
				}
			}
			for _, l := range v.Lines {
				if records[0][9] == "component" || len(l.Subjects) > 0 {
					want = plus(t, want, l.Amount.Decimal())
				}
			}
			require.Equal(t, want, got, s.Name)
		}
		out, err := render.JSON(v)
		require.NoError(t, err)
		var doc struct {
			Copy  bool
			Lines []struct{ Amount string }
			Net   string `json:"net_total"`
			Due   string
		}
		require.NoError(t, json.Unmarshal(out, &doc))
		require.True(t, doc.Copy)
		require.Len(t, doc.Lines, len(v.Lines))
		require.Equal(t, v.Subtotal.Decimal(), doc.Net)
		require.Equal(t, v.Due.Decimal(), doc.Due)
	}
}

func TestAPreviewHasNoIDAndNoDate(t *testing.T) {
	v := situations.Named(t, "preview")
	require.Equal(t, id.Invoice{}, v.ID)
	v.CreatedAt = time.Time{}
	require.Contains(t, textOf(t, pdf(t, v, fonts(t, ""))), "Not issued")
	out, err := render.JSON(v)
	require.NoError(t, err)
	require.NotContains(t, string(out), `"number"`)
}

func TestOriginalsComeInTwoFormats(t *testing.T) {
	o, err := render.NewOriginals("")
	require.NoError(t, err)
	v := situations.Named(t, "plain-usage")
	for format, want := range map[string][2]string{billing.FormatPDF: {"application/pdf", "%PDF-"}, billing.FormatUBL: {"application/xml", "<?xml"}} {
		media, body, err := o.Original(v, format)
		require.NoError(t, err)
		require.Equal(t, want[0], media)
		require.True(t, strings.HasPrefix(string(body), want[1]))
	}
	_, _, err = o.Original(v, "docx")
	require.Error(t, err)
	_, _, err = o.Original(situations.Named(t, "dinar"), billing.FormatUBL)
	require.Equal(t, fault.Unprocessable, fault.KindOf(err))
	_, err = render.NewOriginals("testdata/none.ttf")
	require.Equal(t, fault.Invalid, fault.KindOf(err))
}
