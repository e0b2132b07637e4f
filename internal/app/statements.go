package app

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

const (
	maxStatement      = 1 << 20 // bytes; as much as a request of the API carries
	maxStatementLines = 10_000
)

// statementColumns are the columns that a statement must have, in any order; others
// are ignored.
var statementColumns = []string{"bank_id", "date", "amount", "currency", "reference", "payer"}

// parseStatement reads a statement as CSV with a header: bank_id is the bank's own id
// of the entry, date is YYYY-MM-DD, amount a decimal. Debits are counted and left
// out. It fails with request.invalid, which names each line that cannot be read, and
// with request.too_large.
func parseStatement(account string, body []byte) (lines []store.StatementLine, debits int, err error) {
	if account == "" || len(account) > 64 {
		return nil, 0, fault.New(fault.Invalid, "request.invalid", "A statement is of an account.").
			With(fault.Field{Pointer: "/account", Code: "required", Detail: "1 to 64 characters, for example the IBAN"})
	}
	if len(body) > maxStatement {
		return nil, 0, fault.New(fault.TooLarge, "request.too_large", "A statement is at most 1 MiB.").Suggest("Import it in parts.")
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))))
	r.FieldsPerRecord = 0
	header, err := r.Read()
	if err != nil {
		return nil, 0, badStatement(fault.Field{Pointer: "/1", Code: "csv", Detail: "no header: " + strings.Join(statementColumns, ",")})
	}
	at := map[string]int{}
	for i, name := range header {
		at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	for _, name := range statementColumns {
		if _, ok := at[name]; !ok {
			return nil, 0, badStatement(fault.Field{Pointer: "/1", Code: "csv", Detail: "the column " + name + " is missing"})
		}
	}
	var bad []fault.Field
	for n := 2; ; n++ {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		line, detail := store.StatementLine{}, "the line is no CSV of the header's columns"
		if err == nil {
			line, detail = parseLine(account, func(name string) string { return strings.TrimSpace(record[at[name]]) })
		}
		switch {
		case detail != "":
			if bad = append(bad, fault.Field{Pointer: fmt.Sprintf("/%d", n), Code: "line", Detail: detail}); len(bad) == 20 {
				return nil, 0, badStatement(bad...)
			}
		case line.Amount.Sign() < 0:
			debits++
		default:
			lines = append(lines, line)
		}
		if n > maxStatementLines {
			return nil, 0, fault.New(fault.TooLarge, "request.too_large", fmt.Sprintf("A statement has at most %d lines.", maxStatementLines)).
				Suggest("Import it in parts.")
		}
	}
	if len(bad) > 0 {
		return nil, 0, badStatement(bad...)
	}
	return lines, debits, nil
}

func badStatement(fields ...fault.Field) error {
	return fault.New(fault.Invalid, "request.invalid", "The statement cannot be read; nothing was imported.").
		With(fields...).Suggest("Correct the named lines and send the whole statement again: what was imported before is known by its bank_id.")
}

// parseLine reads one line, or says what is wrong with it.
func parseLine(account string, field func(string) string) (store.StatementLine, string) {
	l := store.StatementLine{Account: account, BankID: field("bank_id"), Reference: field("reference"), Payer: field("payer"), State: "queued"}
	if l.BankID == "" || len(l.BankID) > 128 {
		return l, "bank_id has 1 to 128 characters"
	}
	if len(l.Reference) > 1000 || len(l.Payer) > 300 {
		return l, "reference has at most 1000 characters, payer 300"
	}
	var err error
	if l.BookedOn, err = time.Parse(time.DateOnly, field("date")); err != nil {
		return l, "date is YYYY-MM-DD"
	}
	currency, err := money.ParseCurrency(field("currency"))
	if err != nil {
		return l, fmt.Sprintf("the currency %q is unknown", field("currency"))
	}
	if l.Amount, err = money.ParseAmount(field("amount"), currency); err != nil || l.Amount.IsZero() {
		return l, fmt.Sprintf("amount is a decimal of %s, not 0", currency)
	}
	if l.Amount.Minor() > maxAmount {
		return l, fmt.Sprintf("amount is at most %s", money.NewAmount(maxAmount, currency))
	}
	l.ID = id.New[id.StatementLine]()
	return l, ""
}
