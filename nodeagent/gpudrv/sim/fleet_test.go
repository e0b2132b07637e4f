package sim_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv/sim"
)

const goodFleet = `
hosts:
  - name: host-1
    vcpu: 96
    ram_mib: 1048576
    gpus:
      - {model: H200-141, mode: mig, count: 2}
      - {model: A100-80, mode: "mps:4x25", count: 1}
`

func TestAFleetFileIsRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	require.NoError(t, os.WriteFile(path, []byte(goodFleet), 0o600))
	f, err := sim.LoadFleet(path)
	require.NoError(t, err)
	h, ok := f.Host("host-1")
	require.True(t, ok)
	require.Equal(t, units.MiB(1048576), h.RAM)
	devices := h.Devices()
	require.Len(t, devices, 3)
	require.Equal(t, "mps:4x25", devices[2].Mode.String())
	require.NotEqual(t, devices[0].UUID, devices[1].UUID)
	require.Equal(t, devices, h.Devices(), "identities do not change")
	_, ok = f.Host("host-2")
	require.False(t, ok)
}

func TestABadFleetFileNamesThePlace(t *testing.T) {
	t.Parallel()
	host := func(rest string) string { return "hosts:\n  - {name: a, vcpu: 1, ram_mib: 1, " + rest + "}\n" }
	for name, tc := range map[string]struct{ text, want string }{
		"empty":           {"", "EOF"},
		"no hosts":        {"hosts: []", "hosts: 0"},
		"unknown field":   {host("gpus: [{model: A100-80, mode: whole, count: 1, colour: red}]"), "colour"},
		"unknown model":   {host("gpus: [{model: A100-41, mode: whole, count: 1}]"), "unknown model"},
		"bad mode":        {host("gpus: [{model: A100-80, mode: 'mps:5x25', count: 1}]"), "mps"},
		"no mode":         {host("gpus: [{model: A100-80, count: 1}]"), "no mode"},
		"no count":        {host("gpus: [{model: A100-80, mode: whole}]"), "count 0"},
		"too many":        {host("gpus: [{model: A100-80, mode: whole, count: 16}, {model: A100-80, mode: whole, count: 1}]"), "17 gpus"},
		"unknown variant": {host("gpus: [{model: A100-80, variant: r1, mode: whole, count: 1}]"), "known are [1g-9.75 r470]"},
		"mig without mig": {host("gpus: [{model: L40S-45, mode: mig, count: 1}]"), "has no MIG"},
		"odd driver":      {host("driver: {version: new}, gpus: [{model: L40S-45, mode: whole, count: 1}]"), "must look like"},
		"odd mps":         {host("driver: {mps: 4}, gpus: [{model: L40S-45, mode: whole, count: 1}]"), "must be 2 or 3"},
		"mps too new":     {host("driver: {mps: 3}, gpus: [{model: L40S-45, mode: whole, count: 1}]"), "need version 615"},
		"no gpus":         {host("gpus: []"), "no gpus"},
		"bad name":        {"hosts: [{name: A_b, vcpu: 1, ram_mib: 1, gpus: [{model: A100-80, mode: whole, count: 1}]}]", "name must"},
		"no vcpu":         {"hosts: [{name: a, ram_mib: 1, gpus: [{model: A100-80, mode: whole, count: 1}]}]", "vcpu 0"},
		"negative ram":    {"hosts: [{name: a, vcpu: 1, ram_mib: -1, gpus: [{model: A100-80, mode: whole, count: 1}]}]", "ram_mib -1"},
		"two documents":   {goodFleet + "---\nhosts: []\n", "more than one"},
		"name twice":      {"hosts: [{name: a, vcpu: 1, ram_mib: 1, gpus: [{model: A100-80, mode: whole, count: 1}]}, {name: a, vcpu: 1, ram_mib: 1, gpus: [{model: A100-80, mode: whole, count: 1}]}]", "twice"},
		"not a fleet":     {"just text", "cannot unmarshal"},
		"wrong type":      {host("gpus: 7"), "cannot unmarshal"},
		"binary garbage":  {"\x00\x01", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sim.ParseFleet([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}
