package billing

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/money"
)

// TaxPoint says when the tax of a prepayment is due: an issuer's setting.
type TaxPoint string

// The tax points.
const (
	AtReceipt     TaxPoint = "receipt"     // an advance invoice at once, deducted later
	AtConsumption TaxPoint = "consumption" // with the usage
)

// Formats of the legal original.
const (
	FormatPDF = "pdf"
	FormatUBL = "ubl"
)

// Locales are the languages of documents.
var Locales = []string{"en", "de", "zh"}

// DefaultIssuer is the slug of who sells where an organization names no other.
const DefaultIssuer = "default"

// Issuer is who sells, as of an instant: everything documents take from it.
type Issuer struct {
	Slug          string
	EffectiveFrom time.Time
	LegalName     string
	Address       []string // lines
	Country       string   // ISO 3166-1 alpha-2
	TaxID         string
	TimeZone      string // IANA name: the year of numbers and the dates of documents are its
	Prefix        string // of numbers, TR; never changes
	Bank          Bank
	PaymentDays   int // until a document is due
	Locale        string
	TaxPoint      TaxPoint
	SmallAmounts  []money.Amount // one a currency: below it a period is carried on
	Retention     int            // years that originals are kept after the year of issue
	Original      string         // pdf or ubl
}

var (
	slugs     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)
	prefixes  = regexp.MustCompile(`^[A-Z0-9]{1,8}$`)
	countries = regexp.MustCompile(`^[A-Z]{2}$`)
)

// The bounds of an issuer's settings.
const (
	maxPaymentDays  = 365
	minRetention    = 6
	maxRetention    = 30
	maxName         = 200
	maxAddressLines = 8
)

// Check refuses a profile that could not be printed or numbered. It fails with
// fault.Invalid, naming the field.
func (i Issuer) Check() error {
	switch {
	case !slugs.MatchString(i.Slug):
		return refuse("/slug", "A slug is lower-case letters, digits and hyphens, at most 32.")
	case i.LegalName == "" || len(i.LegalName) > maxName:
		return refuse("/legal_name", "An issuer has a legal name.")
	case len(i.Address) == 0 || len(i.Address) > maxAddressLines:
		return refuse("/address", fmt.Sprintf("An address has 1 to %d lines.", maxAddressLines))
	case !countries.MatchString(i.Country):
		return refuse("/country", "A country is two letters (ISO 3166-1), such as DE.")
	case !prefixes.MatchString(i.Prefix) || i.Prefix == marks[CreditNote] || i.Prefix == marks[AdvanceInvoice]:
		return refuse("/prefix", "A prefix is 1 to 8 upper-case letters and digits, and neither CN nor AD.")
	case i.PaymentDays < 0 || i.PaymentDays > maxPaymentDays:
		return refuse("/payment_days", fmt.Sprintf("Payment is due within 0 to %d days.", maxPaymentDays))
	case !slices.Contains(Locales, i.Locale):
		return refuse("/locale", "Documents are written in en, de or zh.")
	case i.TaxPoint != AtReceipt && i.TaxPoint != AtConsumption:
		return refuse("/tax_point", "The tax point of prepayments is receipt or consumption.")
	case i.Retention < minRetention || i.Retention > maxRetention:
		return refuse("/retention_years", fmt.Sprintf("Originals are kept %d to %d years.", minRetention, maxRetention))
	case i.Original != FormatPDF && i.Original != FormatUBL:
		return refuse("/original", "The original is pdf or ubl.")
	}
	if _, err := i.Zone(); err != nil {
		return refuse("/time_zone", fmt.Sprintf("%.64q is no time zone.", i.TimeZone))
	}
	for n, a := range i.SmallAmounts {
		if a.Sign() < 0 || a.Currency().IsZero() ||
			slices.ContainsFunc(i.SmallAmounts[:n], func(b money.Amount) bool { return b.Currency() == a.Currency() }) {
			return refuse("/small_amounts", "A small amount is not negative, and there is one a currency.")
		}
	}
	return nil
}

// Zone returns the issuer's time zone, UTC for none. It fails for an unknown name.
func (i Issuer) Zone() (*time.Location, error) {
	if strings.EqualFold(i.TimeZone, "local") {
		return nil, fmt.Errorf("the zone %q depends on the machine", i.TimeZone)
	}
	zone, err := time.LoadLocation(i.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("reading the time zone of issuer %s: %w", i.Slug, err)
	}
	return zone, nil
}

// Party is the issuer as a seller on documents.
func (i Issuer) Party() Party {
	p := Party{Name: i.LegalName, Address: i.Address, Country: i.Country, TaxID: i.TaxID}
	if i.Bank != (Bank{}) {
		bank := i.Bank
		p.Bank = &bank
	}
	return p
}

// Small is the amount below which a period is carried on, 0 for none.
func (i Issuer) Small(c money.Currency) money.Amount {
	for _, a := range i.SmallAmounts {
		if a.Currency() == c {
			return a
		}
	}
	return money.NewAmount(0, c)
}
