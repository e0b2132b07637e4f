package sshgw

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/sshcert"
)

// Entry is what the gateway needs to know of one instance. It holds no secret.
type Entry struct {
	Instance   id.Instance `json:"instance"`
	Assignment string      `json:"assignment"`
	Socket     string      `json:"socket"` // where the guest dials: guest.Folder.Shell
	Cgroup     string      `json:"cgroup"` // of the container: who may dial
	Keys       []string    `json:"keys"`   // authorized_keys lines
	Log        string      `json:"log"`    // file name below the gateway's log folder; "" none
}

// State is the gateway's desired state, a folder that the agent alone writes:
//
//	authorities            lines of the authorized_keys form: whose certificates hold
//	instances/INSTANCE     one JSON object, an Entry
//
// Every file is replaced whole, so the gateway never reads half of one.
type State struct{ dir string }

// OpenState prepares the folder.
func OpenState(dir string) (*State, error) {
	if err := os.MkdirAll(filepath.Join(dir, "instances"), 0o755); err != nil {
		return nil, fmt.Errorf("make the gateway's state: %w", err)
	}
	return &State{dir: dir}, nil
}

// Put writes an instance's entry. Keys that nobody may use are left out and named in
// the error (sshcert.ErrKey), which then is no other failure: the entry stands.
func (s *State) Put(e Entry) error {
	if e.Instance.IsZero() || (e.Log != "" && !filepath.IsLocal(e.Log)) || strings.Contains(e.Log, "/") {
		return errors.New("put gateway state: an entry names an instance, and a plain file as its log")
	}
	var refused []error
	keys := make([]string, 0, len(e.Keys))
	for _, line := range e.Keys {
		key, err := sshcert.ParseKey(line)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		keys = append(keys, key.Line())
	}
	e.Keys = keys
	text, err := json.Marshal(e)
	if err == nil {
		err = s.replace(filepath.Join("instances", e.Instance.String()), text)
	}
	if err != nil {
		return fmt.Errorf("put gateway state of %s: %w", e.Instance, err)
	}
	return errors.Join(refused...)
}

// Remove takes an instance out; its sessions are closed. It succeeds if there is none.
func (s *State) Remove(instance id.Instance) error {
	err := os.Remove(filepath.Join(s.dir, "instances", instance.String()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove gateway state of %s: %w", instance, err)
	}
	return nil
}

// List returns the instances that have an entry.
func (s *State) List() ([]id.Instance, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "instances"))
	if err != nil {
		return nil, fmt.Errorf("list gateway state: %w", err)
	}
	var all []id.Instance
	for _, e := range entries {
		if instance, err := id.Parse[id.Instance](e.Name()); err == nil {
			all = append(all, instance)
		}
	}
	return all, nil
}

// SetAuthorities says whose certificates are accepted, a line each; none is nobody's.
func (s *State) SetAuthorities(lines []string) error {
	if err := s.replace("authorities", []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		return fmt.Errorf("put gateway authorities: %w", err)
	}
	return nil
}

// replace writes a file so that readers see the old one or the new one.
func (s *State) replace(name string, text []byte) error {
	return publish(filepath.Join(s.dir, name), text)
}

// publish writes a file beside its place, makes it durable and moves it there.
func publish(path string, text []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".draft-*")
	if err != nil {
		return err
	}
	_, err = draft.Write(text)
	if err = errors.Join(err, draft.Chmod(0o644), draft.Sync(), draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return nil
}

// view is the desired state as it was read last.
type view struct {
	authorities []ssh.PublicKey
	instances   map[id.Instance]known
	stamps      map[string]stamp
}

// known is an entry with its keys read.
type known struct {
	Entry
	keys []sshcert.Key
}

// stamp tells whether a file is still the one that was read.
type stamp struct {
	info  fs.FileInfo
	entry known
}

func (s stamp) same(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.ModTime().Equal(info.ModTime()) && s.info.Size() == info.Size()
}

// load reads the state, as far as it changed since the last view. What cannot be read
// is left out and named in the error; a folder that cannot be listed changes nothing.
func (s *State) load(last *view) (*view, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, "instances"))
	if err != nil {
		return last, fmt.Errorf("read gateway state: %w", err)
	}
	now := &view{instances: map[id.Instance]known{}, stamps: map[string]stamp{}}
	var failures []error
	for _, f := range files {
		instance, err := id.Parse[id.Instance](f.Name())
		if err != nil {
			continue // a draft
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		entry := last.stamps[f.Name()]
		if !entry.same(info) {
			fresh, err := s.read(instance)
			switch {
			case err == nil:
				entry = stamp{info: info, entry: fresh}
			case entry.info == nil || !unread(err):
				failures = append(failures, err)
				continue
			default:
				// It will be read when the system can; until then the last word holds.
				failures = append(failures, err)
			}
		}
		now.stamps[f.Name()] = entry
		now.instances[instance] = entry.entry
	}
	now.authorities, err = s.readAuthorities()
	if unread(err) {
		now.authorities = last.authorities
	}
	return now, errors.Join(append(failures, err)...)
}

// unread reports whether a file could not be read for want of resources, rather than
// holding nonsense or being gone.
func unread(err error) bool {
	_, system := errors.AsType[*fs.PathError](err)
	return system && !errors.Is(err, fs.ErrNotExist)
}

func (s *State) read(instance id.Instance) (known, error) {
	var e known
	text, err := os.ReadFile(filepath.Join(s.dir, "instances", instance.String()))
	if err == nil {
		err = json.Unmarshal(text, &e.Entry)
	}
	if err == nil && e.Instance != instance {
		err = errors.New("names another instance")
	}
	if err != nil {
		return e, fmt.Errorf("read gateway state of %s: %w", instance, err)
	}
	for _, line := range e.Keys {
		if key, err := sshcert.ParseKey(line); err == nil {
			e.keys = append(e.keys, key)
		}
	}
	return e, nil
}

func (s *State) readAuthorities() ([]ssh.PublicKey, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "authorities"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read gateway authorities: %w", err)
	}
	var keys []ssh.PublicKey
	for line := range strings.Lines(string(text)) {
		if key, err := sshcert.ParseKey(line); err == nil {
			keys = append(keys, key.PublicKey)
		}
	}
	return keys, nil
}
