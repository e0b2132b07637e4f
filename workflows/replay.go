package workflows

import (
	"fmt"
	"io"
	"log/slog"

	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
)

// Replay runs the present workflow code against a recorded history (the JSON form
// that Temporal's tools export) and fails when it would decide differently: then a
// run that is under way at an upgrade would block.
func Replay(history io.Reader) error {
	recorded, err := client.HistoryFromJSON(history, client.HistoryJSONOptions{})
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflow(Instance)
	r.RegisterWorkflow(Host)
	r.RegisterWorkflow(GPU)
	r.RegisterWorkflow(InvoiceRun)
	return r.ReplayWorkflowHistory(tlog.NewStructuredLogger(slog.New(slog.DiscardHandler)), recorded)
}
