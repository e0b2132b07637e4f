package sshgw

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// hostKey reads the host's key, and makes one (ed25519, mode 0600) the first time.
func hostKey(path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostKey(path); err == nil {
			text, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the SSH host key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the SSH host key %s: %w: restore it, or remove it and tell tenants of the new one", path, err)
	}
	return key, nil
}

func makeHostKey(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "tranche host")
	if err != nil {
		return err
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".host-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(draft.Name()) }()
	_, err = draft.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	// A link does not replace the key of a gateway that was started at the same time.
	if err := os.Link(draft.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func publicLine(key ssh.Signer) string {
	return strings.TrimSuffix(string(ssh.MarshalAuthorizedKey(key.PublicKey())), "\n")
}
