// Package account owns the question whom a program in an image runs as: it reads the
// image's own list of users and groups.
//
// It changes no identity. An image may hold anything under those names, so what is no
// plain file, or no proper line, is as if it were not there.
package account

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Account is a user of an image. Shell and Name are "" when the image does not list it.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
	Groups            []uint32
}

// ErrUnknown is what Resolve fails with, wrapped, for a name that the image does not
// list; the text is for the tenant.
var ErrUnknown = errors.New("use a number, or add it to the image")

// Where an image names its users.
const (
	Users  = "/etc/passwd"
	Groups = "/etc/group"
)

// Resolve finds user[:group], each a name or a number, as image configurations have it,
// in the two files; "" is root. A number needs no entry. It fails with ErrUnknown.
func Resolve(wanted, passwd, group string) (Account, error) {
	user, primary, grouped := strings.Cut(wanted, ":")
	if user == "" {
		user = "0"
	}
	users, groups := records(passwd, 7), records(group, 4)
	found, err := resolveUser(user, users)
	if err != nil {
		return Account{}, err
	}
	if grouped && primary != "" {
		if found.GID, err = resolveGroup(primary, groups); err != nil {
			return Account{}, err
		}
		return found, nil
	}
	for _, g := range groups {
		if gid, ok := number(g[2]); ok && found.Name != "" && strings.Contains(","+g[3]+",", ","+found.Name+",") {
			found.Groups = append(found.Groups, gid)
		}
	}
	return found, nil
}

func resolveUser(user string, users [][]string) (Account, error) {
	wanted, numeric := number(user)
	for _, u := range users {
		uid, ok := number(u[2])
		gid, ok2 := number(u[3])
		if ok && ok2 && (u[0] == user || (numeric && uid == wanted)) {
			return Account{Name: u[0], Home: cmp.Or(u[5], "/"), Shell: u[6], UID: uid, GID: gid}, nil
		}
	}
	switch {
	case numeric && wanted == 0:
		return Account{Name: "root", Home: "/root"}, nil
	case numeric:
		return Account{Home: "/", UID: wanted}, nil
	}
	return Account{}, fmt.Errorf("the image runs as user %q, whom its %s does not know: %w", user, Users, ErrUnknown)
}

func resolveGroup(group string, groups [][]string) (uint32, error) {
	if gid, ok := number(group); ok {
		return gid, nil
	}
	for _, g := range groups {
		if gid, ok := number(g[2]); ok && g[0] == group {
			return gid, nil
		}
	}
	return 0, fmt.Errorf("the image runs as group %q, which its %s does not know: %w", group, Groups, ErrUnknown)
}

func number(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	// The largest value means "leave it" to the system calls.
	return uint32(n), err == nil && n != math.MaxUint32
}

// records reads a file of lines with fields between colons. An image may hold anything
// under that name; what is no plain file holds no records, and nothing blocks.
func records(path string, fields int) [][]string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil
	}
	var all [][]string
	for line := range strings.Lines(string(text)) {
		if parts := strings.Split(strings.TrimRight(line, "\r\n"), ":"); len(parts) == fields {
			all = append(all, parts)
		}
	}
	return all
}
