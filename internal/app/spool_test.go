package app_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/agentlink"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
)

func (s *stage) samples(spool uint64, asgs ...id.Assignment) agentlink.Samples {
	out := agentlink.Samples{ID: spool, Age: time.Minute, Interval: 10 * time.Second}
	for _, a := range asgs {
		out.Slices = append(out.Slices,
			agentlink.SliceSample{Assignment: a, Source: "nvml", Readings: map[string]int64{"sm_util_ppm": 500_000}},
			agentlink.SliceSample{Assignment: a, Source: "cgroup", Gap: "agent was away"})
	}
	return out
}

// Readings are taken once, through however many gateways, and only of the host's own.
func TestSamplesAreTakenOnce(t *testing.T) {
	s := newStage(t)
	s.sees(t, s.slice(instance.RunRunning, 0, none))
	w := s.world.withAgents(t)
	other, _ := w.joinHost(t, "b", true)
	elsewhere := w.session(t, other.Host, "boot")

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			through, err := s.TakeSamples(t.Context(), s.session, time.Now(), s.samples(7, s.asg))
			if err != nil || through != 7 {
				t.Errorf("taken through %d: %v", through, err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 2, s.count(t, `select count(*) from slice_samples where instance_id = $1 and run = 1 and interval_ms = 10000
		and at between biz_now() - interval '65 seconds' and biz_now() - interval '59 seconds'`, s.inst.UUID()))
	require.Equal(t, 1, s.count(t, `select count(*) from slice_samples where readings = '{"sm_util_ppm": 500000}' and gap = ''`))
	require.Equal(t, 1, s.count(t, `select count(*) from slice_samples where readings = '{}' and gap <> ''`))

	through, err := s.TakeSamples(t.Context(), s.session, time.Now(), s.samples(3, s.asg))
	require.NoError(t, err)
	require.Equal(t, uint64(7), through, "an older one was taken before")
	through, err = s.TakeSamples(t.Context(), elsewhere, time.Now(), s.samples(1, s.asg, id.New[id.Assignment]()))
	require.NoError(t, err)
	require.Equal(t, uint64(1), through)
	require.Equal(t, 2, s.count(t, `select count(*) from slice_samples`), "another host's run, and nobody's")

	require.NoError(t, s.EndSession(t.Context(), elsewhere))
	s.world.session(t, other.Host, "boot")
	_, err = s.TakeSamples(t.Context(), elsewhere, time.Now(), s.samples(2))
	require.Equal(t, "state.conflict", fault.CodeOf(err), "a superseded stream")
	s.exec(t, `update slice_samples set at = at - interval '31 days'`)
	require.NoError(t, s.Tidy(t.Context()))
	require.Zero(t, s.count(t, `select count(*) from slice_samples`))
}

// Who learns of which event.
func TestEventsReachWhoTheyConcern(t *testing.T) {
	s := newStage(t)
	var uuid string
	require.NoError(t, s.db.OwnerPool(t).QueryRow(t.Context(), `select uuid from gpus where ordinal = 0`).Scan(&uuid))
	spool := uint64(0)
	take := func(e agentlink.Event) {
		t.Helper()
		spool++
		e.ID, e.Age = spool, time.Second
		through, err := s.TakeEvent(t.Context(), s.session, time.Now(), e)
		require.NoError(t, err)
		require.Equal(t, spool, through)
	}
	tenant := func(kind string) int {
		return s.count(t, `select count(*) from events where org_id = $1 and type = $2 and subject_id = $3`,
			s.acme.org.ID.UUID(), kind, s.inst.UUID())
	}
	operator := func(kind string) int {
		return s.count(t, `select count(*) from events where org_id = '00000000-0000-0000-0000-000000000000' and type = $1`, kind)
	}
	who := map[string]string{"fingerprint": "SHA256:abc", "session": "s1"}
	take(agentlink.Event{Kind: "session.opened", Subject: s.asg.String(), Attributes: who})
	take(agentlink.Event{Kind: "session.closed", Subject: s.asg.String(), Attributes: who})
	require.Equal(t, []int{1, 1, 0}, []int{tenant("session.opened"), tenant("session.closed"), operator("session.opened")})
	require.Equal(t, 1, s.count(t, `select count(*) from audit_log where org_id = $1 and operation = 'instance.session_open'
		and resource = $2 and actor = 'ssh/SHA256:abc' and request_id = 's1'`, s.acme.org.ID.UUID(), s.inst.String()))
	require.Equal(t, 1, s.count(t, `select count(*) from audit_log where operation = 'instance.session_close'`))

	take(agentlink.Event{Kind: "client.ended", Subject: s.asg.String(), Detail: "memory"})
	require.Equal(t, []int{1, 1}, []int{tenant("client.ended"), operator("client.ended")})
	take(agentlink.Event{Kind: "gpu.xid", Subject: uuid, Attributes: map[string]string{"xid": "79"}})
	require.Equal(t, 1, s.count(t, `select count(*) from events e join gpus g on g.id = e.subject_id
		where e.type = 'gpu.xid' and e.data ->> 'xid' = '79' and e.at < biz_now()`))
	take(agentlink.Event{Kind: "host.disk_full"})
	require.Equal(t, 1, operator("host.disk_full"))

	before := s.count(t, `select count(*) from events`)
	take(agentlink.Event{Kind: "instance.deleted", Subject: s.asg.String()})
	take(agentlink.Event{Kind: "session.opened", Subject: id.New[id.Assignment]().String()})
	take(agentlink.Event{Kind: "gpu.healthy", Subject: uuid})
	spool--
	take(agentlink.Event{Kind: "gpu.xid", Subject: uuid})
	require.Equal(t, before, s.count(t, `select count(*) from events`),
		"what the control plane says itself, another host's, known, and repeated")
}
