// Package durable replaces small state files of the agent so that a crash of the
// process or of the machine leaves the old content or the new, whole.
//
// It knows nothing of what is in them and never reads one. Files that are rewritten
// for each start of a container or that need not outlive a boot do without it.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes the text beside the file, private to its owner (0600), and moves it
// into place; both are on the disk when it returns. The folder must exist. It fails
// with the operating system's error, and the file then has its old content; only when
// the folder alone could not be synced may it have the new one. Calls for one path must
// not overlap.
func Replace(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
