package billing

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// Series is one gapless run of invoice numbers: an issuer's prefix and a year.
type Series struct {
	Prefix string // TR
	Year   int
}

// SeriesAt returns the series of an instant: its year in the issuer's time zone.
func SeriesAt(prefix string, at time.Time, zone *time.Location) Series {
	return Series{Prefix: prefix, Year: at.In(zone).Year()}
}

const numberDigits = 6

// Number returns the text of the n-th number, n ≥ 1: TR-2026-000001. Beyond six
// digits it grows.
func (s Series) Number(n int) string {
	return fmt.Sprintf("%s-%04d-%0*d", s.Prefix, s.Year, numberDigits, n)
}

// ParseNumber reads what Number makes. It fails with fault.Invalid for anything
// else.
func ParseNumber(text string) (Series, int, error) {
	bad := fault.New(fault.Invalid, "request.invalid", fmt.Sprintf("%.32q is not an invoice number.", text))
	head, digits, _ := cutLast(text)
	prefix, year, _ := cutLast(head)
	y, yErr := strconv.Atoi(year)
	n, nErr := strconv.Atoi(digits)
	s := Series{Prefix: prefix, Year: y}
	if yErr != nil || nErr != nil || n < 1 || prefix == "" || s.Number(n) != text {
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
