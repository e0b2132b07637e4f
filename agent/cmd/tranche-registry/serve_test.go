package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/images/assembly"
)

// run serves until the test ends and returns the printed references.
func run(t *testing.T, n int, args ...string) []string {
	t.Helper()
	r, w := io.Pipe()
	cmd := root()
	cmd.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
	cmd.SetOut(w)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.CloseWithError(io.EOF)
		ended <- err
	}()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	var refs []string
	lines := bufio.NewScanner(r)
	for len(refs) < n && lines.Scan() {
		refs = append(refs, lines.Text())
	}
	require.Len(t, refs, n)
	return refs
}

func config(t *testing.T, reference string) (v1.Config, int) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	require.NoError(t, err)
	image, err := remote.Image(ref)
	require.NoError(t, err)
	file, err := image.ConfigFile()
	require.NoError(t, err)
	return file.Config, len(file.RootFS.DiffIDs)
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	program, tree := filepath.Join(dir, "saxpy"), filepath.Join(dir, "tree")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "lib"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "lib", "x"), []byte("x"), 0o644))
	require.NoError(t, os.Symlink("x", filepath.Join(tree, "lib", "y")))
	refs := run(t, 3, "--add", "cuda/saxpy="+program, "--add", "cuda/saxpy="+tree, "--add", "tool:v1="+tree+":/bin/tool --fast")
	require.True(t, strings.HasSuffix(refs[0], "/busybox:latest"), refs[0])
	got, layers := config(t, refs[0])
	require.Equal(t, assembly.Wait, got.Cmd)
	require.Equal(t, 1, layers)
	got, layers = config(t, refs[1])
	require.Equal(t, []string{"/saxpy"}, got.Entrypoint)
	require.Equal(t, 3, layers, "busybox, the program, the folder")
	got, layers = config(t, refs[2])
	require.Equal(t, []string{"/bin/tool", "--fast"}, got.Entrypoint)
	require.Equal(t, 2, layers)
}

func TestRefusals(t *testing.T) {
	for _, args := range [][]string{
		{"--listen", "0.0.0.0:0"}, {"--listen", "x"}, {"--busybox", "/no/busybox"}, {"--add", "x"}, {"--add", "x=/no/such/path"},
		{"--add", "x=/no/such/path:entry"},
	} {
		cmd := root()
		cmd.SetArgs(append([]string{"serve"}, args...))
		require.Error(t, cmd.ExecuteContext(t.Context()), args)
	}
}
