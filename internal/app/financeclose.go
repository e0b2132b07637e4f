package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/tranche-cloud/tranche/billing/ledger"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/metering"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/store"
)

// MonthClose is a closed month: nothing is posted into it any more. SHA256 is over
// the bytes of the report and the journal as they are stored.
type MonthClose struct {
	Period   string
	ClosedBy string
	ClosedAt time.Time
	SHA256   [32]byte
	Report   CloseReport
}

// CloseReport is what finance reads of a month. Amounts are decimals of their
// currency, debit positive; nothing is ever summed over currencies.
type CloseReport struct {
	Period       string        `json:"period"`
	TrialBalance []TrialRow    `json:"trial_balance"`
	Ageing       []AgeingTotal `json:"ageing"`
	OpenItems    []OpenItem    `json:"open_items"`
	VAT          []VATRow      `json:"vat"`
	RollForwards []RollForward `json:"roll_forwards"`
	Postings     int           `json:"postings"`
	// Uninvoiced counts organizations with usage and no document: theirs is accrued.
	Uninvoiced int64 `json:"uninvoiced_organizations"`
}

// TrialRow is an account over a month.
type TrialRow struct {
	Currency string `json:"currency"`
	Account  string `json:"account"`
	Opening  string `json:"opening"`
	Debits   string `json:"debits"`
	Credits  string `json:"credits"`
	Closing  string `json:"closing"`
}

// AgeingTotal is what is owed at the end of a month, by days since the document.
type AgeingTotal struct {
	Currency string            `json:"currency"`
	Buckets  map[string]string `json:"buckets"` // 0-30, 31-60, 61-90, 90+
	Total    string            `json:"total"`
}

// OpenItem is what is owed of one document.
type OpenItem struct {
	Currency     string `json:"currency"`
	Organization string `json:"organization"`
	Name         string `json:"name"`
	Invoice      string `json:"invoice"`
	Number       string `json:"number"`
	Issued       string `json:"issued"`
	Days         int    `json:"days"`
	Bucket       string `json:"bucket"`
	Amount       string `json:"amount"`
}

// VATRow is base and tax by countries, category and rate.
type VATRow struct {
	Currency string `json:"currency"`
	Seller   string `json:"seller_country"`
	Buyer    string `json:"buyer_country"`
	Category string `json:"category"`
	Rate     string `json:"rate"` // percent
	Base     string `json:"base"`
	Tax      string `json:"tax"`
}

// RollForward is how an account came from its opening to its closing balance.
type RollForward struct {
	Currency  string     `json:"currency"`
	Account   string     `json:"account"`
	Opening   string     `json:"opening"`
	Movements []Movement `json:"movements"`
	Closing   string     `json:"closing"`
}

// Movement is what one kind of journal moved.
type Movement struct {
	Kind   string `json:"kind"`
	Amount string `json:"amount"`
}

// rolled are the accounts with a roll-forward.
var rolled = []ledger.Account{ledger.Receivable, ledger.Unbilled, ledger.Prepaid, ledger.PrepaidUsed, ledger.Promo, ledger.UnappliedCash}

