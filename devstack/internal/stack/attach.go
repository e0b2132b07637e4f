package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-cloud/tranche/devstack/internal/postgres"
)

// ErrNotRunning says that no stack runs in a folder.
var ErrNotRunning = errors.New("no stack runs here: start one with make dev")

// Attach opens the stack that another process runs in the folder, to look at it
// and to set its clock; it starts and stops nothing.
func Attach(ctx context.Context, c Config) (*Stack, error) {
	for _, dir := range []*string{&c.Dir, &c.BinDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", *dir, err)
		}
		*dir = abs
	}
	found, err := readState(c.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	c.Ports = found.Ports
	s := &Stack{Config: c, admin: found.AdminToken}
	if err := get(ctx, s.URL()+"/.well-known/jwks.json"); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNotRunning, err)
	}
	s.Postgres, err = postgres.Attach(postgres.Config{Dir: c.Dir, Port: c.Ports.Postgres})
	return s, err
}

// Remove deletes a stack's folder with all its data, unless one runs in it.
func Remove(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	hold, err := claim(dir)
	if err != nil {
		return err
	}
	defer hold.Close()
	if err := postgres.Remove(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of the stack: %w", err)
	}
	return nil
}
