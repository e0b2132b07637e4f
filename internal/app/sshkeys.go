package app

import (
	"fmt"
	"strings"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/sshcert"
)

// maxSSHKeys bounds the keys of an instance.
const maxSSHKeys = 16

// checkSSHKeys returns the lines in their canonical form, none twice. Pointer is where
// they stand in the request.
func checkSSHKeys(lines []string, pointer string) ([]string, error) {
	if len(lines) > maxSSHKeys {
		return nil, badSSHKey(pointer, "maxItems", fmt.Sprintf("at most %d keys", maxSSHKeys))
	}
	out, seen := make([]string, 0, len(lines)), map[string]bool{}
	for n, line := range lines {
		at := fmt.Sprintf("%s/%d", pointer, n)
		key, err := parseSSHKey(line, at)
		if err != nil {
			return nil, err
		}
		if seen[key.Fingerprint()] {
			return nil, badSSHKey(at, "unique", "the key is there twice")
		}
		seen[key.Fingerprint()] = true
		out = append(out, key.Line())
	}
	return out, nil
}

func parseSSHKey(line, pointer string) (sshcert.Key, error) {
	key, err := sshcert.ParseKey(line)
	if err != nil {
		return key, badSSHKey(pointer, "format", strings.TrimPrefix(err.Error(), sshcert.ErrKey.Error()+": "))
	}
	return key, nil
}

func badSSHKey(pointer, code, detail string) error {
	return fault.New(fault.Invalid, "request.invalid", "An SSH key cannot be used.").
		Suggest("Make one with `ssh-keygen -t ed25519` and send the line of its .pub file.").
		With(fault.Field{Pointer: pointer, Code: code, Detail: detail})
}
