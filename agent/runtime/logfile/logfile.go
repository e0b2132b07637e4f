// Package logfile owns the file that gets what a container writes: bounded, and open in
// a process that outlives the agent. Sizes are bytes.
//
// It does not read logs and does not know who writes.
package logfile

import (
	"errors"
	"os"
	"sync"
)

// File is a file that takes at most limit bytes; then it becomes NAME.1 and a
// new one begins. A full disk loses lines and never blocks the container.
type File struct {
	mu    sync.Mutex
	name  string
	limit int64
	size  int64
	file  *os.File // nil: nothing is kept
}

// Open continues the file, readable by its owner and group alone, or makes it. The name "" drops
// everything; the limit 0 is none.
func Open(name string, limit int64) (*File, error) {
	l := &File{name: name, limit: limit}
	if name == "" {
		return l, nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return l, nil
}

// Write takes everything and never fails.
func (l *File) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := len(p)
	if l.file == nil {
		return taken, nil
	}
	if l.limit > 0 && l.size+int64(len(p)) > l.limit {
		l.turn()
	}
	if l.limit > 0 && int64(len(p)) > l.limit {
		p = p[int64(len(p))-l.limit:]
	}
	n, _ := l.file.Write(p)
	l.size += int64(n)
	return taken, nil
}

// turn begins a new file. If that cannot be done, the old one is emptied.
func (l *File) turn() {
	if os.Rename(l.name, l.name+".1") == nil {
		if f, err := os.OpenFile(l.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640); err == nil {
			_ = l.file.Close()
			l.file, l.size = f, 0
			return
		}
	}
	if l.file.Truncate(0) == nil {
		l.size = 0
	}
}

// Close closes the file.
func (l *File) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}
