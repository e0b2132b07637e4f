package billing

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Series is one gapless run of numbers: an issuer's prefix, a kind of document and a
// year.
type Series struct {
	Prefix string // TR
	Kind   Kind   // "" is a usage invoice
	Year   int
}

// marks stand between prefix and year of kinds with a series beside the invoices'.
var marks = map[Kind]string{CreditNote: "CN", AdvanceInvoice: "AD"}

// SeriesAt returns the series of an instant: its year in the issuer's time zone.
func SeriesAt(prefix string, kind Kind, at time.Time, zone *time.Location) Series {
	return Series{Prefix: prefix, Kind: kindOf(kind), Year: at.In(zone).Year()}
}

const numberDigits = 6

// Number returns the text of the n-th number, n ≥ 1: TR-2026-000001, of a credit
// note TR-CN-2026-000001. Beyond six digits it grows.
func (s Series) Number(n int) string {
	prefix := s.Prefix
	if mark := marks[s.Kind]; mark != "" {
		prefix += "-" + mark
	}
	return fmt.Sprintf("%s-%04d-%0*d", prefix, s.Year, numberDigits, n)
}

// ParseNumber reads what Number makes. It fails with fault.Invalid for anything
// else.
func ParseNumber(text string) (Series, int, error) {
	bad := fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("%.32q is not an invoice number.", text))
	head, digits, _ := cutLast(text)
	prefix, year, _ := cutLast(head)
	y, yErr := strconv.Atoi(year)
	n, nErr := strconv.Atoi(digits)
	s := Series{Prefix: prefix, Kind: UsageInvoice, Year: y}
	for kind, mark := range marks {
		if bare, found := strings.CutSuffix(prefix, "-"+mark); found {
			s.Prefix, s.Kind = bare, kind
		}
	}
	if yErr != nil || nErr != nil || n < 1 || s.Prefix == "" || s.Number(n) != text {
		return Series{}, 0, bad
	}
	return s, n, nil
}

func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, '-')
	if i < 0 {
		return "", text, false
	}
	return text[:i], text[i+1:], true
}
