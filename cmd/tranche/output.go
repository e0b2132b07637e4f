package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/oapi-codegen/nullable"

	"github.com/tranche-cloud/tranche/client"
)

func checkFormat(format string) error {
	if format != "table" && format != "json" {
		return usagef("-o takes table or json, not %q", format)
	}
	return nil
}

// column is one column of a table.
type column[T any] struct {
	title string
	cell  func(T) string
}

// list prints items as a table or as a JSON array, which is [] when empty.
func list[T any](a *app, items []T, columns []column[T]) error {
	if a.output == "json" {
		return document(a.out, items)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	fmt.Fprintln(w, strings.Join(titles, "\t"))
	for _, item := range items {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = plain(c.cell(item))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// one prints a single item: as a table of fields, or as a JSON object.
func one[T any](a *app, item T, fields []column[T]) error {
	if a.output == "json" {
		return document(a.out, item)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, f := range fields {
		fmt.Fprintf(w, "%s\t%s\n", f.title, plain(f.cell(item)))
	}
	return w.Flush()
}

func document(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// plain keeps a tenant's text from steering the terminal or the table.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '�'
		}
		return r
	}, s)
}

func price(p client.Price) string { return p.Amount + " " + p.Currency }

func money(m client.Money) string { return m.Amount + " " + m.Currency }

func or[T any](v nullable.Nullable[T], text func(T) string) string {
	if got, err := v.Get(); err == nil {
		return text(got)
	}
	return "-"
}

func same(s string) string { return s }
