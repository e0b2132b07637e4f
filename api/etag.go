package api

import (
	"strconv"
	"strings"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/fault"
)

// etag is the entity tag of a generation, for If-Match only.
func etag(generation int64) *string {
	tag := `"g` + strconv.FormatInt(generation, 10) + `"`
	return &tag
}

// parseETag reads the value of If-Match. Weak tags, lists and `*` are refused:
// a caller means one generation that it has seen.
func parseETag(text string) (int64, *fault.Error) {
	digits, ok := strings.CutPrefix(text, `"g`)
	if ok {
		digits, ok = strings.CutSuffix(digits, `"`)
	}
	generation, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || generation < 1 || digits[0] == '+' {
		return 0, invalid(codeInvalid, "If-Match must be one ETag of this API.",
			fault.Field{Pointer: headerIfMatch, Code: "format", Detail: `The value must look like "g3", quotes included.`})
	}
	return generation, nil
}

// ifMatch returns what the caller expects of the resource.
func ifMatch(header *string) (app.Match, error) {
	if header == nil {
		return app.Match{}, nil
	}
	generation, f := parseETag(*header)
	if f != nil {
		return app.Match{}, f
	}
	return app.Match{Generation: &generation}, nil
}
