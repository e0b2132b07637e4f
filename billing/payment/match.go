package payment

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
)

// Transfer is one credit on a bank statement.
type Transfer struct {
	Amount    money.Amount // positive
	Reference string       // what the payer wrote
	Payer     string
}

// Candidate is an open document that a transfer may be for.
type Candidate struct {
	Org     id.Org
	OrgName string
	Invoice id.Invoice
	Number  string
	Due     money.Amount // 0 for one that is settled
	Written money.Amount // written off, and taken back when it is paid after all
}

// Allocation is the part of a payment that goes to one document.
type Allocation struct {
	Invoice id.Invoice
	Amount  money.Amount // positive
}

// Match is what the rules make of a transfer. Without Org it waits for a person, who
// sees Why and the candidates.
type Match struct {
	Org         id.Org
	Allocations []Allocation
	Unapplied   money.Amount // of the organization, for no document
	Why         string
}

// MatchTransfer decides by rules alone, all in the transfer's currency:
//   - the reference names documents of one organization: they are paid in the order of
//     their numbers, and what is over is the organization's unapplied cash;
//   - it names them, but is less than what is due of them: it waits, for only a person
//     knows whether the rest is to come;
//   - it names the organization by id, and exactly one document of it has just this
//     due: that one is paid;
//   - otherwise it waits. An amount alone, or a payer's name, is never enough.
func MatchTransfer(t Transfer, all []Candidate) Match {
	var named []Candidate
	for _, c := range all {
		if Names(t.Reference, c.Number) {
			named = append(named, c)
		}
	}
	if len(named) > 0 {
		return matchNamed(t, named)
	}
	var exact []Candidate
	for _, c := range all {
		if c.Due == t.Amount && Names(t.Reference, c.Org.String()) {
			exact = append(exact, c)
		}
	}
	if len(exact) == 1 {
		return Match{
			Org: exact[0].Org, Allocations: []Allocation{{exact[0].Invoice, t.Amount}},
			Unapplied: money.NewAmount(0, t.Amount.Currency()), Why: "organization and amount",
		}
	}
	return Match{Why: "the reference names no open invoice"}
}

func matchNamed(t Transfer, named []Candidate) Match {
	slices.SortFunc(named, func(a, b Candidate) int { return strings.Compare(a.Number, b.Number) })
	rest := t.Amount.Minor()
	var out []Allocation
	for _, c := range named {
		if c.Org != named[0].Org {
			return Match{Why: "the reference names invoices of several organizations"}
		}
		if c.Due.Currency() != t.Amount.Currency() {
			return Match{Why: fmt.Sprintf("invoice %s is in %s", c.Number, c.Due.Currency())}
		}
		owed := c.Due.Minor() + c.Written.Minor()
		if owed <= 0 {
			continue
		}
		if owed > rest && c.Due.Minor() > rest {
			return Match{Why: fmt.Sprintf("invoice %s is due with %s, more than what came", c.Number, c.Due)}
		}
		part := min(owed, rest)
		if part > 0 {
			out = append(out, Allocation{c.Invoice, money.NewAmount(part, t.Amount.Currency())})
		}
		rest -= part
	}
	return Match{
		Org: named[0].Org, Allocations: out, Unapplied: money.NewAmount(rest, t.Amount.Currency()), Why: "invoice number",
	}
}

// Names reports whether a reference contains a number as a word: banks drop and add
// spaces and hyphens and change the case, but TR-2026-000001 is not in
// TR-2026-0000011.
func Names(reference, number string) bool {
	want := []rune(Normal(number))
	if len(want) == 0 {
		return false
	}
	text := []rune(strings.ToUpper(reference))
	for start := range text {
		if start > 0 && word(text[start-1]) || !word(text[start]) {
			continue
		}
		at, k := start, 0
		for at < len(text) && k < len(want) {
			if word(text[at]) {
				if text[at] != want[k] {
					break
				}
				k++
			}
			at++
		}
		if k == len(want) && (at == len(text) || !word(text[at])) {
			return true
		}
	}
	return false
}

// The bounds of what Words returns: runes of a word, words that a number is written
// in, and words in all.
const (
	maxWord  = 48
	maxSplit = 8
	maxWords = 2000
)

// Words lists what of a reference may be a number or an id, as Normal writes it: its
// words, and neighbouring words as one. What Names finds in the reference is among
// them if it has at most 48 runes in 8 words, and the reference is none of a thousand
// words.
func Words(reference string) []string {
	fields := strings.FieldsFunc(strings.ToUpper(reference), func(r rune) bool { return !word(r) })
	seen := map[string]bool{}
	out := []string{}
	for i := range fields {
		joined := ""
		for _, next := range fields[i:min(i+maxSplit, len(fields))] {
			joined += next
			if len([]rune(joined)) > maxWord || len(out) == maxWords {
				break
			}
			if !seen[joined] && strings.IndexFunc(joined, unicode.IsDigit) >= 0 {
				seen[joined] = true
				out = append(out, joined)
			}
		}
	}
	return out
}

// Organizations lists the ids of organizations among the words.
func Organizations(words []string) []id.Org {
	var out []id.Org
	for _, w := range words {
		if rest, ok := strings.CutPrefix(w, "ORG"); ok {
			if org, err := id.Parse[id.Org]("org_" + strings.ToLower(rest)); err == nil {
				out = append(out, org)
			}
		}
	}
	return out
}

// Normal is a number without case and separators, as it is compared.
func Normal(text string) string {
	return strings.Map(func(r rune) rune {
		if word(r) {
			return unicode.ToUpper(r)
		}
		return -1
	}, text)
}

func word(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
