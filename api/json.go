package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tranche-cloud/tranche/internal/fault"
)

const (
	maxDepth  = 32
	maxNumber = 64 // characters of one number
)

// parseJSON reads exactly one JSON value of at most maxDepth levels. Numbers
// stay text. Duplicate members are refused: two readers could see two requests.
func parseJSON(raw []byte) (any, *fault.Error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, invalid(codeMalformed, "The body is empty; a JSON object is needed.")
	}
	if !utf8.Valid(raw) {
		return nil, invalid(codeMalformed, "The body is not UTF-8.")
	}
	if halfPair(raw) {
		return nil, invalid(codeMalformed, "The body escapes half of a surrogate pair.")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, f := parseValue(dec, 1)
	if f != nil {
		return nil, f
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid(codeMalformed, "The body holds more than one JSON value.")
	}
	return v, nil
}

// halfPair says whether an escape names a surrogate without its partner. It is no
// character: encoding/json would store U+FFFD, and two names would become one.
func halfPair(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		r := escaped(raw[i:])
		i++ // the escaped character, which may be a backslash
		if !utf16.IsSurrogate(r) {
			continue
		}
		if utf16.DecodeRune(r, escaped(raw[i+5:])) == utf8.RuneError {
			return true
		}
		i += 10
	}
	return false
}

// escaped is the UTF-16 unit that raw escapes at its start; -1: none.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(unit)
}

func parseValue(dec *json.Decoder, depth int) (any, *fault.Error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, notJSON(dec)
	}
	switch t := tok.(type) {
	case json.Delim:
		if depth > maxDepth {
			return nil, invalid(codeMalformed, fmt.Sprintf("The body is nested deeper than %d levels.", maxDepth))
		}
		if t == '{' {
			return parseObject(dec, depth)
		}
		return parseArray(dec, depth)
	case json.Number:
		return t, checkNumber(string(t))
	default:
		return tok, nil
	}
}

func parseObject(dec *json.Decoder, depth int) (any, *fault.Error) {
	out := map[string]any{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, notJSON(dec)
		}
		name, ok := tok.(string)
		if !ok {
			return nil, notJSON(dec)
		}
		if _, twice := out[name]; twice {
			return nil, invalid(codeMalformed, "A member appears twice in one object.")
		}
		v, f := parseValue(dec, depth+1)
		if f != nil {
			return nil, f
		}
		out[name] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(dec)
	}
	return out, nil
}

func parseArray(dec *json.Decoder, depth int) (any, *fault.Error) {
	out := []any{}
	for dec.More() {
		v, f := parseValue(dec, depth+1)
		if f != nil {
			return nil, f
		}
		out = append(out, v)
	}
	if _, err := dec.Token(); err != nil {
		return nil, notJSON(dec)
	}
	return out, nil
}

func notJSON(dec *json.Decoder) *fault.Error {
	return invalid(codeMalformed, fmt.Sprintf("The body is not JSON; reading failed near byte %d.", dec.InputOffset()))
}

// checkNumber refuses numbers that would cost memory to compare: 1e999999999 is
// eleven characters long.
func checkNumber(n string) *fault.Error {
	_, exponent, _ := strings.Cut(strings.ToLower(n), "e")
	if len(n) > maxNumber || len(strings.TrimLeft(exponent, "+-0")) > 3 {
		return invalid(codeInvalid, "A number in the body is too long.")
	}
	return nil
}
