package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A container's output is NAME.log, and NAME.log.1 once that is full.
const (
	logSuffix = ".log"
	oldSuffix = ".1"
)

// removeLogs removes what a container wrote: it is its tenant's, and room on the host.
func (l *Launcher) removeLogs(name string) error {
	var errs []error
	for _, path := range []string{l.LogPath(name), l.LogPath(name) + oldSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove the log of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// sweepLogs removes the logs of all containers but those.
func (l *Launcher) sweepLogs(keep []string) error {
	entries, err := os.ReadDir(l.cfg.Logs)
	if err != nil {
		return fmt.Errorf("look for left logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		name, isLog := strings.CutSuffix(strings.TrimSuffix(e.Name(), oldSuffix), logSuffix)
		if isLog && e.Type().IsRegular() && !slices.Contains(keep, name) {
			errs = append(errs, l.removeLogs(name))
		}
	}
	return errors.Join(errs...)
}
