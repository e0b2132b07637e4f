// Package cgroup owns the control groups below /tranche: their counters, their
// processes and their removal, in the old (v1) and the unified (v2) hierarchy. It
// also says in which group a process of the host is, which is how a GPU client is
// told to be an instance's.
//
// It sets no limits: the OCI runtime does, from the spec. Paths are below the cgroup
// mount and begin with /tranche. Counters are the kernel's since the group was made.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// parent is the group of all containers.
const parent = "/tranche"

// ErrForeign is the error of a path that is not below /tranche.
var ErrForeign = errors.New("not a cgroup below " + parent)

// Tree is the mounted hierarchy.
type Tree struct {
	root string
	v2   bool
}

// Open finds out which hierarchy is mounted at root; "" is /sys/fs/cgroup.
func Open(root string) (*Tree, error) {
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return &Tree{root: root, v2: true}, nil
	}
	if _, err := os.Stat(filepath.Join(root, "memory")); err != nil {
		return nil, fmt.Errorf("find cgroups at %s: neither a unified hierarchy nor a memory controller: %w", root, err)
	}
	return &Tree{root: root}, nil
}

// Path is the group of a container.
func Path(name string) string { return parent + "/" + name }

// folders are the places of a group: one, or one per controller.
func (t *Tree) folders(group string) ([]string, error) {
	if path.Clean(group) != group || group != parent && !strings.HasPrefix(group, parent+"/") {
		return nil, fmt.Errorf("cgroup %q: %w", group, ErrForeign)
	}
	if t.v2 {
		return []string{filepath.Join(t.root, group)}, nil
	}
	controllers, err := os.ReadDir(t.root)
	if err != nil {
		return nil, fmt.Errorf("list cgroup controllers: %w", err)
	}
	var out []string
	for _, c := range controllers {
		if c.IsDir() { // links are other names of the same
			out = append(out, filepath.Join(t.root, c.Name(), group))
		}
	}
	return out, nil
}

// Create makes a group in every hierarchy; it may be there. In the unified one its
// ancestors hand every controller down, without which it would count nothing.
func (t *Tree) Create(group string) error {
	folders, err := t.folders(group)
	if err != nil {
		return err
	}
	if t.v2 {
		if err := t.handDown(group); err != nil {
			return fmt.Errorf("make cgroup %s: %w", group, err)
		}
	}
	for _, f := range folders {
		if err := os.MkdirAll(f, 0o755); err != nil {
			return fmt.Errorf("make cgroup %s: %w", group, err)
		}
	}
	return nil
}

func (t *Tree) handDown(group string) error {
	text, err := os.ReadFile(filepath.Join(t.root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	dir := t.root
	for _, part := range strings.Split(strings.TrimPrefix(group, "/"), "/") {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, controller := range strings.Fields(string(text)) {
			// One that cannot be handed down is a counter less, which Stats says.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o600)
		}
		dir = filepath.Join(dir, part)
	}
	return nil
}

// removal is how long a group may still hold a process that was killed.
const removal = 2 * time.Second

// Remove removes a group with those inside it. It succeeds if there is none, and
// fails if processes live in it. /tranche itself stays: a container may be about to be made in
// it.
func (t *Tree) Remove(group string) error {
	folders, err := t.folders(group)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(removal)
	for _, f := range folders {
		if err := removeTree(f, deadline); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", group, err)
		}
	}
	return nil
}

// removeTree removes groups from the inside out. The files in them are the kernel's
// and go with their folder.
func removeTree(dir string, deadline time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name()), deadline); err != nil {
				return err
			}
		}
	}
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond) // the kernel tells nobody when a dying process has left
	}
}

// PIDs lists the processes of a group and of those inside it, ascending. A group that
// is not there has none.
func (t *Tree) PIDs(group string) ([]int, error) {
	folders, err := t.folders(group)
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, f := range folders {
		if err := filepath.WalkDir(f, func(p string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !e.IsDir() {
				return err
			}
			return readPIDs(filepath.Join(p, "cgroup.procs"), found)
		}); err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", group, err)
		}
	}
	out := make([]int, 0, len(found))
	for pid := range found {
		out = append(out, pid)
	}
	slices.Sort(out)
	return out, nil
}

func readPIDs(file string, into map[int]bool) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		into[pid] = true
	}
	return nil
}

// OfPID returns the group of a process of this host, for example
// /tranche/asg_…; fs.ErrNotExist when it has ended. In the old hierarchy it is the
// group of the device controller, which is the one that admits to a GPU.
func OfPID(pid int) (string, error) { return ofPID("/proc", pid) }

func ofPID(proc string, pid int) (string, error) {
	f, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	defer f.Close()
	unified := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if slices.Contains(strings.Split(parts[1], ","), "devices") {
			return parts[2], nil
		}
		if parts[0] == "0" && parts[1] == "" {
			unified = parts[2]
		}
	}
	if err := lines.Err(); err != nil {
		// The process ended between the two.
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, errors.Join(fs.ErrNotExist, err))
	}
	if unified == "" {
		return "", fmt.Errorf("read cgroup of process %d: %w", pid, fs.ErrNotExist)
	}
	return unified, nil
}

// Container returns the name of the container whose group this is or is inside of.
func Container(group string) (string, bool) {
	rest, ok := strings.CutPrefix(group, parent+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name, ok && name != ""
}
