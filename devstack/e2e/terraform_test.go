package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
)

// terraform is a working folder with the repository's example, the provider in a
// filesystem mirror, and nothing that could be fetched from elsewhere.
type terraform struct {
	t    *testing.T
	cli  string
	dir  string
	vars []string
}

func newTerraform(t *testing.T, apiURL, key string) *terraform {
	t.Helper()
	cli := os.Getenv("TF_ACC_TERRAFORM_PATH")
	if cli == "" {
		cli = "terraform"
	}
	cli, err := exec.LookPath(cli)
	require.NoError(t, err, "no Terraform: put it on PATH or name OpenTofu in TF_ACC_TERRAFORM_PATH")
	bin, err := binaries()
	require.NoError(t, err)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)

	tf := &terraform{t: t, cli: cli, dir: t.TempDir()}
	mirror := filepath.Join(tf.dir, "mirror")
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		into := filepath.Join(mirror, registry, "tranche-cloud", "tranche", "0.1.0", runtime.GOOS+"_"+runtime.GOARCH)
		require.NoError(t, os.MkdirAll(into, 0o755))
		require.NoError(t, os.Symlink(filepath.Join(bin, "terraform-provider-tranche"),
			filepath.Join(into, "terraform-provider-tranche_v0.1.0")))
	}
	config := filepath.Join(tf.dir, "cli.tfrc")
	require.NoError(t, os.WriteFile(config, []byte("provider_installation {\n  filesystem_mirror {\n    path = \""+mirror+"\"\n  }\n}\n"), 0o600))
	example, err := os.ReadFile(filepath.Join(root, "terraform", "examples", "instance", "main.tf"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(tf.dir, "main.tf"), example, 0o600))
	tf.vars = append(os.Environ(), "TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1",
		"TRANCHE_API_URL="+apiURL, "TRANCHE_API_KEY="+key)
	return tf
}

// run runs one command and returns its exit code and output.
func (tf *terraform) run(ctx context.Context, args ...string) (int, string) {
	tf.t.Helper()
	cmd := exec.CommandContext(ctx, tf.cli, args...)
	cmd.Dir, cmd.Env = tf.dir, tf.vars
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String()
	}
	require.NoError(tf.t, err)
	return 0, out.String()
}

func (tf *terraform) must(ctx context.Context, args ...string) string {
	tf.t.Helper()
	code, out := tf.run(ctx, args...)
	require.Zero(tf.t, code, out)
	return out
}

// TestTerraformAppliesPlansEmptyAndDestroys plays the README's example against a
// running region, and holds what the preview bills against what the instance shows.
func TestTerraformAppliesPlansEmptyAndDestroys(t *testing.T) {
	ctx := within(t, 2*time.Minute)
	r := open(t, market.Small(1))
	buyer, api := r.buyer(t, ctx, "terraform")
	tf := newTerraform(t, r.URL(), buyer.Key)

	tf.must(ctx, "init", "-no-color", "-input=false")
	tf.must(ctx, "apply", "-no-color", "-input=false", "-auto-approve")
	all, err := client.Collect(api.Instances(ctx, client.OnlyProject, client.InstanceFilter{}))
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, "running", all[0].Status)

	code, plan := tf.run(ctx, "plan", "-no-color", "-input=false", "-detailed-exitcode")
	require.Zero(t, code, "a second plan is empty: %s", plan)

	tf.must(ctx, "destroy", "-no-color", "-input=false", "-auto-approve")
	gone, err := api.GetInstance(ctx, all[0].Project, all[0].Id)
	require.NoError(t, err)
	require.EqualValues(t, "deleted", gone.Status)
	left, err := client.Collect(api.Instances(ctx, client.OnlyProject, client.InstanceFilter{}))
	require.NoError(t, err)
	require.Empty(t, left)

	preview, err := api.PreviewInvoice(ctx, "")
	require.NoError(t, err)
	require.Len(t, preview.Lines, 1)
	require.Equal(t, billedMicroseconds(t, gone), preview.Lines[0].Quantity.Value)
	r.clean(t, ctx)
}

// billedMicroseconds is Σ (to − from) of what an instance shows as billed.
func billedMicroseconds(t *testing.T, i client.Instance) string {
	t.Helper()
	require.NotEmpty(t, i.Billed)
	sum := new(big.Int)
	for _, b := range i.Billed {
		to, err := b.To.Get()
		require.NoError(t, err, "a deleted instance bills no more")
		sum.Add(sum, big.NewInt(to.Sub(b.From.Time).Microseconds()))
	}
	return sum.String()
}
