package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tranche-cloud/tranche/nodeagent/journal"
)

const journalFile = "journal.log"

// remedy is what an operator can do about a journal that says nothing.
const remedy = "restore it from a copy, or give up what runs here: tranche-agent purge, then remove it"

// openJournal opens the host's journal, or begins it on a host that has none yet. One
// that was there and is not any more is refused while containers run: the orders for
// them would find their own slices taken, fail, and end them.
func openJournal(ctx context.Context, h Host) (*journal.File, []journal.Entry, error) {
	path := filepath.Join(h.Dir, journalFile)
	begun, err := journal.Begun(path)
	if err != nil {
		return nil, nil, err
	}
	if !begun {
		if err := mayBegin(ctx, h, path); err != nil {
			return nil, nil, err
		}
	}
	file, entries, err := journal.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, remedy)
	}
	return file, entries, nil
}

// mayBegin refuses a new journal on a host that had one. Its inventory is written down
// after the journal is begun, so what is left of it shows that there was one.
func mayBegin(ctx context.Context, h Host, path string) error {
	if _, err := os.Stat(filepath.Join(h.Dir, knownFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	list, err := h.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("journal %s is lost; look for what runs without it: %w", path, err)
	}
	if len(list) > 0 {
		return fmt.Errorf("journal %s is lost, and this host has %d containers: %s", path, len(list), remedy)
	}
	return nil
}
