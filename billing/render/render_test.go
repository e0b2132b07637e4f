package render_test

import (
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/billing"
	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/billing/render"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/testkit/golden"
)

var (
	usd   = money.MustCurrency("USD")
	start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
)

// fixed returns an id that is the same in every run.
func fixed[I ~[16]byte](n byte) I {
	return I{1, 0x9c, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, n}
}

func document(t *testing.T) billing.Invoice {
	t.Helper()
	mig := billing.SKU{ID: [16]byte{1}, Code: "h200-mig-1g-16gib", Name: "H200-141 mig 1g.18gb", IsolationGPU: "partitioned", IsolationHost: "shared_kernel"}
	whole := billing.SKU{ID: [16]byte{2}, Code: "h100-whole", Name: "H100-80 whole", IsolationGPU: "dedicated", IsolationHost: "single_org_host"}
	book := billing.Book{ID: fixed[id.PriceBook](1), Currency: usd, Versions: []billing.Version{{
		ID: fixed[id.PriceVersion](1), Number: 1, EffectiveFrom: start,
		Prices: map[billing.PriceKey]money.Price{
			{SKU: mig.ID, Meter: metering.GPU}: money.MustPrice("0.49", usd), {SKU: whole.ID, Meter: metering.GPU}: money.MustPrice("2.49", usd),
		},
	}}}
	usage := func(n byte, sku billing.SKU, name string, d time.Duration) rating.Usage {
		return rating.Usage{
			Segment: metering.Segment{
				ID: fixed[id.Segment](n), Project: fixed[id.Project](1), Subject: metering.Subject{Kind: "instance", ID: fixed[[16]byte](n)},
				Meter: metering.GPU, Seq: 1, Units: 1, During: metering.Between(start, start.Add(d)),
			},
			SubjectName: name, ProjectName: "vision", SKU: sku, Book: book.ID, Pricing: billing.OnDemand, Simulated: n != 3,
		}
	}
	period := metering.Between(start, start.AddDate(0, 1, 0))
	res, err := rating.Rate(rating.Inputs{
		Period: period, At: period.To, Currency: usd, Books: map[id.PriceBook]billing.Book{book.ID: book},
		Usage: []rating.Usage{
			usage(1, mig, "train-a", 90*time.Minute+time.Microsecond), usage(2, mig, "train-b", 7*time.Second), usage(3, whole, "serve", 31*time.Hour),
		},
	})
	require.NoError(t, err)
	v, err := billing.Invoice{
		ID: fixed[id.Invoice](1), State: billing.Draft, Period: period, Currency: usd, Lines: res.Lines,
		Seller: billing.Party{Name: "Tranche", Address: []string{"1 Slice Street", "10115 Berlin"}, Country: "DE", TaxID: "DE123456789"},
		Buyer:  billing.Party{Name: "Acme & Sons", Address: []string{"2 Road"}, Country: "FR"},
	}.Compose()
	require.NoError(t, err)
	return v
}

func open(t *testing.T) billing.Invoice {
	t.Helper()
	v, err := document(t).Finalized("TR-2026-000001", start.AddDate(0, 1, 1))
	require.NoError(t, err)
	return v
}

func page(t *testing.T, v billing.Invoice) string {
	t.Helper()
	b, err := render.HTML(v)
	require.NoError(t, err)
	return string(b)
}

func TestGoldenInvoice(t *testing.T) {
	golden.Assert(t, "invoice.html", []byte(page(t, open(t))))
	require.Equal(t, page(t, open(t)), page(t, open(t)), "the same bytes")
}

func TestGoldenPreview(t *testing.T) {
	v := document(t)
	v.State, v.ID, v.Lines = billing.Preview, id.Invoice{}, nil
	v, err := v.Compose()
	require.NoError(t, err)
	golden.Assert(t, "preview-empty.html", []byte(page(t, v)))
}

func TestWhatAFinancePersonLooksFor(t *testing.T) {
	html := page(t, open(t))
	for _, want := range []string{
		"TR-2026-000001", "Acme &amp; Sons", "partitioned", "host: shared kernel", "dedicated", "host: single org host",
		"1.501944 GPU-hours", "5407000001 gpu_us", "per GPU-hour", "0.49", "0.74", "77.19", "77.93",
		"Tax O 0 % of 77.93", ">0.00<", "Simulated hardware", "(simulated)", "Issued 2 December 2026", "DE123456789",
	} {
		require.Contains(t, html, want)
	}
	require.Equal(t, 1, strings.Count(html, "(simulated)"), "only the line that was")
	require.NotContains(t, html, "may still change")
	require.Contains(t, page(t, document(t)), "may still change")
}

func TestRealHardwareCarriesNoRemark(t *testing.T) {
	v := open(t)
	for i := range v.Lines {
		v.Lines[i].Simulated = false
	}
	require.NotContains(t, strings.ToLower(page(t, v)), "simulated")
}

// Everything a customer can name is text on the page, never markup.
func TestNamesAreEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.Hash}}</style>`
	v := open(t)
	v.Buyer = billing.Party{Name: evil, Address: []string{evil}, Country: evil, TaxID: evil}
	v.Seller.Name, v.Number = evil, evil
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
	html := page(t, open(t))
	found := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(html)
	require.Len(t, found, 2)
	sum := sha256.Sum256([]byte(found[1]))
	require.Contains(t, render.ContentSecurityPolicy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	for _, banned := range []string{"<script", " style=", " src=", " href=", "@import", "url(", "http:", "https:", " on"} {
		if banned == " on" {
			require.NotRegexp(t, `<[^>]* on[a-z]+=`, html)
			continue
		}
		require.NotContains(t, html, banned)
	}
}

func TestLargeQuantitiesStayExact(t *testing.T) {
	v := open(t)
	v.Lines[0].Quantity, _ = new(big.Int).SetString("123456789012345678901234567890", 10)
	require.Contains(t, page(t, v), "123456789012345678901234567890 gpu_us")
}
