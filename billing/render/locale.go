package render

import (
	"strings"
	"time"
)

// locale is how one language writes captions, numbers and dates on a document.
type locale struct {
	tag            string // of HTML and PDF
	at             int    // the column of the caption table
	group, decimal string
	date           func(time.Time) string
}

var locales = map[string]locale{
	"en": {tag: "en", at: 0, group: ",", decimal: ".", date: func(t time.Time) string { return t.Format("2 January 2006") }},
	"de": {tag: "de", at: 1, group: ".", decimal: ",", date: germanDate},
	"zh": {tag: "zh-Hans", at: 2, group: ",", decimal: ".", date: func(t time.Time) string { return t.Format("2006年1月2日") }},
}

// localeOf returns the language of a document; English where it is unknown.
func localeOf(name string) locale {
	base, _, _ := strings.Cut(strings.ToLower(name), "-")
	if l, ok := locales[base]; ok {
		return l
	}
	return locales["en"]
}

var germanMonths = [...]string{
	"Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober", "November", "Dezember",
}

func germanDate(t time.Time) string {
	return t.Format("2. ") + germanMonths[t.Month()-1] + t.Format(" 2006")
}

// T returns the caption of a key; the key itself where there is none.
func (l locale) T(key string) string {
	if texts, ok := captions[key]; ok {
		return texts[l.at]
	}
	return key
}

// day writes a date, "" for the zero time.
func (l locale) day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return l.date(t.UTC())
}

// number writes a decimal such as -1234.50 with the language's separators.
func (l locale) number(decimal string) string {
	body, negative := strings.CutPrefix(decimal, "-")
	whole, fraction, point := strings.Cut(body, ".")
	var b strings.Builder
	if negative {
		b.WriteByte('-')
	}
	for i, digit := range []byte(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteString(l.group)
		}
		b.WriteByte(digit)
	}
	if point {
		b.WriteString(l.decimal + fraction)
	}
	return b.String()
}

// unit writes what a price is for, one or many of it.
func (l locale) unit(priced string, many bool) string {
	key := "unit." + priced
	if many {
		key = "units." + priced
	}
	if texts, ok := captions[key]; ok {
		return texts[l.at]
	}
	if many {
		return priced + "s"
	}
	return priced
}
