package tax

import (
	"fmt"
	"regexp"
	"strings"
)

// vat is how value added tax ids are written, by their prefix. The prefix of Greece
// is EL; XI is Northern Ireland.
var vat = map[string]*regexp.Regexp{
	"AT": regexp.MustCompile(`^U\d{8}$`),
	"BE": regexp.MustCompile(`^[01]\d{9}$`),
	"BG": regexp.MustCompile(`^\d{9,10}$`),
	"CY": regexp.MustCompile(`^\d{8}[A-Z]$`),
	"CZ": regexp.MustCompile(`^\d{8,10}$`),
	"DE": regexp.MustCompile(`^\d{9}$`),
	"DK": regexp.MustCompile(`^\d{8}$`),
	"EE": regexp.MustCompile(`^\d{9}$`),
	"EL": regexp.MustCompile(`^\d{9}$`),
	"ES": regexp.MustCompile(`^[A-Z0-9]\d{7}[A-Z0-9]$`),
	"FI": regexp.MustCompile(`^\d{8}$`),
	"FR": regexp.MustCompile(`^[A-HJ-NP-Z0-9]{2}\d{9}$`),
	"HR": regexp.MustCompile(`^\d{11}$`),
	"HU": regexp.MustCompile(`^\d{8}$`),
	"IE": regexp.MustCompile(`^(\d{7}[A-W][A-I]?|\d[A-Z+*]\d{5}[A-W])$`),
	"IT": regexp.MustCompile(`^\d{11}$`),
	"LT": regexp.MustCompile(`^(\d{9}|\d{12})$`),
	"LU": regexp.MustCompile(`^\d{8}$`),
	"LV": regexp.MustCompile(`^\d{11}$`),
	"MT": regexp.MustCompile(`^\d{8}$`),
	"NL": regexp.MustCompile(`^\d{9}B\d{2}$`),
	"PL": regexp.MustCompile(`^\d{10}$`),
	"PT": regexp.MustCompile(`^\d{9}$`),
	"RO": regexp.MustCompile(`^\d{2,10}$`),
	"SE": regexp.MustCompile(`^\d{12}$`),
	"SI": regexp.MustCompile(`^\d{8}$`),
	"SK": regexp.MustCompile(`^\d{10}$`),
	"GB": regexp.MustCompile(`^(\d{9}|\d{12}|GD\d{3}|HA\d{3})$`),
	"XI": regexp.MustCompile(`^(\d{9}|\d{12}|GD\d{3}|HA\d{3})$`),
}

// foreign is a tax id of a country without syntax here.
var foreign = regexp.MustCompile(`^[A-Z0-9][A-Z0-9./]{1,30}$`)

// maxID bounds the text of a tax id, with its blanks.
const maxID = 40

// ID is a tax id as it is stored and printed: upper case, without blanks and
// hyphens, with the prefix of its country where the country's ids have one.
type ID string

// Country returns the ISO code of the country an id of the EU or the United Kingdom
// belongs to; "" for any other.
func (i ID) Country() string {
	if len(i) < 3 {
		return ""
	}
	prefix := string(i[:2])
	if vat[prefix] == nil || !vat[prefix].MatchString(string(i[2:])) {
		return ""
	}
	switch prefix {
	case "EL":
		return "GR"
	case "XI":
		return "GB"
	}
	return prefix
}

// ParseID reads a tax id of a buyer in a country. It fails with fault.Invalid for an
// id that is malformed or that belongs to another country.
func ParseID(text, country string) (ID, error) {
	if len(text) > maxID {
		return "", refuse("/tax_id", fmt.Sprintf("A tax id has at most %d characters.", maxID))
	}
	i := ID(strings.Map(squeeze, strings.ToUpper(text)))
	home := i.Country()
	switch {
	case home != "" && home == country:
		return i, nil
	case len(i) > 2 && i[:2] == "GR" && vat["EL"].MatchString(string(i[2:])):
		return "", refuse("/tax_id", "Greek tax ids begin with EL.")
	case home != "" && country != "" && (member(country) || strings.HasPrefix(string(i), prefixOf(home))):
		return "", refuse("/tax_id", fmt.Sprintf("The tax id is one of %s, the billing country is %s.", home, country))
	case country == "":
		return "", refuse("/country", "A tax id needs a billing country.")
	case vat[prefixOf(country)] != nil:
		return "", refuse("/tax_id", fmt.Sprintf("This is no tax id of %s: it begins with %s.", country, prefixOf(country)))
	case !foreign.MatchString(string(i)):
		return "", refuse("/tax_id", "A tax id is letters and digits.")
	}
	return i, nil
}

// squeeze drops what people write between the digits.
func squeeze(r rune) rune {
	if r == ' ' || r == '-' || r == '\u00a0' {
		return -1
	}
	return r
}

func prefixOf(country string) string {
	if country == "GR" {
		return "EL"
	}
	return country
}

// hasPostcode reports whether a postcode begins with a prefix, blanks aside.
func hasPostcode(postcode, prefix string) bool {
	return strings.HasPrefix(strings.Map(squeeze, strings.ToUpper(postcode)), prefix)
}
