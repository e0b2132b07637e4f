//go:build !unix

package main

import (
	"os"

	"golang.org/x/crypto/ssh"
)

// followSize does nothing: this system has no signal for it.
func followSize(*ssh.Session, *os.File) func() { return func() {} }
