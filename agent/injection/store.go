package injection

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// Files of ours start and end so; whoever else writes into the folder does not.
const (
	prefix = "tranche-"
	suffix = ".json"
)

// specVersion is the oldest that has what we write, so that older tools read it too.
const specVersion = "0.5.0"

// Config says where things are. The zero Config is that of a host.
type Config struct {
	Dir        string // of the files; "" is DefaultDir
	Devices    string // of the driver's nodes; "" is /dev
	MigMinors  string // "" is DefaultMigMinors
	Libraries  string // folder of the driver's libraries; "" asks ldconfig
	Management string // path of nvidia-smi; "" looks in the usual places
	Version    string // of the driver, as it reports itself; "" takes what is found
	Mock       string // folder of simulated nodes; "" is /dev/tranche-mock
}

// Store keeps the files of this host's slices. It is safe for concurrent use with
// different slices.
type Store struct{ cfg Config }

// Open makes the folder of the files if it is missing.
func Open(cfg Config) (*Store, error) {
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&cfg.Dir, DefaultDir)
	fill(&cfg.Devices, "/dev")
	fill(&cfg.MigMinors, DefaultMigMinors)
	fill(&cfg.Mock, "/dev/tranche-mock")
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, refuse(Broken, "", "make folder %s", cfg.Dir).because(err)
	}
	return &Store{cfg}, nil
}

// Dir is the folder of the files.
func (s *Store) Dir() string { return s.cfg.Dir }

// Write puts the file of a slice in place, whole or not at all, and returns the
// name by which a container asks for it. Writing the same slice again changes
// nothing; other facts under the same name replace the file.
func (s *Store) Write(slice Slice) (string, error) {
	if err := slice.check(); err != nil {
		return "", err
	}
	name := Device(slice.Assignment, slice.Slot)
	edits, err := s.edits(name, slice)
	if err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(cdi.Spec{
		Version: specVersion, Kind: DeviceKind,
		Devices: []cdi.Device{{Name: name, ContainerEdits: edits}},
	}, "", "  ")
	if err != nil {
		return "", refuse(Broken, name, "encode").because(err)
	}
	if err := s.replace(name, append(text, '\n')); err != nil {
		return "", refuse(Broken, name, "write %s", s.path(name)).because(err)
	}
	return DeviceKind + "=" + name, nil
}

// replace renames a finished file into place; readers of the folder never see a
// part of it, because the name of the unfinished one has another ending.
func (s *Store) replace(name string, text []byte) error {
	f, err := os.CreateTemp(s.cfg.Dir, prefix+name+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.path(name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.cfg.Dir, prefix+name+suffix) }

// Remove takes the file of a slice away, and its simulated node. It succeeds if
// there is none.
func (s *Store) Remove(assignment string, slot int) error {
	name := Device(assignment, slot)
	if !assignmentPattern.MatchString(assignment) || slot < 0 {
		return refuse(Invalid, name, "assignment %q, slot %d name no slice", assignment, slot)
	}
	return s.remove(name)
}

func (s *Store) remove(name string) error {
	for _, path := range []string{s.path(name), s.mockNode(name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refuse(Broken, name, "remove %s", path).because(err)
		}
	}
	return nil
}

// List returns the names of the devices that have a file of ours, ascending. A file
// that only looks like ours is not in it.
func (s *Store) List() ([]string, error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil, refuse(Broken, "", "read folder %s", s.cfg.Dir).because(err)
	}
	var names []string
	for _, entry := range entries {
		name, isFile := strings.CutSuffix(strings.TrimPrefix(entry.Name(), prefix), suffix)
		if !isFile || !strings.HasPrefix(entry.Name(), prefix) || !entry.Type().IsRegular() {
			continue
		}
		if s.ours(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// ours says whether the file of a name is of our kind and holds just that device.
func (s *Store) ours(name string) bool {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		return false
	}
	var spec cdi.Spec
	if json.Unmarshal(text, &spec) != nil {
		return false
	}
	return spec.Kind == DeviceKind && len(spec.Devices) == 1 && spec.Devices[0].Name == name
}

// Sweep removes what is left of slices that are not among the names to keep (as
// Device makes them): files, unfinished files, simulated nodes. It returns the names
// of the devices removed, ascending.
func (s *Store) Sweep(keep []string) ([]string, error) {
	names, err := s.List()
	if err != nil {
		return nil, err
	}
	leftover, err := s.unfinished()
	if err != nil {
		return nil, err
	}
	for _, path := range leftover {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, refuse(Broken, "", "remove %s", path).because(err)
		}
	}
	nodes, err := s.mockNodes()
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, name := range append(names, nodes...) {
		if slices.Contains(keep, name) || slices.Contains(removed, name) {
			continue
		}
		if err := s.remove(name); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	slices.Sort(removed)
	return removed, nil
}

func (s *Store) unfinished() ([]string, error) {
	found, err := filepath.Glob(filepath.Join(s.cfg.Dir, prefix+"*.tmp"))
	if err != nil {
		return nil, refuse(Broken, "", "look for unfinished files in %s", s.cfg.Dir).because(err)
	}
	return found, nil
}