// CloseMonth freezes a month of the ledger and stores its reports and journal for
// good. It is idempotent: a closed month is answered as it is, and one that was frozen
// and not reported on is reported on. Later postings for it go to the next open day.
// Operators only. It fails with request.invalid, and with state.conflict while the
// month or the grace after it lasts and while an earlier month is open.
//
// Freezing is one short transaction; what it froze is read afterwards, with nobody
// waiting.
func (a *App) CloseMonth(ctx context.Context, c Caller, period string) (out MonthClose, err error) {
	if err := operatorOnly(c); err != nil {
		return MonthClose{}, err
	}
	month, err := metering.ParsePeriod(period)
	if err != nil {
		return MonthClose{}, err
	}
	ctx = store.Apart(ctx)
	if out, err = a.GetClose(ctx, c, period); fault.KindOf(err) != fault.NotFound {
		return out, err
	}
	if err := a.AccrueAll(ctx); err != nil {
		return MonthClose{}, err
	}
	at, err := a.freeze(ctx, c, period, month)
	if err != nil {
		return MonthClose{}, err
	}
	var made store.MonthClose
	var journal []byte
	err = a.Store.InSystem(ctx, "report on a frozen month", func(t *store.SystemTx) error {
		made, journal, err = makeClose(ctx, t, period, month)
		return err
	})
	if err != nil {
		return MonthClose{}, err
	}
	made.ClosedBy, made.ClosedAt = c.actor(), at
	err = a.Store.InSystem(ctx, "close a month", func(t *store.SystemTx) error {
		fresh, err := t.InsertMonthClose(ctx, made, journal)
		if err != nil || !fresh {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "finance.close", period))
	})
	if err != nil {
		return MonthClose{}, err
	}
	return a.GetClose(ctx, c, period)
}

// freeze keeps postings out of a month from now on, unless it is frozen, and returns
// the instant.
func (a *App) freeze(ctx context.Context, c Caller, period string, month metering.Interval) (at time.Time, err error) {
	last := month.To.Add(-24 * time.Hour)
	err = a.Store.InSystem(ctx, "freeze a month", func(t *store.SystemTx) error {
		through, err := t.LockBooks(ctx)
		if err != nil {
			return err
		}
		if at, err = t.BusinessNow(ctx); err != nil || through.Equal(last) {
			return err
		}
		if err := a.closable(month, through, at); err != nil {
			return err
		}
		if through.Year() > 1 {
			before := metering.PeriodOf(through)
			switch _, err := t.MonthClose(ctx, before); {
			case fault.KindOf(err) == fault.NotFound:
				return fault.New(fault.Conflict, "state.conflict", "The close of "+before+" did not end.").Suggest("Close " + before + " again, then this month.")
			case err != nil:
				return err
			}
		}
		if err := t.CloseBooks(ctx, last); err != nil {
			return err
		}
		return t.Audit(ctx, c.audit(id.Org{}, "finance.freeze", period))
	})
	return at, err
}

// closable refuses months that are not over or out of turn.
func (a *App) closable(month metering.Interval, through, now time.Time) error {
	period := metering.PeriodOf(month.From)
	if end := month.To.Add(a.grace()); now.Before(end) {
		return fault.New(fault.Conflict, "state.conflict", "Usage of "+period+" may still arrive until "+end.Format(time.RFC3339)+".").
			Suggest("Close it after its invoices are made.")
	}
	if next := through.AddDate(0, 0, 1); through.Year() > 1 && !next.Equal(month.From) {
		return fault.New(fault.Conflict, "state.conflict", "The next month to close is "+metering.PeriodOf(next)+".").Suggest("Close months in their order.")
	}
	return nil
}

// makeClose reads a month of the ledger into its report and journal.
func makeClose(ctx context.Context, t *store.SystemTx, period string, month metering.Interval) (store.MonthClose, []byte, error) {
	books, err := t.MonthBooks(ctx, month, rolled)
	if err != nil {
		return store.MonthClose{}, nil, err
	}
	report, err := reportOf(period, month, books)
	if err != nil {
		return store.MonthClose{}, nil, err
	}
	if report.Uninvoiced, err = t.Uninvoiced(ctx, period); err != nil {
		return store.MonthClose{}, nil, err
	}
	text, err := json.Marshal(report)
	if err != nil {
		return store.MonthClose{}, nil, fmt.Errorf("encoding the report of %s: %w", period, err)
	}
	journal, err := journalCSV(books.Postings)
	if err != nil {
		return store.MonthClose{}, nil, err
	}
	h := sha256.New()
	h.Write(text)
	h.Write(journal)
	return store.MonthClose{Period: period, Report: text, SHA256: [32]byte(h.Sum(nil))}, journal, nil
}

