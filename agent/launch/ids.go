package launch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/tranche-cloud/tranche/nodeagent/durable"
)

// Ids of user namespaces: each instance has 65,536 of its own, so that nothing of one
// belongs to another, not even after an escape. They start far above the ids of people
// and packages and end below 2³¹, where some file systems stop.
const (
	idsEach = 65536
	// FirstID is where ids begin if nobody says otherwise.
	FirstID = 1 << 20
	endIDs  = 1 << 31
)

// IDs gives out ranges of ids and remembers them in one fsynced file: a range is never
// given to a second name while the first one holds it. It is safe for concurrent use.
type IDs struct {
	path  string
	first uint32

	mu    sync.Mutex
	taken map[string]int // range by name
}

// OpenIDs reads the file at the path; a missing one is made with the first range. Ids
// begin at first, which stays the same for the life of the file; 0 is FirstID.
func OpenIDs(path string, first uint32) (*IDs, error) {
	i := &IDs{path: path, first: cmp.Or(first, FirstID), taken: map[string]int{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err == nil {
		err = i.parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ids given out in %s: %w: restore the file, or end every instance of this host and remove it", path, err)
	}
	return i, nil
}

// parse refuses what Take never gives out: a range below the first would reach the
// host's own ids, and one held twice would join two tenants.
func (i *IDs) parse(text []byte) error {
	if err := json.Unmarshal(text, &i.taken); err != nil {
		return err
	}
	if i.taken == nil {
		return errors.New("it holds no list of ranges")
	}
	holder := map[int]string{}
	for name, n := range i.taken {
		if n < 0 || n >= i.most() {
			return fmt.Errorf("range %d of %s is not within 0 to %d", n, name, i.most()-1)
		}
		if other, twice := holder[n]; twice {
			return fmt.Errorf("%s and %s hold the same range %d", min(name, other), max(name, other), n)
		}
		holder[n] = name
	}
	return nil
}

// most is how many ranges there are.
func (i *IDs) most() int { return (endIDs - int(i.first)) / idsEach }

// Take returns the first id of the name's range, the same one as long as it holds it.
func (i *IDs) Take(name string) (uint32, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, ok := i.taken[name]
	if !ok {
		used := make([]int, 0, len(i.taken))
		for _, u := range i.taken {
			used = append(used, u)
		}
		slices.Sort(used)
		for n = 0; n < len(used) && used[n] == n; n++ {
		}
		if n >= i.most() {
			return 0, fmt.Errorf("all %d ranges of ids are given out", i.most())
		}
		i.taken[name] = n
		if err := i.store(); err != nil {
			delete(i.taken, name)
			return 0, err
		}
	}
	return i.first + uint32(n*idsEach), nil
}

// Give takes a range back; it succeeds if the name holds none.
func (i *IDs) Give(name string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, ok := i.taken[name]
	if !ok {
		return nil
	}
	delete(i.taken, name)
	if err := i.store(); err != nil {
		i.taken[name] = n
		return err
	}
	return nil
}

// Keep takes back every range but those of the names.
func (i *IDs) Keep(names []string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := len(i.taken)
	for name := range i.taken {
		if !slices.Contains(names, name) {
			delete(i.taken, name)
		}
	}
	if len(i.taken) == before {
		return nil
	}
	return i.store()
}

func (i *IDs) store() error {
	text, err := json.Marshal(i.taken)
	if err != nil {
		return err
	}
	if err := durable.Replace(i.path, text); err != nil {
		return fmt.Errorf("store the ids given out: %w", err)
	}
	return nil
}
