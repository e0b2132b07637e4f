package containerd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// trimEvery is how often logs are measured.
const trimEvery = time.Second

// trimLogs keeps the logs of all running containers bounded. The shim appends to the
// file, so a shortened one simply goes on; what it writes within that moment may be
// lost. While no agent runs, nobody shortens.
func (d *Driver) trimLogs(ctx context.Context) {
	for d.wait(ctx, trimEvery) {
		for _, path := range d.logs.paths() {
			_ = d.trimLog(path) // tried again in a second
		}
	}
}

// trimLog drops the older half of a log that is too long, up to a line's end.
func (d *Driver) trimLog(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() <= d.cfg.LogLimit || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	tail := make([]byte, d.cfg.LogLimit/2)
	n, err := f.ReadAt(tail, max(0, info.Size()-int64(len(tail))))
	if err != nil && !errors.Is(err, io.EOF) {
		return errors.Join(err, f.Close())
	}
	tail = tail[:n]
	if at := bytes.IndexByte(tail, '\n'); at >= 0 && at < len(tail)-1 {
		tail = tail[at+1:]
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.Write(tail)
	}
	return errors.Join(err, f.Close())
}

// logs are the log files of the containers that are known, by container.
type logs struct {
	mu sync.Mutex
	of map[string]string
}

func (l *logs) add(name, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]string{}
	}
	l.of[name] = path
}

func (l *logs) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, name)
}

func (l *logs) paths() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.of))
}