func closeFrom(s store.MonthClose) (MonthClose, error) {
	m := MonthClose{Period: s.Period, ClosedBy: s.ClosedBy, ClosedAt: s.ClosedAt, SHA256: s.SHA256}
	if err := json.Unmarshal(s.Report, &m.Report); err != nil {
		return MonthClose{}, fmt.Errorf("reading the report of %s: %w", s.Period, err)
	}
	return m, nil
}

// GetClose reads a closed month. It fails with resource.not_found for an open one.
func (a *App) GetClose(ctx context.Context, _ Caller, period string) (out MonthClose, err error) {
	err = a.Store.InSystem(ctx, "read a closed month", func(t *store.SystemTx) error {
		stored, err := t.MonthClose(ctx, period)
		if err != nil {
			return err
		}
		out, err = closeFrom(stored)
		return err
	})
	return out, err
}

// JournalCSV reads every posting of a closed month as CSV, byte for byte as stored.
// It fails with resource.not_found for an open month.
func (a *App) JournalCSV(ctx context.Context, _ Caller, period string) (text []byte, err error) {
	err = a.Store.InSystem(ctx, "read a journal", func(t *store.SystemTx) error {
		text, err = t.MonthJournal(ctx, period)
		return err
	})
	return text, err
}

// reportOf makes the report. It fails with fault.Internal if the trial balance does
// not sum to 0 in a currency.
func reportOf(period string, month metering.Interval, b store.MonthBooks) (CloseReport, error) {
	r := CloseReport{Period: period, Postings: len(b.Postings)}
	sums := map[string]int64{}
	for _, x := range b.Trial {
		sums[x.Currency] += x.Closing
		row, err := texts(x.Currency, x.Opening, x.Debits, x.Credits, x.Closing)
		if err != nil {
			return r, err
		}
		r.TrialBalance = append(r.TrialBalance, TrialRow{x.Currency, x.Account, row[0], row[1], row[2], row[3]})
	}
	for c, sum := range sums {
		if sum != 0 {
			return r, fault.New(fault.Internal, "internal", "The ledger does not add up.").
				Because(fmt.Errorf("the trial balance of %s in %s sums to %d", period, c, sum))
		}
	}
	if err := r.age(month, b.Open); err != nil {
		return r, err
	}
	for _, x := range b.Taxes {
		row, err := texts(x.Currency, x.Base, x.Tax)
		if err != nil {
			return r, err
		}
		r.VAT = append(r.VAT, VATRow{x.Currency, x.Seller, x.Buyer, x.Category, percent(x.RatePPM), row[0], row[1]})
	}
	return r, r.roll(b)
}

// texts writes minor units of a currency as decimals.
func texts(code string, minor ...int64) ([]string, error) {
	c, err := money.ParseCurrency(code)
	if err != nil {
		return nil, fmt.Errorf("reading a row: %w", err)
	}
	out := make([]string, len(minor))
	for i, n := range minor {
		out[i] = money.NewAmount(n, c).Decimal()
	}
	return out, nil
}

// percent writes parts per million as a percentage: 190000 is 19, 55000 is 5.5.
func percent(ppm int64) string {
	whole, rest := ppm/10_000, ppm%10_000
	if rest == 0 {
		return strconv.FormatInt(whole, 10)
	}
	text := fmt.Sprintf("%d.%04d", whole, rest)
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	return text
}

var ageBuckets = []string{"0-30", "31-60", "61-90", "90+"}

func bucketOf(days int) string {
	switch {
	case days <= 30:
		return ageBuckets[0]
	case days <= 60:
		return ageBuckets[1]
	case days <= 90:
		return ageBuckets[2]
	}
	return ageBuckets[3]
}

