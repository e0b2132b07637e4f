package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// badInput orders what cannot be: each answer names the code and says what to do.
func badInput(t *testing.T, r *region) {
	ctx := within(t, time.Minute)
	b, c := r.buyer(t, ctx, "Clumsy")
	t.Run("refused at once", func(t *testing.T) { refusedAtOnce(t, ctx, r, b) })
	t.Run("refused by the host", func(t *testing.T) { refusedByHost(t, ctx, r, b) })
	t.Run("a command that ends", func(t *testing.T) { endsAtOnce(t, ctx, r, b) })
	t.Run("an image without a shell", func(t *testing.T) { noShell(t, ctx, r, b) })
	left, err := client.Collect(c.Instances(ctx, b.Project, client.InstanceFilter{}))
	require.NoError(t, err)
	for _, i := range left {
		remove(t, ctx, c, b, i.Id)
	}
}

func refusedAtOnce(t *testing.T, ctx context.Context, r *region, b market.Buyer) {
	c := r.Client(b.Key)
	_, public := keyPair(t)
	shm, tooMuch := int32(0), int32(1<<25)
	for name, bad := range map[string]struct {
		change  func(*client.InstanceCreate)
		status  int
		code    string
		pointer string
	}{
		"a key that is none": {
			func(in *client.InstanceCreate) { in.SshKeys = &[]string{public, "ssh-ed25519 AAAAnonsense"} },
			http.StatusBadRequest, "request.invalid", "/ssh_keys/1",
		},
		"options before a key": {
			func(in *client.InstanceCreate) { in.SshKeys = &[]string{`command="/bin/sh" ` + public} },
			http.StatusBadRequest, "request.invalid", "/ssh_keys/0",
		},
		"no shared memory": {
			func(in *client.InstanceCreate) { in.ShmMib = &shm },
			http.StatusBadRequest, "request.invalid", "/shm_mib",
		},
		"more shared memory than memory": {
			func(in *client.InstanceCreate) { in.ShmMib = &tooMuch },
			http.StatusUnprocessableEntity, "request.invalid", "/shm_mib",
		},
		"a port that is none": {
			func(in *client.InstanceCreate) { in.Ports = &[]client.Port{{ContainerPort: 70000}} },
			http.StatusBadRequest, "request.invalid", "/ports/0/container_port",
		},
		"an image that is no reference": {
			func(in *client.InstanceCreate) { in.Image = "UPPER case/:x" },
			http.StatusBadRequest, "request.invalid", "/image",
		},
	} {
		in := r.contained("bad", "sleep", "1000")
		bad.change(&in)
		_, err := c.CreateInstance(ctx, b.Project, in)
		var refused *client.Problem
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, bad.status, refused.Status, "%s: %s", name, err)
		require.Equal(t, bad.code, refused.Code, name)
		require.Len(t, refused.Errors, 1, "%s: %s", name, err)
		require.Equal(t, bad.pointer, refused.Errors[0].Pointer, name)
		require.NotEmpty(t, refused.Errors[0].Detail, name)
	}
}

// tiny is an offer with less memory than any container can have.
func tiny() market.Product {
	p := market.MIGSmall
	p.Offer, p.Shape.RamMib = "h200-mig-tiny", 1
	return p
}

