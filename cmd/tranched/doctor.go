package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/clock"
)

// errFound says, by the exit code alone, that the doctor named offenders.
var errFound = errors.New("invariants are broken")

func doctorCommand() *cobra.Command {
	s := &settings{}
	var output string
	var tolerance time.Duration
	cmd := &cobra.Command{
		Use: "doctor", Short: "Audit the database: one line an invariant, offenders named", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return &exitError{exitUsage, fmt.Errorf("-o %s: want table or json", output)}
			}
			log := s.logger("doctor")
			st, err := s.openStore(cmd.Context(), log)
			if err != nil {
				return err
			}
			defer st.Close()
			findings, clean, err := app.New(app.Deps{Store: st, Clock: clock.Real(), Log: log}).Audit(cmd.Context(), tolerance)
			if err != nil {
				return err
			}
			show := printFindings
			if output == "json" {
				show = printFindingsJSON
			}
			if err := show(cmd.OutOrStdout(), findings); err != nil {
				return err
			}
			if !clean {
				return &exitError{exitFound, errFound}
			}
			return nil
		},
	}
	s.bindDatabase(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().DurationVar(&tolerance, "tolerance", app.AuditTolerance, "how long something may be under way, machine time")
	return cmd
}

// verdict is the word of the doctor's line.
func verdict(i app.Invariant) string {
	switch i.State {
	case app.InvariantOK:
		return "ok"
	case app.InvariantFound:
		return fmt.Sprintf("FOUND %d", i.Count())
	case app.InvariantHeld:
		return "held by suite " + i.Suite
	case app.InvariantNotBuilt:
		return "not built"
	}
	return string(i.State)
}

func printFindings(w io.Writer, findings []app.Invariant) error {
	var b strings.Builder
	for _, i := range findings {
		fmt.Fprintf(&b, "%-4s %-10s %s\n", i.ID, verdict(i), i.Text)
		for _, o := range i.Offences {
			fmt.Fprintf(&b, "       %s: %d\n", o.Check, o.Count)
			for _, row := range o.Rows {
				fmt.Fprintf(&b, "         %s\n", row)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printFindingsJSON(w io.Writer, findings []app.Invariant) error {
	type offence struct {
		Check string   `json:"check"`
		Count int      `json:"count"`
		Rows  []string `json:"rows"`
	}
	type line struct {
		ID       string    `json:"id"`
		Text     string    `json:"text"`
		Status   string    `json:"status"`
		Suite    string    `json:"suite,omitempty"`
		Count    int       `json:"count"`
		Offences []offence `json:"offences"`
	}
	out := struct {
		Clean      bool   `json:"clean"`
		Invariants []line `json:"invariants"`
	}{Clean: true, Invariants: []line{}}
	for _, i := range findings {
		l := line{ID: i.ID, Text: i.Text, Status: string(i.State), Suite: i.Suite, Count: i.Count(), Offences: []offence{}}
		for _, o := range i.Offences {
			l.Offences = append(l.Offences, offence{Check: o.Check, Count: o.Count, Rows: o.Rows})
		}
		out.Clean = out.Clean && i.State != app.InvariantFound
		out.Invariants = append(out.Invariants, l)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
