package runtimetest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

var imageTests = []test{
	{"an image without a shell runs its program", func(b *bench) {
		s := b.spec("/busybox", "sleep", "1000")
		s.Image = b.h.Images.Bare
		c := b.start(s)
		require.Regexp(b, `^sha256:[0-9a-f]{64}$`, c.Digest)
		var stdout bytes.Buffer
		code, err := b.driver.Exec(b.Context(), s.Name, runtime.Exec{Args: []string{"/busybox", "echo", "hi"}, Stdout: &stdout})
		require.NoError(b, err)
		require.Zero(b, code)
		require.Equal(b, "hi\n", stdout.String())
	}},
	{"an image without a command needs the tenant's", func(b *bench) {
		s := b.spec()
		s.Image = b.h.Images.Bare
		b.fails(s, runtime.CommandMissing)
	}},
	{"a program that the image lacks is the tenant's error", func(b *bench) {
		s := b.spec("/no/such/program")
		b.fails(s, runtime.CommandFailed)
		s.Command = []string{"no-such-program"}
		b.fails(s, runtime.CommandFailed)
	}},
	{"errors of images have a reason", func(b *bench) {
		for image, kind := range map[string]runtime.Kind{
			b.h.Images.Missing: runtime.ImageNotFound,
			b.h.Images.Refused: runtime.ImageRefused,
			b.h.Images.Away:    runtime.ImageUnavailable,
			"UPPER/:::x":       runtime.ImageInvalid,
			"":                 runtime.ImageInvalid,
		} {
			s := b.spec()
			s.Image = image
			b.fails(s, kind)
		}
	}},
	{"a private image wants its login, at every start and of everybody", func(b *bench) {
		s := b.spec()
		s.Image = b.h.Images.Private
		denied := []runtime.Kind{runtime.ImageUnauthorized, runtime.ImageNotFound}
		b.fails(s, denied...)
		s.Login = &b.h.Images.Login
		first := b.start(s)

		other := b.spec()
		other.Image, other.Org = s.Image, "org_2"
		b.fails(other, denied...)
		other.Image = withDigest(s.Image, first.Digest)
		b.fails(other, denied...)
		other.Login = &runtime.Login{Registry: s.Login.Registry, Username: s.Login.Username, Password: "wrong"}
		b.fails(other, denied...)

		s.Run, s.Login = 2, nil
		b.fails(s, denied...)
	}},
	{"slow work is told", func(b *bench) {
		s := b.spec()
		var told []string
		s.Extra.Progress = func(text string) { told = append(told, text) }
		b.start(s)
		require.NotEmpty(b, told)
	}},
}

// withDigest names the same image by its digest.
func withDigest(reference, digest string) string {
	for i := len(reference) - 1; i > 0 && reference[i] != '/'; i-- {
		if reference[i] == ':' {
			reference = reference[:i]
			break
		}
	}
	return reference + "@" + digest
}
