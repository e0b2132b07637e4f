package id_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tranche-cloud/tranche/internal/id"
)

// The valid vectors of the TypeID specification, version 0.3.
var vectors = map[string]string{
	"00000000000000000000000001": "00000000-0000-0000-0000-000000000001",
	"0000000000000000000000000a": "00000000-0000-0000-0000-00000000000a",
	"0000000000000000000000000g": "00000000-0000-0000-0000-000000000010",
	"00000000000000000000000010": "00000000-0000-0000-0000-000000000020",
	"7zzzzzzzzzzzzzzzzzzzzzzzzz": "ffffffff-ffff-ffff-ffff-ffffffffffff",
	"0123456789abcdefghjkmnpqrs": "0110c853-1d09-52d8-d73e-1194e95b5f19",
	"01h455vb4pex5vsknk084sn02q": "01890a5d-ac96-774b-bcce-b302099a8057",
}

func TestTheVectorsOfTheSpecification(t *testing.T) {
	t.Parallel()
	for text, uuid := range vectors {
		raw, err := hex.DecodeString(strings.ReplaceAll(uuid, "-", ""))
		require.NoError(t, err)
		got, err := id.Parse[id.Instance]("inst_" + text)
		require.NoError(t, err)
		require.Equal(t, id.Instance(raw), got)
		require.Equal(t, "inst_"+text, got.String())
		require.Equal(t, [16]byte(raw), got.UUID())
	}
}

func TestWhatTheSpecificationForbidsIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":                 "",
		"the prefix alone":      "inst",
		"no suffix":             "inst_",
		"no prefix":             "00000000000000000000000001",
		"a separator alone":     "_00000000000000000000000001",
		"prefix in upper case":  "INST_00000000000000000000000001",
		"another prefix":        "host_00000000000000000000000001",
		"a longer prefix":       "insta_00000000000000000000000001",
		"two separators":        "inst__00000000000000000000000001",
		"suffix too short":      "inst_1234567890123456789012345",
		"suffix too long":       "inst_123456789012345678901234567",
		"suffix in upper case":  "inst_0123456789ABCDEFGHJKMNPQRS",
		"spaces":                "inst_1234567890123456789012345 ",
		"hyphens":               "inst_123456789-123456789-123456",
		"letters that mislead":  "inst_0ooooooiiiiiilllllluuuuuuu",
		"over 128 bits":         "inst_8zzzzzzzzzzzzzzzzzzzzzzzzz",
		"the zero id":           "inst_00000000000000000000000000",
		"a UUID":                "inst_01890a5d-ac96-774b-bcce-b302099a8057",
		"a character of 2 byte": "inst_0123456789abcdefghjkmnpqé",
	} {
		_, err := id.Parse[id.Instance](text)
		require.ErrorIs(t, err, id.ErrMalformed, name)
	}
}

func TestAnyIDIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "bits")
		want := id.Claim(raw)
		if want.IsZero() {
			return
		}
		got, err := id.Parse[id.Claim](want.String())
		require.NoError(rt, err)
		require.Equal(rt, want, got)
	})
}

func TestTextAndBitsSortAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a := id.Event(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "a"))
		b := id.Event(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "b"))
		if a.IsZero() || b.IsZero() {
			return
		}
		require.Equal(rt, bytes.Compare(a[:], b[:]), strings.Compare(a.String(), b.String()))
	})
}

func TestIDsSortByTheirMillisecond(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	earlier := id.At[id.Segment](at)
	for range 1000 {
		at = at.Add(time.Millisecond)
		later := id.At[id.Segment](at)
		require.Less(t, earlier.String(), later.String())
		earlier = later
	}
}

func TestAnIDIsAUUIDOfVersion7(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(0x0123456789ab)
	raw := id.At[id.Org](at).UUID()
	require.Equal(t, []byte{0x01, 0x23, 0x45, 0x67, 0x89, 0xab}, raw[:6])
	require.Equal(t, byte(0x70), raw[6]&0xf0, "version 7")
	require.Equal(t, byte(0x80), raw[8]&0xc0, "the RFC's variant")
}

func TestNewIDsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[id.Request]bool{}
	at := time.UnixMilli(1)
	for range 10_000 {
		seen[id.At[id.Request](at)] = true
	}
	require.Len(t, seen, 10_000)
	require.NotEqual(t, id.New[id.Request](), id.New[id.Request]())
}

func TestTheZeroIDMeansNone(t *testing.T) {
	t.Parallel()
	var none id.Host
	require.True(t, none.IsZero())
	require.Empty(t, none.String())
	got := id.New[id.Host]()
	require.NoError(t, got.UnmarshalText(nil))
	require.True(t, got.IsZero())
}

func TestIDsTravelInJSON(t *testing.T) {
	t.Parallel()
	type body struct {
		Host id.Host `json:"host,omitzero"`
		List []id.GPU
	}
	want := body{Host: id.New[id.Host](), List: []id.GPU{id.New[id.GPU]()}}
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.Contains(t, string(text), `"host":"host_`)
	var got body
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, want, got)
	require.Error(t, json.Unmarshal([]byte(`{"host":"gpu_00000000000000000000000001"}`), &got))
	text, err = json.Marshal(body{})
	require.NoError(t, err)
	require.NotContains(t, string(text), "host")
}

func TestNoTwoNounsShareAPrefix(t *testing.T) {
	t.Parallel()
	prefixes := []string{
		id.Org{}.Prefix(), id.Project{}.Prefix(), id.Key{}.Prefix(), id.Instance{}.Prefix(), id.Assignment{}.Prefix(),
		id.Claim{}.Prefix(), id.Operation{}.Prefix(), id.Event{}.Prefix(), id.Segment{}.Prefix(), id.Invoice{}.Prefix(),
		id.Host{}.Prefix(), id.GPU{}.Prefix(), id.JoinToken{}.Prefix(), id.PriceBook{}.Prefix(), id.PriceVersion{}.Prefix(),
		id.Request{}.Prefix(),
	}
	require.Equal(t, strings.Fields("org proj key inst asg claim op evt seg inv host gpu join pbk ver req"), prefixes)
}

func FuzzParse(f *testing.F) {
	for text := range vectors {
		f.Add("inst_" + text)
	}
	f.Add("inst_8zzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := id.Parse[id.Instance](text)
		if err != nil {
			require.ErrorIs(t, err, id.ErrMalformed)
			return
		}
		require.Equal(t, text, got.String(), "one id has one spelling")
	})
}
