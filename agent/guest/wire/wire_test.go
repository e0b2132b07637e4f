package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/agent/guest/wire"
)

func frame(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

func TestAFrameIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	said := wire.FromGuest{Kind: wire.Ended, Code: 143, Uptime: 17, Reason: "no such program"}
	require.NoError(t, wire.Write(&stream, wire.MaxFromGuest, said))
	var heard wire.FromGuest
	require.NoError(t, wire.Read(&stream, wire.MaxFromGuest, &heard, nil))
	require.Equal(t, said, heard)
	require.Zero(t, stream.Len())
	require.ErrorIs(t, wire.Read(&stream, wire.MaxFromGuest, &heard, nil), io.EOF)
}

func TestAFrameThatNobodyMayBelieveIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream []byte
		want   error
	}{
		"empty":              {frame(""), wire.ErrMalformed},
		"huge":               {[]byte{0xff, 0xff, 0xff, 0xff, '{'}, wire.ErrTooLarge},
		"one byte over":      {frame(`{"kind":"beat"}` + strings.Repeat(" ", wire.MaxFromGuest-14)), wire.ErrTooLarge},
		"no JSON":            {frame("beat"), wire.ErrMalformed},
		"two values":         {frame(`{"kind":"beat"}{}`), wire.ErrMalformed},
		"a list":             {frame(`[]`), wire.ErrMalformed},
		"no kind":            {frame(`{}`), wire.ErrMalformed},
		"the host's kind":    {frame(`{"kind":"boot"}`), wire.ErrMalformed},
		"no version":         {frame(`{"kind":"hello","phase":"waiting"}`), wire.ErrMalformed},
		"unknown phase":      {frame(`{"kind":"hello","version":1,"phase":"x"}`), wire.ErrMalformed},
		"code too large":     {frame(`{"kind":"exited","code":256}`), wire.ErrMalformed},
		"negative code":      {frame(`{"kind":"exited","code":-1}`), wire.ErrMalformed},
		"before the boot":    {frame(`{"kind":"ready","uptime":-1}`), wire.ErrMalformed},
		"a long reason":      {frame(`{"kind":"exited","reason":"` + strings.Repeat("x", 513) + `"}`), wire.ErrMalformed},
		"cut off":            {frame(`{"kind":"beat"}`)[:9], io.ErrUnexpectedEOF},
		"cut off in length":  {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"a number too large": {frame(`{"kind":"ready","uptime":1e30}`), wire.ErrMalformed},
	} {
		var heard wire.FromGuest
		require.ErrorIs(t, wire.Read(bytes.NewReader(tc.stream), wire.MaxFromGuest, &heard, nil), tc.want, name)
	}
	require.ErrorIs(t, wire.Write(io.Discard, 8, wire.FromGuest{Kind: wire.Pulse}), wire.ErrTooLarge)
}

func TestANewerSideMaySayMore(t *testing.T) {
	t.Parallel()
	var heard wire.FromGuest
	stream := bytes.NewReader(frame(`{"kind":"beat","mood":"fine"}`))
	require.NoError(t, wire.Read(stream, wire.MaxFromGuest, &heard, nil))
}

// FuzzRead feeds the decoder what a tenant may send.
func FuzzRead(f *testing.F) {
	f.Add(frame(`{"kind":"hello","version":1,"phase":"running","uptime":5}`))
	f.Add(frame(`{"kind":"exited","code":143}`))
	f.Add([]byte{0, 0, 0x10, 0x01, '{'})
	f.Fuzz(func(t *testing.T, stream []byte) {
		var heard wire.FromGuest
		r := bytes.NewReader(stream)
		if wire.Read(r, wire.MaxFromGuest, &heard, nil) != nil {
			return
		}
		require.LessOrEqual(t, len(stream)-r.Len(), 4+wire.MaxFromGuest, "never reads past one frame")
		var again wire.FromGuest
		var out bytes.Buffer
		require.NoError(t, wire.Write(&out, wire.MaxFromHost, heard))
		require.NoError(t, wire.Read(&out, wire.MaxFromHost, &again, nil))
		require.Equal(t, heard, again)
	})
}