// refusedByHost are orders that only the host finds to be wrong: the operation and
// the instance tell the same, and nothing is billed.
func refusedByHost(t *testing.T, ctx context.Context, r *region, b market.Buyer) {
	c := r.Client(b.Key)
	registry, _, _ := strings.Cut(r.Image(), "/")
	for name, bad := range map[string]struct {
		change func(*client.InstanceCreate)
		code   string
		says   string
	}{
		"an image that is not there": {
			func(in *client.InstanceCreate) { in.Image = registry + "/nothing:1" }, "image.not_found", "nothing:1",
		},
		"an image that is not allowed": {
			func(in *client.InstanceCreate) { in.Image = "ghcr.io/somebody/else:1" }, "image.refused", "ghcr.io",
		},
		"a registry that is away": {
			func(in *client.InstanceCreate) { in.Image = "127.0.0.1:1/x:1" }, "image.refused", "127.0.0.1:1",
		},
		"a command that is not in the image": {
			func(in *client.InstanceCreate) { in.Command = &[]string{"/no/such/program"} }, "command.failed", "/no/such/program",
		},
		"a folder as command": {
			func(in *client.InstanceCreate) { in.Command = &[]string{"/etc"} }, "command.failed", "/etc",
		},
		"a command without a name": {
			func(in *client.InstanceCreate) { in.Command = &[]string{""} }, "command.failed", "",
		},
		"memory below the minimum": {
			func(in *client.InstanceCreate) { in.Offer = tiny().Offer }, "limit.invalid", "minimum",
		},
		"a port where hosts have no network": {
			func(in *client.InstanceCreate) { in.Ports = &[]client.Port{{ContainerPort: 8080}} }, "capacity.none", "ports",
		},
	} {
		in := r.contained("bad-"+strings.ReplaceAll(name, " ", "-"), "sleep", "1000")
		bad.change(&in)
		created, err := c.CreateInstance(ctx, b.Project, in)
		require.NoError(t, err, name)
		operation, err := created.Operation.Get()
		require.NoError(t, err)
		_, err = c.WaitOperation(ctx, operation.Id)
		var failed *client.OperationError
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, bad.code, failed.Code, "%s: %s", name, err)
		require.Contains(t, failed.Detail+failed.Suggestion, bad.says, name)
		require.NotEmpty(t, failed.Suggestion, name)
		var seen client.Instance
		require.Eventually(t, func() bool {
			seen, err = c.GetInstance(ctx, b.Project, created.Id)
			return err == nil && seen.Status == wire.InstanceStatusFailed
		}, settle, glance, name)
		reason, err := seen.StatusReason.Get()
		require.NoError(t, err, name)
		require.Equal(t, bad.code, reason.Code, name)
		require.Empty(t, seen.Billed, name)
		t.Logf("%s: %s: %s", name, failed.Code, failed.Detail)
		remove(t, ctx, c, b, created.Id)
	}
}

// endsAtOnce has a program that ran and ended: its time is billed, and how it ended
// is told.
func endsAtOnce(t *testing.T, ctx context.Context, r *region, b market.Buyer) {
	c := r.Client(b.Key)
	created, err := c.CreateInstance(ctx, b.Project, r.contained("brief", "sh", "-c", "echo so long; exit 3"))
	require.NoError(t, err)
	var seen client.Instance
	require.Eventually(t, func() bool {
		seen, err = c.GetInstance(ctx, b.Project, created.Id)
		return err == nil && !seen.StatusReason.IsNull() && !seen.Transitioning
	}, settle, glance)
	reason, err := seen.StatusReason.Get()
	require.NoError(t, err)
	require.Equal(t, "run.exited", reason.Code)
	require.Contains(t, reason.Detail, "3", "the exit code")
	require.Equal(t, wire.InstanceStatusStopped, seen.Status)
	require.Len(t, seen.Billed, 1)
	end, err := seen.Billed[0].To.Get()
	require.NoError(t, err, "nothing runs on the bill")
	require.Less(t, end.Sub(seen.Billed[0].From.Time), 2*time.Second, "billed until it ended, not until somebody looked")
	require.Empty(t, seen.Interruptions, "the platform is not to blame")
	remove(t, ctx, c, b, created.Id)
}

// noShell enters an image that has one program and nothing else.
func noShell(t *testing.T, ctx context.Context, r *region, b market.Buyer) {
	c := r.Client(b.Key)
	in := r.contained("bare", "/sleep", "1000")
	in.Image = push(t, r, "bare")
	up := running(t, ctx, c, b, in)
	shell := r.inside(t, ctx, b.Key, up.Id, "", "sh", "-c", "true")
	require.NotZero(t, shell.code)
	require.Contains(t, shell.err, `"sh" is not in the image`)
	require.Equal(t, ended{}, r.inside(t, ctx, b.Key, up.Id, "", "/sleep", "0"), "a program by its path")
	remove(t, ctx, c, b, up.Id)
}

// push puts an image with nothing but the program /sleep into the region's registry.
func push(t *testing.T, r *region, name string) string {
	t.Helper()
	path, err := exec.LookPath("busybox")
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "sleep", Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}))
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())

	registry, _, _ := strings.Cut(r.Image(), "/")
	base := "http://" + registry + "/v2/" + name
	digest := func(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}},
	})
	require.NoError(t, err)
	describe := func(kind string, content []byte) map[string]any {
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(content), "size": len(content)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": describe("config.v1+json", config), "layers": []any{describe("layer.v1.tar", layer.Bytes())},
	})
	require.NoError(t, err)
	for _, blob := range [][]byte{layer.Bytes(), config} {
		send(t, http.MethodPost, base+"/blobs/uploads/?digest="+digest(blob), "application/octet-stream", blob)
	}
	send(t, http.MethodPut, base+"/manifests/1", "application/vnd.oci.image.manifest.v1+json", manifest)
	return registry + "/" + name + ":1"
}

func send(t *testing.T, method, url, kind string, body []byte) {
	t.Helper()
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	said, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Equal(t, http.StatusCreated, answer.StatusCode, string(said))
}
