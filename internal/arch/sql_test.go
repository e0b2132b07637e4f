package arch_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sqlRules hold in the folder and below it.
var sqlRules = []struct {
	folder  string // "": everywhere
	pattern *regexp.Regexp
	reason  string
}{
	{
		"", regexp.MustCompile(`(?i)\b(now|transaction_timestamp|statement_timestamp)\s*\(\s*\)|\b(current_timestamp|localtimestamp|current_date|current_time|localtime)\b|'now'`),
		"the start of a transaction is no instant: use clock_timestamp() or biz_now() after the row lock",
	},
	{
		"", regexp.MustCompile(`(?i)\bmerge\s+into\b`),
		"the generator drops parameters of merge: use insert … on conflict",
	},
	{
		"migrations", regexp.MustCompile(`(?i)\b(double\s+precision|float4|float8|real)\b|\bfloat\b`),
		"columns are exact: use numeric or an integer",
	},
}

var (
	lineComment  = regexp.MustCompile(`--[^\n]*`)
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	newlines     = regexp.MustCompile(`[^\n]`)
)

// complain checks one SQL text and returns one line a breach.
func complain(name, text string) []string {
	blank := func(comment string) string { return newlines.ReplaceAllString(comment, " ") }
	text = blockComment.ReplaceAllStringFunc(text, blank)
	text = lineComment.ReplaceAllStringFunc(text, blank)
	var found []string
	for _, rule := range sqlRules {
		if rule.folder != "" && !within(name, rule.folder) {
			continue
		}
		for _, at := range rule.pattern.FindAllStringIndex(text, -1) {
			line := 1 + strings.Count(text[:at[0]], "\n")
			found = append(found, name+":"+strconv.Itoa(line)+": "+text[at[0]:at[1]]+": "+rule.reason)
		}
	}
	return found
}

func TestSQLKeepsItsRules(t *testing.T) {
	t.Parallel()
	var found []string
	seen := 0
	walk(t, ".sql", func(name, text string) {
		// The dump is written by Postgres and follows from the migrations.
		if name == "migrations/schema.sql" || !inAny(name, []string{"migrations", "internal/store"}) {
			return
		}
		seen++
		found = append(found, complain(name, text)...)
	})
	require.Positive(t, seen)
	for _, s := range sources(t) {
		if s.test || s.generated || !within(s.folder(), "internal/store") {
			continue
		}
		for _, node := range s.file.Decls {
			for _, text := range literals(node) {
				if statement.MatchString(text + " ") {
					found = append(found, complain(s.at(node), text)...)
				}
			}
		}
	}
	report(t, found)
}

func TestTheSQLCheckerSeesEachBreach(t *testing.T) {
	t.Parallel()
	for text, breaches := range map[string]int{
		"select now()":   1,
		"select NOW ( )": 1,
		"created_at timestamptz default current_timestamp": 1,
		"select biz_now(), clock_timestamp()":              0,
		"-- now() is banned\nselect 1":                     0,
		"/* now()\n */ select 1":                           0,
		"merge into hosts using x on true":                 1,
		"select merged_at from hosts":                      0,
		"price double precision":                           1,
		"ratio real not null":                              1,
		"real_at timestamptz, base_real timestamptz":       0,
		"select 'now'::timestamptz":                        1,
	} {
		require.Len(t, complain("migrations/x.sql", text), breaches, text)
	}
	require.Empty(t, complain("internal/store/queries/x.sql", "make_interval(secs => @age::double precision)"))
	require.Contains(t, complain("x.sql", "select 1;\nselect now()")[0], "x.sql:2:")
}
