package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/tranche-cloud/tranche/agent/runtime/oci"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Registry asks registries, under one policy. It keeps no layers.
type Registry struct {
	policy    Policy
	allow     []string
	transport http.RoundTripper
}

// NewRegistry checks the policy.
func NewRegistry(policy Policy) (*Registry, error) {
	r := &Registry{policy: policy.withDefaults()}
	named := map[string]bool{}
	for _, pattern := range policy.Allow {
		host, rest, ok := strings.Cut(pattern, "/")
		if !ok || host == "" {
			return nil, fmt.Errorf("allowed image %q: name the registry, for example registry.example/team/", pattern)
		}
		registry, err := name.NewRegistry(host)
		if err != nil {
			return nil, fmt.Errorf("allowed image %q: %w", pattern, err)
		}
		r.allow = append(r.allow, registry.RegistryStr()+"/"+rest)
		named[registry.RegistryStr()] = true
	}
	r.transport = newEgress(named)
	return r, nil
}

// Policy returns the policy with its defaults.
func (r *Registry) Policy() Policy { return r.policy }

func refuse(kind runtime.Kind, format string, args ...any) *runtime.Error {
	return runtime.Refuse(kind, "pull", "", format, args...)
}

// Parse reads a reference and checks it against the allow-list: IMAGE_INVALID,
// IMAGE_REFUSED.
func (r *Registry) Parse(reference string) (name.Reference, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, refuse(runtime.ImageInvalid, "%q is not an image reference: write registry/repository:tag", reference).Because(err)
	}
	if len(r.allow) == 0 {
		return ref, nil
	}
	full := ref.Context().Name()
	for _, pattern := range r.allow {
		if pattern == full || strings.HasSuffix(pattern, "/") && strings.HasPrefix(full, pattern) || pattern == ref.Name() {
			return ref, nil
		}
	}
	return nil, refuse(runtime.ImageRefused, "%s is not on this pool's list of allowed images: use one of %s", full, strings.Join(r.allow, ", "))
}

// auth returns the login if it is one for the reference's registry.
func auth(ref name.Reference, login *runtime.Login) authn.Authenticator {
	if login == nil {
		return authn.Anonymous
	}
	registry, err := name.NewRegistry(login.Registry)
	if err != nil || registry.RegistryStr() != ref.Context().RegistryStr() {
		return authn.Anonymous
	}
	return &authn.Basic{Username: login.Username, Password: login.Password}
}

// Resolve asks the registry what a reference is now, with the caller's login, and
// checks the image against the limits. The context bounds also the later reads of
// Source.
func (r *Registry) Resolve(ctx context.Context, req Request) (Resolved, error) {
	ref, err := r.Parse(req.Reference)
	if err != nil {
		return Resolved{}, err
	}
	source, err := remote.Image(ref,
		remote.WithContext(ctx), remote.WithTransport(r.transport), remote.WithAuth(auth(ref, req.Login)),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 3}),
	)
	if err != nil {
		return Resolved{}, classify(ctx, ref.Name(), err)
	}
	image, err := r.describe(ref, source)
	if err != nil {
		return Resolved{}, classify(ctx, ref.Name(), err)
	}
	return Resolved{Image: image, Name: ref, Source: source}, nil
}

// describe reads manifest and configuration, and checks them.
func (r *Registry) describe(ref name.Reference, source v1.Image) (Image, error) {
	manifest, err := source.Manifest()
	if err != nil {
		return Image{}, err
	}
	digest, err := source.Digest()
	if err != nil {
		return Image{}, err
	}
	image := Image{Reference: ref.Name(), Digest: digest.String()}
	if n := len(manifest.Layers); n == 0 || n > r.policy.MaxLayers {
		return Image{}, refuse(runtime.ImageRefused, "%s has %d layers, allowed are 1 to %d: build it with fewer", ref.Name(), n, r.policy.MaxLayers)
	}
	var total int64
	for _, l := range manifest.Layers {
		if l.Size < 0 || l.Size > r.policy.MaxCompressed-total {
			return Image{}, refuse(runtime.ImageRefused, "%s is larger than the %d MiB allowed: build it smaller", ref.Name(), r.policy.MaxCompressed>>20)
		}
		total += l.Size
		image.Layers = append(image.Layers, Layer{Digest: l.Digest.String(), Size: l.Size})
	}
	config, err := source.ConfigFile()
	if err != nil {
		return Image{}, err
	}
	if config.OS != "linux" || config.Architecture != goruntime.GOARCH {
		return Image{}, refuse(runtime.ImageInvalid, "%s is for %s/%s, this host is linux/%s: build it for that", ref.Name(), config.OS, config.Architecture, goruntime.GOARCH)
	}
	image.Config = oci.Image{
		Entrypoint: config.Config.Entrypoint, Command: config.Config.Cmd, Env: config.Config.Env,
		WorkingDir: path.Clean("/" + config.Config.WorkingDir), User: config.Config.User,
	}
	return image, nil
}

// Classify gives an error of reading Resolved.Source its kind.
func (r *Registry) Classify(ctx context.Context, found Resolved, err error) error {
	return classify(ctx, found.Reference, err)
}

// classify gives an error of a registry its kind.
func classify(ctx context.Context, reference string, err error) error {
	if _, ok := errors.AsType[*runtime.Error](err); ok {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if _, ok := errors.AsType[*runtime.Error](cause); ok {
			return cause
		}
		return refuse(runtime.ImageUnavailable, "pull of %s was given up", reference).Because(cause)
	}
	answer, ok := errors.AsType[*transport.Error](err)
	if !ok {
		if strings.Contains(err.Error(), "no child with platform") {
			return refuse(runtime.ImageInvalid, "%s has no variant for linux/%s", reference, goruntime.GOARCH)
		}
		return refuse(runtime.ImageUnavailable, "the registry of %s does not answer as a registry", reference).Because(err)
	}
	kind, detail := ofStatus(answer.StatusCode)
	for _, d := range answer.Errors {
		switch d.Code {
		case transport.NameUnknownErrorCode, transport.ManifestUnknownErrorCode:
			kind, detail = runtime.ImageNotFound, "there is no such image, or its login is missing"
		case transport.UnauthorizedErrorCode, transport.DeniedErrorCode:
			kind, detail = ofStatus(http.StatusUnauthorized)
		}
	}
	return refuse(kind, "%s: %s", reference, detail).Because(err)
}

func ofStatus(code int) (runtime.Kind, string) {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return runtime.ImageUnauthorized, "the registry wants another login"
	case code == http.StatusNotFound:
		return runtime.ImageNotFound, "there is no such image, or its login is missing"
	case code == http.StatusTooManyRequests || code >= 500:
		return runtime.ImageUnavailable, "the registry cannot answer now: try again later"
	}
	return runtime.ImageInvalid, fmt.Sprintf("the registry answered %d", code)
}

// within bounds a pull by the policy's deadline, with a typed cause.
func (r *Registry) within(ctx context.Context, reference string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.policy.Deadline, refuse(runtime.ImageUnavailable,
		"%s took longer than %s to pull: build it smaller or try again", reference, r.policy.Deadline))
}
