package agentlink_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
)

// Who may take a host's stream over, row by row.
func TestAdmit(t *testing.T) {
	open := agentlink.Incumbent{Session: 7, BootID: "boot", Nonce: "a", Counter: 3, Open: true, Silence: 9 * time.Second}
	with := func(change func(*agentlink.Incumbent)) agentlink.Incumbent { o := open; change(&o); return o }
	for _, tc := range []struct {
		name  string
		old   agentlink.Incumbent
		hello agentlink.Hello
		want  agentlink.Admission
	}{
		{"first stream ever", agentlink.Incumbent{}, agentlink.Hello{BootID: "boot", Nonce: "a"}, agentlink.Admitted},
		{"same process, later stream, at once", open, agentlink.Hello{BootID: "boot", Nonce: "a", Counter: 4}, agentlink.Admitted},
		{"same process, same stream twice", open, agentlink.Hello{BootID: "boot", Nonce: "a", Counter: 3}, agentlink.Outdated},
		{"same process, delayed older stream", open, agentlink.Hello{BootID: "boot", Nonce: "a", Counter: 2}, agentlink.Outdated},
		{"new process while the old proves life", open, agentlink.Hello{BootID: "boot", Nonce: "b", Counter: 1}, agentlink.Occupied},
		{
			"new process just before the second missed proof", with(func(o *agentlink.Incumbent) { o.Silence = 20*time.Second - 1 }),
			agentlink.Hello{BootID: "boot", Nonce: "b", Counter: 1},
			agentlink.Occupied,
		},
		{
			"new process after two missed proofs", with(func(o *agentlink.Incumbent) { o.Silence = 20 * time.Second }),
			agentlink.Hello{BootID: "boot", Nonce: "b", Counter: 1},
			agentlink.Admitted,
		},
		{
			"new process after the old stream closed", with(func(o *agentlink.Incumbent) { o.Open = false }),
			agentlink.Hello{BootID: "boot", Nonce: "b", Counter: 1},
			agentlink.Admitted,
		},
		{"another boot while the old proves life", open, agentlink.Hello{BootID: "other", Nonce: "b", Counter: 1}, agentlink.Contradict},
		{
			"another boot after silence", with(func(o *agentlink.Incumbent) { o.Silence = time.Minute }),
			agentlink.Hello{BootID: "other", Nonce: "b", Counter: 1},
			agentlink.Admitted,
		},
		{
			"another boot after the stream closed", with(func(o *agentlink.Incumbent) { o.Open = false }),
			agentlink.Hello{BootID: "other", Nonce: "b", Counter: 1},
			agentlink.Admitted,
		},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, agentlink.Admit(tc.old, tc.hello)) })
	}
}