// age lists what is owed and sums it by currency and age at the month's last day.
func (r *CloseReport) age(month metering.Interval, open []store.OpenDocument) error {
	type key struct{ currency, bucket string }
	sums, totals := map[key]int64{}, map[string]int64{}
	var currencies []string
	for _, d := range open {
		days := max(int(month.To.Add(-time.Microsecond).Sub(d.Issued)/(24*time.Hour)), 0)
		item := OpenItem{
			Currency: d.Currency, Organization: d.Org.String(), Name: d.OrgName, Number: d.Number, Issued: d.Issued.Format(time.DateOnly),
			Days: days, Bucket: bucketOf(days),
		}
		if !d.Document.IsZero() {
			item.Invoice = d.Document.String()
		}
		text, err := texts(d.Currency, d.Minor)
		if err != nil {
			return err
		}
		item.Amount = text[0]
		r.OpenItems = append(r.OpenItems, item)
		if !slices.Contains(currencies, d.Currency) {
			currencies = append(currencies, d.Currency)
		}
		sums[key{d.Currency, item.Bucket}] += d.Minor
		totals[d.Currency] += d.Minor
	}
	for _, c := range currencies {
		total := AgeingTotal{Currency: c, Buckets: map[string]string{}}
		for _, bucket := range ageBuckets {
			text, err := texts(c, sums[key{c, bucket}], totals[c])
			if err != nil {
				return err
			}
			total.Buckets[bucket], total.Total = text[0], text[1]
		}
		r.Ageing = append(r.Ageing, total)
	}
	return nil
}

// roll makes the roll-forwards; each ends at the closing of the trial balance.
func (r *CloseReport) roll(b store.MonthBooks) error {
	for _, x := range b.Trial {
		if !slices.Contains(rolled, ledger.Account(x.Account)) {
			continue
		}
		text, err := texts(x.Currency, x.Opening, x.Closing)
		if err != nil {
			return err
		}
		f := RollForward{Currency: x.Currency, Account: x.Account, Opening: text[0], Closing: text[1]}
		at := x.Opening
		for _, m := range b.Movements {
			if m.Currency != x.Currency || m.Account != x.Account {
				continue
			}
			moved, err := texts(m.Currency, m.Minor)
			if err != nil {
				return err
			}
			f.Movements = append(f.Movements, Movement{m.Kind, moved[0]})
			at += m.Minor
		}
		if at != x.Closing {
			return fault.New(fault.Internal, "internal", "The ledger does not add up.").
				Because(fmt.Errorf("%s of %s rolls forward to %d, the trial balance says %d", x.Account, r.Period, at, x.Closing))
		}
		r.RollForwards = append(r.RollForwards, f)
	}
	return nil
}

// journalCSV writes postings, one a row, debit and credit apart.
func journalCSV(rows []store.PostingRow) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	err := w.Write([]string{
		"effective_on", "posted_at", "journal", "kind", "reference", "line", "organization", "account", "debit", "credit", "currency", "invoice",
	})
	for _, r := range rows {
		if err != nil {
			break
		}
		var side [2]string
		text, failed := texts(r.Currency, max(r.Minor, 0), -min(r.Minor, 0))
		if failed != nil {
			return nil, failed
		}
		if r.Minor >= 0 {
			side[0] = text[0]
		} else {
			side[1] = text[1]
		}
		document := ""
		if r.Document != ([16]byte{}) {
			document = id.Invoice(r.Document).String()
		}
		err = w.Write([]string{
			r.EffectiveOn.Format(time.DateOnly), r.PostedAt.UTC().Format(time.RFC3339Nano), uuid.UUID(r.Journal).String(), r.Kind,
			uuid.UUID(r.Reference).String(), strconv.Itoa(r.Line), r.Org.String(), r.Account, side[0], side[1], r.Currency, document,
		})
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("writing a journal: %w", err)
	}
	return b.Bytes(), nil
}

// LedgerAccounts reads what every account stands at up to and with a day (UTC):
// of one organization, or of all for the zero id.
func (a *App) LedgerAccounts(ctx context.Context, _ Caller, org id.Org, day time.Time) (out []store.AccountBalance, err error) {
	err = a.Store.InSystem(ctx, "read the ledger", func(t *store.SystemTx) error {
		out, err = t.AccountBalances(ctx, org, midnight(day.UTC()).AddDate(0, 0, 1))
		return err
	})
	return out, err
}
