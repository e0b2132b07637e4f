package health_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/nodeagent/health"
)

// catalogue is the maker's catalogue of 172 codes by what it advises, told again
// beside the table so that a slip in either shows.
var catalogue = map[health.Bucket]struct {
	credited bool
	codes    []int
}{
	health.RestartApp: {false, []int{
		8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89,
		96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139,
	}},
	health.Contained: {true, []int{94}},
	health.Ignore: {false, []int{
		37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161,
	}},
	health.ResetGPU:    {true, []int{46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}},
	health.RestartHost: {true, []int{79}},
	health.DoubleBit:   {true, []int{48}},
	health.Follow:      {true, []int{45, 171, 172}},
	health.DriverSays:  {true, []int{154}},
	health.NVLinkGroup: {true, []int{74, 144, 145, 146, 147, 148, 149, 150}},
	health.Inspect:     {true, []int{54}},
	health.Update:      {true, []int{78}},
	health.RestartVM:   {true, []int{151}},
}

const lastCode = 172

func TestEveryCodeOfTheCatalogue(t *testing.T) {
	p := health.DefaultPolicy()
	want := map[int]health.Rule{}
	for b, c := range catalogue {
		for _, code := range c.codes {
			require.NotContains(t, want, code)
			want[code] = health.Rule{Do: b, Credited: c.credited}
		}
	}
	for code := 1; code <= lastCode; code++ {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			rule, known := p.Rule(code)
			require.True(t, known)
			if _, named := want[code]; !named {
				want[code] = health.Rule{Do: health.Alarm, Credited: true}
			}
			require.Equal(t, want[code], rule)
		})
	}
	require.Len(t, p.Rules, lastCode)
	rule, known := p.Rule(lastCode + 1)
	require.False(t, known)
	require.Equal(t, health.Alarm, rule.Do, "what nobody knows takes no new work")
	require.NotEmpty(t, p.Revision)
}

func TestAnOperatorReplacesSingleCodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "xid.yaml")
	text := "version: 1\nrules:\n- {codes: [13, 500-501], do: reset_gpu}\n- {codes: [79], do: await_reboot, credited: false}\n" +
		"resets: {hopper: host}\nclient_ended: tell\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	p, err := health.LoadPolicy(path)
	require.NoError(t, err)
	for code, want := range map[int]health.Rule{
		13: {Do: health.ResetGPU, Credited: true}, 500: {Do: health.ResetGPU, Credited: true}, 501: {Do: health.ResetGPU, Credited: true},
		79: {Do: health.AwaitReboot}, 31: {Do: health.RestartApp}, 95: {Do: health.ResetGPU, Credited: true},
	} {
		got, known := p.Rule(code)
		require.True(t, known)
		require.Equal(t, want, got, code)
	}
	require.False(t, p.EndClients)
	require.Equal(t, health.ResetHost, p.Resets["hopper"])
	require.Equal(t, health.ResetGroup, p.Resets["ampere"], "what is not said stays")
}

func TestBadPoliciesAreRefusedByLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "empty",
		"version: 2\n":               "version: 2 is not known, only 1",
		"version: 1\nruels: []\n":    "line 2: field ruels not found",
		"version: 1\n---\nmore: 1\n": "more than one YAML document",
		"version: 1\nrules:\n- {codes: [13], do: shrug}\n":                              `line 3: do: "shrug" is none of alarm, await_reboot`,
		"version: 1\nrules:\n- {codes: [], do: ignore}\n":                               "line 3: a rule needs codes",
		"version: 1\nrules:\n- {codes: [0], do: ignore}\n":                              `line 3: codes: "0" is neither`,
		"version: 1\nrules:\n- {codes: [9-5], do: ignore}\n":                            `line 3: codes: "9-5" is neither`,
		"version: 1\nrules:\n- {codes: [13], do: ignore, until: now}\n":                 `line 3: unknown key "until"`,
		"version: 1\nrules:\n- 13\n":                                                    "line 3: a rule is a mapping",
		"version: 1\nrules:\n- {codes: [13], do: ignore}\n- {codes: [13], do: alarm}\n": "line 4: code 13 is also on line 3",
		"version: 1\nresets: {hopper: rack}\n":                                          `line 2: resets: "rack" is none of`,
		"version: 1\nclient_ended: maybe\n":                                             `client_ended: "maybe" is neither`,
	} {
		_, err := health.ParsePolicy([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := health.LoadPolicy(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
