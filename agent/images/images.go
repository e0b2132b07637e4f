// Package images owns the images of instances on a host: which references are
// allowed, what a reference means today, the unpacked layers, and the root file
// system of each instance. No daemon takes part.
//
// It does not run anything and does not decide what an image may do (runtime/oci).
// Sizes are bytes unless a name says MiB. Errors are *runtime.Error of op "pull",
// except those of the host's own disk, which are RUNTIME_FAILED.
//
// The rules:
//   - A reference is asked of its registry with the caller's own login at every start.
//     Layers that lie here already are used only after that answer, so that a cached
//     private image is no way around its registry.
//   - https on port 443 to public addresses only. A registry that the allow-list names
//     may have another port and a private address; plain HTTP is spoken with a named
//     registry on loopback alone.
//   - Registry credentials stay in memory.
//   - A layer is written by an extractor that cannot leave its folder and makes no
//     device, FIFO, set-id effect or extended attribute.
//   - Ids of an image lie within the 65,536 of a user namespace; others become nobody.
//   - What an instance writes is bounded by a disk of its own (Config.Disk).
package images

import (
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Policy says what may be pulled. Zero fields take the defaults.
type Policy struct {
	// Allow lists the prefixes of allowed references, each with its registry, for
	// example "registry.example/team/" or "docker.io/"; a prefix ends at a slash, at a
	// tag or digest, or it is the whole repository. Empty allows every public registry.
	Allow []string
	// MaxCompressed is the size of all layers as the registry stores them: 20 GiB.
	MaxCompressed int64
	// MaxLayers is 127.
	MaxLayers int
	// MaxRatio is how many times larger a layer may be unpacked: 100, and 64 MiB more.
	MaxRatio int64
	// Deadline of one pull, from the first request to the last file: 15 minutes.
	Deadline time.Duration
}

func (p Policy) withDefaults() Policy {
	if p.MaxCompressed == 0 {
		p.MaxCompressed = 20 << 30
	}
	if p.MaxLayers == 0 {
		p.MaxLayers = 127
	}
	if p.MaxRatio == 0 {
		p.MaxRatio = 100
	}
	if p.Deadline == 0 {
		p.Deadline = 15 * time.Minute
	}
	return p
}

// Request is an image that somebody wants.
type Request struct {
	Reference string
	Login     *runtime.Login // nil, or for another registry: anonymous
	Progress  func(text string)
}

func (r Request) tell(text string) {
	if r.Progress != nil {
		r.Progress(text)
	}
}

// Image is what a registry answered, and how the image wants to be run.
type Image struct {
	Reference string
	Digest    string // sha256:… of this platform's manifest
	Config    oci.Image
	Layers    []Layer // lowest first
}

// Layer is one layer.
type Layer struct {
	Digest string // sha256:… as stored by the registry
	Size   int64  // as stored by the registry
}

// Resolved is an image with its source, for whoever brings its own layer store.
type Resolved struct {
	Image
	Name   name.Reference
	Source v1.Image
}

// Unbounded as Config.Disk gives instances the whole data disk: for development
// machines without loop devices alone.
const Unbounded units.MiB = -1

// DefaultDisk is what an instance may write if nothing else is said.
const DefaultDisk = 20 * units.GiB
