//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"
)

// followSize tells the session when the terminal changes its size, until the returned
// function is called.
func followSize(s *ssh.Session, terminal *os.File) func() {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for range changed {
			if width, height, err := term.GetSize(int(terminal.Fd())); err == nil {
				_ = s.WindowChange(height, width)
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
	}
}
