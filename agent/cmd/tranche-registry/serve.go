package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/images/assembly"
)

type options struct {
	listen, busybox string
	add             []string
}

func serveCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve images until interrupted",
		Long: `Serve images until interrupted, and print their references, one a line.

busybox:latest is always there. --add puts a folder's contents, or one program, into
the root of an image based on it; the same name again adds to the same image. What
follows the last colon is the entrypoint, in words; a program is its own entrypoint.`,
		Example: `  tranche-registry serve --listen 127.0.0.1:5000 --add saxpy=./saxpy --add tools=./rootfs:"/bin/tool --fast"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:5000", "loopback `address` with port; port 0 takes a free one")
	cmd.Flags().StringVar(&o.busybox, "busybox", "busybox", "static busybox, a `path` or a name on the PATH")
	cmd.Flags().StringArrayVar(&o.add, "add", nil, "image as `NAME=PATH[:ENTRYPOINT]`, may be repeated")
	return cmd
}

// serve returns when the context ends.
func serve(ctx context.Context, o options, out io.Writer) error {
	images, err := assemble(o)
	if err != nil {
		return err
	}
	if err := loopback(o.listen); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{
		Handler:           registry.New(registry.Logger(log.New(io.Discard, "", 0))),
		ReadHeaderTimeout: 10 * time.Second,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	err = push(ctx, listener.Addr().String(), images, out)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-ended:
		}
	}
	return errors.Join(err, server.Close())
}

// loopback refuses addresses that others could reach: the registry asks for no login.
func loopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("read address %q: %w", address, err)
	}
	if at, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !at.IsLoopback()) {
		return fmt.Errorf("listen on %q: this registry has no login and serves loopback alone: use 127.0.0.1", address)
	}
	return nil
}

// named is one image to serve.
type named struct {
	name  string
	image v1.Image
}

func assemble(o options) ([]named, error) {
	path, err := exec.LookPath(o.busybox)
	if err != nil {
		return nil, fmt.Errorf("find a static busybox: install busybox-static or give --busybox: %w", err)
	}
	base, err := assembly.Busybox(path)
	if err != nil {
		return nil, err
	}
	out := []named{{"busybox:latest", base}}
	for _, text := range o.add {
		if out, err = add(out, base, text); err != nil {
			return nil, fmt.Errorf("add %q: %w", text, err)
		}
	}
	return out, nil
}

// add puts one more layer on the image of that name, or on busybox.
func add(images []named, base v1.Image, text string) ([]named, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || name == "" || rest == "" {
		return nil, errors.New("write NAME=PATH or NAME=PATH:ENTRYPOINT")
	}
	if !strings.Contains(name, ":") {
		name += ":latest"
	}
	path, entrypoint, err := source(rest)
	if err != nil {
		return nil, err
	}
	layer, err := assembly.Tree(path)
	if err != nil {
		return nil, err
	}
	config := v1.Config{Env: []string{assembly.Path}, Entrypoint: entrypoint}
	for i, have := range images {
		if have.name != name {
			continue
		}
		if len(entrypoint) == 0 {
			file, err := have.image.ConfigFile()
			if err != nil {
				return nil, err
			}
			config = file.Config
		}
		images[i].image, err = assembly.Image(have.image, config, layer)
		return images, err
	}
	if len(entrypoint) == 0 {
		config.Cmd = []string{"sh"}
	}
	image, err := assembly.Image(base, config, layer)
	return append(images, named{name, image}), err
}

// source separates a path from an entrypoint; a path with a colon of its own wins.
func source(text string) (string, []string, error) {
	path, words := text, ""
	info, err := os.Stat(path)
	if err != nil {
		at := strings.LastIndexByte(text, ':')
		if at < 0 {
			return "", nil, err
		}
		path, words = text[:at], text[at+1:]
		if info, err = os.Stat(path); err != nil {
			return "", nil, err
		}
	}
	entrypoint := strings.Fields(words)
	if len(entrypoint) == 0 && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
		entrypoint = []string{"/" + filepath.Base(path)}
	}
	return path, entrypoint, nil
}

// push stores the images through the registry's own door, and prints where they are.
func push(ctx context.Context, host string, images []named, out io.Writer) error {
	for _, i := range images {
		ref, err := name.ParseReference(host + "/" + i.name)
		if err != nil {
			return fmt.Errorf("name image %q: %w", i.name, err)
		}
		if err := remote.Write(ref, i.image, remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("store image %s: %w", ref, err)
		}
		if _, err := fmt.Fprintln(out, ref); err != nil {
			return fmt.Errorf("print reference: %w", err)
		}
	}
	return nil
}
