package gateway_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// The whole way of an instance in each mode: ordered, carved, running, billed,
// tombstoned, freed on the host's proof.
func TestOrderToRunningToFreed(t *testing.T) {
	r := newRig(t)
	r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	var all []id.Instance
	for _, name := range []string{"whole", "mig", "mps", "timeslice"} {
		all = append(all, r.create(t, name, name))
	}
	for _, i := range all {
		got := r.reaches(t, i, instance.Running)
		require.Len(t, got.Billed, 1)
		require.Len(t, got.GPUs, 1)
		require.NotEmpty(t, got.GPUs[0].UUID)
	}
	require.Equal(t, 4, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Equal(t, 4, r.count(t, `select count(*) from assignments where state = 'applied'`))
	require.Zero(t, r.count(t, `select count(*) from run_proofs p join assignments a on a.id = p.assignment_id
		where p.started_at < a.ordered_biz`), "no start before its order")
	for _, i := range all {
		_, err := r.DeleteInstance(t.Context(), r.tenant, r.project, i, app.Match{})
		require.NoError(t, err)
	}
	for _, i := range all {
		r.reaches(t, i, instance.Deleted)
	}
	require.Zero(t, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Zero(t, r.count(t, `select count(*) from claim_cells`))
	eventually(t, "reports of gone slices are forgotten", func() bool {
		return r.count(t, `select count(*) from observed_slices`) == 0
	})
}

// A killed agent comes back to the same run: its age goes on, its bill has no gap.
func TestAgentRestartKeepsTheRun(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	i := r.create(t, "one", "mig")
	before := r.reaches(t, i, instance.Running)
	session := r.count(t, `select session from host_sessions`)
	m.stop()
	m.start(t)
	eventually(t, "the next process reports", func() bool {
		return r.count(t, `select count(*) from observed_slices where session > $1`, session) == 1
	})
	after := r.get(t, i)
	require.Equal(t, instance.Running, after.Status)
	require.Equal(t, before.Billed, after.Billed)
	require.Equal(t, 1, r.count(t, `select count(*) from run_proofs`))
}

// An order and a delete that come while the agent is away are carried out when it
// is back; a host that was silent for too long shows its instance interrupted
// meanwhile, and the bill then has no gap.
func TestOrdersWaitForTheAgent(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	kept, dropped := r.create(t, "kept", "mig"), r.create(t, "dropped", "mig")
	r.reaches(t, kept, instance.Running)
	r.reaches(t, dropped, instance.Running)
	m.stop()
	r.fallsSilent(t, kept)
	require.Zero(t, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	_, err := r.DeleteInstance(t.Context(), r.tenant, r.project, dropped, app.Match{})
	require.NoError(t, err)
	m.start(t)
	r.reaches(t, dropped, instance.Deleted)
	r.reaches(t, kept, instance.Running)
	require.Equal(t, 1, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Zero(t, r.count(t, `select count(*) from usage_segments a join usage_segments b
		on b.subject_id = a.subject_id and b.seq = a.seq + 1 where upper(a.during) <> lower(b.during)`), "no gap")
}

// A reboot ends the runs of the host: the instance stops and is billed to its last
// proof; its slot is free only when the host has said so.
func TestHostRebootEndsTheRun(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	r.ready(t, "node-1")
	r.sell(t)
	i := r.create(t, "one", "mig")
	r.reaches(t, i, instance.Running)
	m.stop()
	m.boot = "boot-2"
	m.start(t)
	r.reaches(t, i, instance.Stopped)
	require.Zero(t, r.count(t, `select count(*) from usage_segments where upper_inf(during)`))
	require.Zero(t, r.count(t, `select count(*) from claim_cells`))
	require.Zero(t, r.count(t, `select count(*) from usage_segments s join run_proofs p on p.instance_id = s.subject_id
		where upper(s.during) > p.last_proof_at`), "nothing is billed that was not proven")
}

// Two hosts get their own orders.
func TestTwoHosts(t *testing.T) {
	r := newRig(t)
	token := r.token(t, true)
	r.machine(t, "node-1", token)
	r.machine(t, "node-2", token)
	r.ready(t, "node-1")
	r.ready(t, "node-2")
	r.sell(t)
	first, second := r.create(t, "a", "whole"), r.create(t, "b", "whole")
	r.reaches(t, first, instance.Running)
	r.reaches(t, second, instance.Running)
	require.Equal(t, 2, r.count(t, `select count(distinct host_id) from observed_slices where run_state = 'running'`))
}

// A host that counts as unknown although its stream is open introduces itself again.
func TestUnknownHostComesBack(t *testing.T) {
	r := newRig(t)
	r.machine(t, "node-1", r.token(t, true))
	h := r.ready(t, "node-1")
	session := r.count(t, `select session from host_sessions`)
	r.exec(t, `update hosts set liveness = 'unknown' where id = $1`, h.UUID())
	r.ready(t, "node-1")
	require.Greater(t, r.count(t, `select session from host_sessions`), session)
}

// An agent whose certificate has expired renews it, with the key it joined with.
func TestExpiredCertificateIsRenewed(t *testing.T) {
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	h := r.ready(t, "node-1")
	m.stop()
	installation, err := r.Installation(t.Context())
	require.NoError(t, err)
	path := filepath.Join(m.dir, "identity", "cert.pem")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	leaf, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	expired, err := r.Authority.IssueHost(leaf.RawSubjectPublicKeyInfo, installation, h, time.Now().Add(-48*time.Hour))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, expired.PEM, 0o600))
	session := r.count(t, `select session from host_sessions`)
	m.token = "spent"
	m.start(t)
	eventually(t, "a session with the new certificate", func() bool {
		return r.count(t, `select session from host_sessions`) > session
	})
	renewed, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotEqual(t, expired.PEM, renewed)
}
