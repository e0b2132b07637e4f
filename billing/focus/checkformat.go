package focus

import (
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

var zero = new(big.Int)

// numeric is FOCUS' numeric format without exponents, which the export never has.
var numeric = regexp.MustCompile(`^-?\d+(\.\d+)?$`)

// formats checks each cell by itself.
func (c *checker) formats() {
	for column, s := range specs {
		column, cell := Column(column), c.row[column]
		if cell == "" {
			c.want(!s.required, column, "not null")
			continue
		}
		c.want(utf8.ValidString(cell) && strings.TrimSpace(cell) != "", column, "no blank text")
		c.want(!slices.Contains(placeholders, cell), column, "null is null, no placeholder")
		c.want(s.allowed == nil || slices.Contains(s.allowed, cell), column, "an allowed value")
		switch s.kind {
		case decimal:
			n, ok := parse(cell)
			c.want(ok && numeric.MatchString(cell), column, "the numeric format")
			c.want(!ok || n.scale <= s.scale && len(new(big.Int).Abs(n.at(s.scale)).String()) <= precision, column, "inside the column's precision")
		case instant:
			at, err := time.Parse("2006-01-02T15:04:05Z", cell)
			c.want(err == nil && second(at) == cell, column, "the date-time format, UTC, whole seconds")
		case object:
			c.want(flatObject(cell), column, "a flat JSON object with unique keys")
		}
	}
}

var placeholders = []string{"N/A", "n/a", "null", "NULL", "None", "-"}

// flatObject reports whether text is an object of strings, numbers, booleans and nulls
// without a repeated key.
func flatObject(text string) bool {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok || seen[name] {
			return false
		}
		seen[name] = true
		value, err := d.Token()
		if _, nested := value.(json.Delim); err != nil || nested {
			return false
		}
	}
	_, err := d.Token()
	return err == nil && !d.More()
}
