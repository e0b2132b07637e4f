package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// Table prints the records for people.
func Table(w io.Writer, records []Record) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "id\tcase\tmetric\tvalue\tsd\tn\tgoal\tpeer\tratio")
	for _, r := range records {
		peer, ratio, sd := "", "", ""
		if r.Peer != "" {
			peer = fmt.Sprintf("%s %.1f", r.Peer, r.PeerValue)
			ratio = fmt.Sprintf("%.2f", r.Value/r.PeerValue)
		}
		if r.SD > 0 {
			sd = fmt.Sprintf("%.1f", r.SD)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f %s\t%s\t%d\t%s\t%s\t%s\n", r.ID, r.Case, r.Metric, r.Value, r.Unit, sd, r.N, r.Goal, peer, ratio)
	}
	return t.Flush()
}

// Write stores the records as a JSON array.
func Write(path string, records []Record) error {
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
