package gateway_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/agentlink/agentv1"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

// until reads frames until one is wanted.
func until[T any](t *testing.T, s *raw, want func(*agentv1.SessionResponse) (T, bool)) T {
	t.Helper()
	for {
		m, err := s.Receive()
		require.NoError(t, err)
		if out, ok := want(m); ok {
			return out
		}
	}
}

func taken(m *agentv1.SessionResponse) (uint64, bool) {
	return m.GetTaken().GetThrough(), m.GetTaken() != nil
}

// byHand is an instance with a secret that runs on a host whose agent is then played
// by hand.
func byHand(t *testing.T) (*rig, id.Instance, id.Assignment, *raw) {
	t.Helper()
	r := newRig(t)
	m := r.machine(t, "node-1", r.token(t, true))
	h := r.ready(t, "node-1")
	r.sell(t)
	made, err := r.CreateInstance(t.Context(), r.tenant, app.NewInstance{
		Project: r.project, Name: "one", Offer: "whole", Image: "img:1",
		Env: []app.EnvVar{{Name: "TOKEN", Secret: auth.NewSecret("hidden")}},
	})
	require.NoError(t, err)
	r.reaches(t, made.ID, instance.Running)
	var asg [16]byte
	require.NoError(t, r.owner.QueryRow(t.Context(), `select id from assignments`).Scan(&asg))
	m.stop()
	var s *raw
	eventually(t, "the next process is admitted", func() bool {
		s, err = r.open(t, r.certificate(t, h), hello(m.BootID, "z", 1))
		return err == nil
	})
	return r, made.ID, asg, s
}

// What a host spools is acknowledged, and again if it is sent again.
func TestSpoolIsAcknowledged(t *testing.T) {
	r, _, asg, s := byHand(t)
	event := &agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Event{Event: agentlink.EventOut(agentlink.Event{
		ID: 1 << 40, Kind: "session.opened", Subject: asg.String(), Attributes: map[string]string{"fingerprint": "SHA256:x"},
	})}}
	samples := &agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Samples{Samples: agentlink.SamplesOut(agentlink.Samples{
		ID: 1<<40 + 1, Interval: time.Second,
		Slices: []agentlink.SliceSample{{Assignment: asg, Source: "cgroup", Readings: map[string]int64{"cpu_us": 7}}},
	})}}
	sent := []*agentv1.SessionRequest{event, samples, event}
	for i, want := range []uint64{1 << 40, 1<<40 + 1, 1<<40 + 1} {
		require.NoError(t, s.send(sent[i]))
		require.Equal(t, want, until(t, s, taken))
	}
	require.Equal(t, 1, r.count(t, `select count(*) from events where type = 'session.opened'`))
	require.Equal(t, 1, r.count(t, `select count(*) from slice_samples where readings = '{"cpu_us": 7}'`))
}

// A record that nobody can make sense of is passed over: it would end every stream.
func TestARecordThatMakesNoSenseIsPassedOver(t *testing.T) {
	_, _, _, s := byHand(t)
	odd := &agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Event{Event: &agentv1.Event{Id: 1 << 40, Kind: "gpu.xid", Detail: "\x01"}}}
	none := &agentv1.SessionRequest{Frame: &agentv1.SessionRequest_Samples{Samples: &agentv1.Samples{Id: 1<<40 + 1}}}
	for i, m := range []*agentv1.SessionRequest{odd, none} {
		require.NoError(t, s.send(m))
		require.Equal(t, uint64(1<<40+i), until(t, s, taken))
	}
}

// Secrets are asked for and answered on the stream; they are in no desired set.
func TestSecretsAreAnsweredOnTheStream(t *testing.T) {
	_, _, asg, s := byHand(t)
	ask := func(fence int64) agentlink.Secrets {
		t.Helper()
		require.NoError(t, s.send(&agentv1.SessionRequest{Frame: &agentv1.SessionRequest_SecretsRequest{
			SecretsRequest: agentlink.SecretsRequestOut(agentlink.SecretsRequest{Assignment: asg, Fence: fence}),
		}}))
		return until(t, s, func(m *agentv1.SessionResponse) (agentlink.Secrets, bool) {
			if d := m.GetDesired(); d != nil {
				require.NotContains(t, d.String(), "hidden")
				require.True(t, d.GetSlices()[0].GetHasSecrets())
			}
			if m.GetSecrets() == nil {
				return agentlink.Secrets{}, false
			}
			out, err := agentlink.SecretsIn(m.GetSecrets())
			require.NoError(t, err)
			return out, true
		})
	}
	require.Equal(t, map[string]string{"TOKEN": "hidden"}, ask(1).Env)
	refused := ask(2)
	require.NotEmpty(t, refused.Refused)
	require.Empty(t, refused.Env)
}

// Changed SSH keys reach the host by the same fence: the run goes on.
func TestSSHKeysAreDeliveredWithoutAFence(t *testing.T) {
	r, i, _, s := byHand(t)
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIdiJhrCu6Xd7sb7H0UvY3AbN9VPJmlEzNsGUBsRyXkM"
	first := until(t, s, func(m *agentv1.SessionResponse) (*agentv1.Desired, bool) {
		return m.GetDesired(), m.GetDesired() != nil
	})
	require.Empty(t, first.GetSlices()[0].GetSshKeys())
	require.Len(t, first.GetSshAuthorities(), 1)
	keys := []string{key}
	generation := r.get(t, i).Generation
	_, err := r.UpdateInstance(t.Context(), r.tenant, r.project, i, app.Match{Generation: &generation}, app.InstancePatch{SSHKeys: &keys})
	require.NoError(t, err)
	next := until(t, s, func(m *agentv1.SessionResponse) (*agentv1.Desired, bool) {
		return m.GetDesired(), m.GetDesired() != nil
	})
	require.Equal(t, keys, next.GetSlices()[0].GetSshKeys())
	require.Equal(t, first.GetSlices()[0].GetFence(), next.GetSlices()[0].GetFence())
	require.Greater(t, next.GetVersion(), first.GetVersion())
	require.Equal(t, 1, r.count(t, `select count(*) from assignments`))
	require.Equal(t, 1, r.count(t, `select count(*) from instances where converged_generation = generation`))
}
