package app_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/instance"
	"github.com/tranche-cloud/tranche/internal/quota"
	"github.com/tranche-cloud/tranche/internal/store"
)

// shop is a world with one host of eight GPUs, one offer and one customer.
type shop struct {
	world
	acme customer
}

func newShop(t *testing.T, q quota.Limits) shop {
	t.Helper()
	w := newWorld(t, clock.Real())
	acme := w.tenant(t, "Acme", q)
	w.host(t, "a", 8)
	w.sell(t, wholeSpec("big"), "2.5")
	return shop{w, acme}
}

func (s shop) create(t *testing.T, name string) app.Instance {
	t.Helper()
	i, err := s.CreateInstance(t.Context(), s.acme.Caller, s.wish(name))
	require.NoError(t, err)
	return i
}

func (s shop) wish(name string) app.NewInstance {
	return app.NewInstance{Project: s.acme.project, Name: name, Offer: "big", Image: "img:1"}
}

func (s shop) get(t *testing.T, i id.Instance) app.Instance {
	t.Helper()
	got, err := s.GetInstance(t.Context(), s.acme.Caller, s.acme.project, i, app.Wait{})
	require.NoError(t, err)
	return got
}

func (s shop) operation(t *testing.T, op id.Operation) app.Operation {
	t.Helper()
	got, err := s.GetOperation(t.Context(), s.acme.Caller, op, 0)
	require.NoError(t, err)
	return got
}

// run plays worker, gateway and agent: the instance gets a host and is seen there.
func (s shop) run(t *testing.T, i id.Instance) {
	t.Helper()
	f := &fleet{app: s.App, store: s.Store, owner: s.db.OwnerPool(t)}
	f.advance(t, i)
	f.report(t, i, "running", "")
	require.NoError(t, s.Store.InSystem(t.Context(), "test", func(tx *store.SystemTx) error {
		at, err := tx.BusinessNow(t.Context())
		if err != nil {
			return err
		}
		v, row, err := tx.LoadView(t.Context(), i, store.Locked)
		if err != nil {
			return err
		}
		_, err = tx.OpenSegment(t.Context(), store.OpenSegment{
			Org: s.acme.org.ID, Instance: i, Assignment: v.Assignments[0].ID, Run: v.Run, At: at, Reason: "process_started",
		})
		if err != nil {
			return err
		}
		_, err = tx.SaveStatus(t.Context(), &row, v)
		return err
	}))
	f.advance(t, i)
	require.Equal(t, instance.Running, s.get(t, i).Status)
}

// settle plays the agent's acknowledgement and the worker's last step.
func (s shop) settle(t *testing.T, i id.Instance) {
	t.Helper()
	f := &fleet{app: s.App, store: s.Store, owner: s.db.OwnerPool(t)}
	f.advance(t, i)
	f.acknowledge(t, i)
	f.advance(t, i)
}

func TestCreateAcceptsInOneTransaction(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 2, GPUs: 2})
	in := s.wish("trainer")
	in.Labels = map[string]string{"team": "ml"}
	in.Command = []string{"train", "--fast"}
	in.ClientToken = "tf-1"
	in.Env = []app.EnvVar{{Name: "MODE", Value: "full"}, {Name: "TOKEN", Secret: auth.NewSecret("hunter2")}}
	i, err := s.CreateInstance(t.Context(), s.acme.Caller, in)
	require.NoError(t, err)

	require.Equal(t, "trainer", i.Name)
	require.Equal(t, instance.Queued, i.Status)
	require.True(t, i.Transitioning())
	require.True(t, i.Accepted)
	require.EqualValues(t, 1, i.Generation)
	require.Equal(t, "2.50 USD", i.Price.String())
	require.True(t, i.Simulated)
	require.Empty(t, i.Billed)
	require.Equal(t, "0", strings.TrimRight(strings.TrimRight(i.CostSoFar.Decimal(), "0"), "."))
	require.Equal(t, map[string]string{"team": "ml"}, i.Labels)
	require.Equal(t, "full", i.Env[0].Value)
	require.Empty(t, i.Env[1].Value)
	require.NotEmpty(t, i.Env[1].Fingerprint)
	require.Equal(t, []app.Action{
		{Name: "start", Code: "state.conflict"}, {Name: "stop", Allowed: true}, {Name: "delete", Allowed: true},
	}, i.Actions)
	require.Equal(t, i, func() app.Instance { got := s.get(t, i.ID); got.At = i.At; return got }(), "reads show what create answered")

	op := s.operation(t, i.Operation.ID)
	require.Equal(t, "instance.create", op.Kind)
	require.Equal(t, i.ID, op.Subject)
	require.Equal(t, store.OperationQueued, op.Status)
	require.NotNil(t, op.DeadlineAt)
	for table, where := range map[string]string{
		"quota_usage":  `instances = 1 and gpus = 1`,
		"quota_claims": `instance_id = $1`,
		"outbox":       `kind = 'instance' and key = '` + i.ID.String() + `'`,
		"events":       `type = 'instance.created' and subject_id = $1`,
		"audit_log":    `operation = 'instance.create' and actor = 'key/` + s.acme.Key.String() + `' and request_id = '` + s.acme.RequestID + `'`,
		"instances":    `next_wake_at > clock_timestamp() and position('hunter2' in env::text || encode(env_sealed, 'escape')) = 0`,
	} {
		require.Equal(t, 1, s.count(t, fmt.Sprintf(`select count(*) from %s where (%s) and $1::uuid is not null`, table, where), i.ID.UUID()), table)
	}
}

func TestCreateDefaultsAndRefusals(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 9, GPUs: 3})
	unnamed := s.create(t, "")
	require.Equal(t, unnamed.ID.String()[len(unnamed.ID.String())-8:], unnamed.Name)
	s.create(t, "taken")
	in := s.wish("third")
	in.ClientToken = "token"
	_, err := s.CreateInstance(t.Context(), s.acme.Caller, in)
	require.NoError(t, err)
	_, err = s.PutOffer(t.Context(), s.operator, wholeSpec("huge"))
	require.NoError(t, err)
	disabled := wholeSpec("disabled")
	disabled.Enabled = false
	_, err = s.PutOffer(t.Context(), s.operator, disabled)
	require.NoError(t, err)
	exotic := wholeSpec("exotic")
	exotic.Shape.Model = "NOWHERE-1"
	s.sell(t, exotic, "1")
	s.exec(t, `update organizations set quota_gpus = 4`)
	other := s.tenant(t, "Other", quota.Limits{Instances: 1, GPUs: 1})

	for code, change := range map[string]func(*app.NewInstance){
		"name.taken":         func(n *app.NewInstance) { n.Name = "taken" },
		"state.conflict":     func(n *app.NewInstance) { n.ClientToken = "token" },
		"resource.not_found": func(n *app.NewInstance) { n.Project, n.Offer = other.project, "unknown" },
		"offer.unknown":      func(n *app.NewInstance) { n.Offer = "nothing" },
		"offer.unknown ":     func(n *app.NewInstance) { n.Offer = "disabled" },
		"offer.unavailable":  func(n *app.NewInstance) { n.Offer = "exotic" },
		"request.invalid":    func(n *app.NewInstance) { n.Recovery = "sometimes" },
		"request.invalid ":   func(n *app.NewInstance) { n.Env = []app.EnvVar{{Name: "A"}, {Name: "A"}} },
	} {
		in := s.wish("fine")
		change(&in)
		_, err := s.CreateInstance(t.Context(), s.acme.Caller, in)
		require.Equal(t, strings.TrimSpace(code), fault.CodeOf(err))
	}
	s.create(t, "fourth")
	_, err = s.CreateInstance(t.Context(), s.acme.Caller, s.wish("fifth"))
	require.Equal(t, "quota.exceeded", fault.CodeOf(err))
	require.Equal(t, fault.OverQuota, fault.KindOf(err))
	require.Equal(t, 4, s.count(t, `select count(*) from instances`), "a refusal leaves nothing")
	require.Equal(t, 4, s.count(t, `select gpus from quota_usage where org_id = $1`, s.acme.org.ID.UUID()))
}

func TestUnpricedOfferIsUnavailable(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	spec := wholeSpec("unpriced")
	spec.Shape.VCPU = 5
	_, err := s.PutOffer(t.Context(), s.operator, spec)
	require.NoError(t, err)
	in := s.wish("x")
	in.Offer = "unpriced"
	_, err = s.CreateInstance(t.Context(), s.acme.Caller, in)
	require.Equal(t, "offer.unavailable", fault.CodeOf(err))
}

// A burst with one key makes one instance, over two processes with small pools.
func TestThousandCreatesWithOneKeyMakeOneInstance(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 100, GPUs: 100})
	second := app.New(s.Deps)
	once := app.Once{
		Org: s.acme.org.ID, Principal: s.acme.String(), Method: "POST", Path: "/v1/projects/p/instances",
		Key: "one", Fingerprint: []byte("body"),
	}
	var first, replayed, later atomic.Int32
	var ids sync.Map
	var wg sync.WaitGroup
	for n := range 1000 {
		wg.Go(func() {
			a := s.App
			if n%2 == 1 {
				a = second
			}
			answer, again, err := a.Idempotent(t.Context(), once, func(ctx context.Context) (app.Answer, error) {
				i, err := a.CreateInstance(ctx, s.acme.Caller, s.wish("only"))
				return app.Answer{Status: 202, Body: fmt.Appendf(nil, "%q", i.ID)}, err
			})
			switch {
			case fault.CodeOf(err) == "idempotency.in_flight":
				later.Add(1)
			case err != nil:
				t.Errorf("create: %v", err)
			case again:
				replayed.Add(1)
				ids.Store(string(answer.Body), true)
			default:
				first.Add(1)
				ids.Store(string(answer.Body), true)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, first.Load())
	require.EqualValues(t, 999, replayed.Load()+later.Load())
	distinct := 0
	ids.Range(func(any, any) bool { distinct++; return true })
	require.Equal(t, 1, distinct, "everybody hears of the same instance")
	require.Equal(t, 1, s.count(t, `select count(*) from instances`))
	require.Equal(t, 1, s.count(t, `select instances from quota_usage where org_id = $1`, s.acme.org.ID.UUID()))
}

func TestQuotaHoldsAgainstParallelCreates(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 10, GPUs: 7})
	var made, refused atomic.Int32
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			_, err := s.CreateInstance(t.Context(), s.acme.Caller, s.wish(fmt.Sprint("n", n)))
			switch fault.CodeOf(err) {
			case "":
				made.Add(1)
			case "quota.exceeded":
				refused.Add(1)
			default:
				t.Errorf("create: %v", err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 7, made.Load())
	require.EqualValues(t, 33, refused.Load())
	require.Equal(t, 7, s.count(t, `select gpus from quota_usage where org_id = $1`, s.acme.org.ID.UUID()))
}

func TestOneNameGoesToOneOfManyCreates(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 100, GPUs: 100})
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := s.CreateInstance(t.Context(), s.acme.Caller, s.wish("same"))
			if err == nil {
				made.Add(1)
			} else if fault.CodeOf(err) != "name.taken" {
				t.Errorf("create: %v", err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, made.Load())
	require.Equal(t, 1, s.count(t, `select instances from quota_usage where org_id = $1`, s.acme.org.ID.UUID()))
}

func TestLifeOfAnInstance(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	ctx, me, p := t.Context(), s.acme.Caller, s.acme.project
	i := s.create(t, "x")
	s.run(t, i.ID)
	running := s.get(t, i.ID)
	require.True(t, running.Ready())
	require.False(t, running.Working(), "the create is done")
	require.Len(t, running.GPUs, 1)
	require.Equal(t, "TEST-80", running.GPUs[0].Model)
	require.Nil(t, running.GPUs[0].Placement)
	require.Len(t, running.Billed, 1)
	require.True(t, running.Billed[0].Open())
	_, err := s.StartInstance(ctx, me, p, i.ID, app.Match{})
	require.Equal(t, "state.conflict", fault.CodeOf(err))

	stopped, err := s.StopInstance(ctx, me, p, i.ID, app.Match{Generation: &running.Generation})
	require.NoError(t, err)
	require.Equal(t, instance.Stopping, stopped.Status)
	require.True(t, stopped.Accepted)
	require.EqualValues(t, 2, stopped.Generation)
	require.Equal(t, "instance.stop", stopped.Operation.Kind)
	require.False(t, stopped.Billed[0].Open(), "billing ended with the acceptance")
	require.Equal(t, 1, s.count(t, `select count(*) from host_desired where tx in (select tx from host_desired order by id desc limit 1)`))
	again, err := s.StopInstance(ctx, me, p, i.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, stopped.Operation, again.Operation, "a second stop is the first")
	require.EqualValues(t, 2, again.Generation)
	s.settle(t, i.ID)
	rest := s.get(t, i.ID)
	require.Equal(t, instance.Stopped, rest.Status)
	require.Empty(t, rest.GPUs)
	settled, err := s.StopInstance(ctx, me, p, i.ID, app.Match{})
	require.NoError(t, err)
	require.False(t, settled.Accepted)
	require.Equal(t, 1, s.count(t, `select instances from quota_usage where org_id = $1`, s.acme.org.ID.UUID()), "a stopped instance counts")

	old := running.Generation
	_, err = s.StartInstance(ctx, me, p, i.ID, app.Match{Generation: &old})
	require.Equal(t, "precondition.failed", fault.CodeOf(err))
	started, err := s.StartInstance(ctx, me, p, i.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, instance.Placing, started.Status)
	require.Equal(t, 2, s.count(t, `select run from instances where id = $1`, i.ID.UUID()), "a start is a new run")
	s.run(t, i.ID)
	require.Len(t, s.get(t, i.ID).Billed, 2)

	gone, err := s.DeleteInstance(ctx, me, p, i.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, instance.Deleting, gone.Status)
	_, err = s.StopInstance(ctx, me, p, i.ID, app.Match{})
	require.Equal(t, "state.conflict", fault.CodeOf(err))
	same, err := s.DeleteInstance(ctx, me, p, i.ID, app.Match{Generation: &old})
	require.NoError(t, err, "deleting again is fine, whatever was seen before")
	require.Equal(t, gone.Operation, same.Operation)
	s.settle(t, i.ID)
	tomb, err := s.DeleteInstance(ctx, me, p, i.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, instance.Deleted, tomb.Status)
	require.False(t, tomb.Accepted)
	require.NotNil(t, tomb.DeletedAt)
	require.NotEqual(t, "0", tomb.CostSoFar.Decimal())
	require.Zero(t, s.count(t, `select instances from quota_usage where org_id = $1`, s.acme.org.ID.UUID()))
	require.Equal(t, store.OperationSucceeded, s.operation(t, gone.Operation.ID).Status)
	for _, a := range tomb.Actions {
		require.False(t, a.Allowed, a.Name)
	}
	s.create(t, "x") // its name is free again
}

func TestDeleteOfAQueuedCreateCancelsItsOperation(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	i := s.create(t, "x")
	gone, err := s.DeleteInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Match{})
	require.NoError(t, err)
	require.Equal(t, instance.Deleted, gone.Status, "nothing was held")
	require.True(t, gone.Accepted, "the operation still ends by the worker")
	create := s.operation(t, i.Operation.ID)
	require.Equal(t, store.OperationCancelled, create.Status)
	require.Equal(t, gone.Operation.ID, create.SupersededBy)
	require.NotNil(t, create.FinishedAt)
	require.Equal(t, 1, s.count(t, `select count(*) from events where type = 'operation.cancelled'`))
}

func TestTombstonesLeaveListsAtOnceAndReadsAfterThirtyDays(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 3, GPUs: 3})
	i, kept := s.create(t, "x"), s.create(t, "y")
	_, err := s.DeleteInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Match{})
	require.NoError(t, err)
	list := func(f app.InstanceFilter) (ids []id.Instance) {
		got, err := s.ListInstances(t.Context(), s.acme.Caller, s.acme.project, f, app.Page{Size: 10})
		require.NoError(t, err)
		for _, i := range got.Items {
			ids = append(ids, i.ID)
		}
		return ids
	}
	require.Equal(t, []id.Instance{kept.ID}, list(app.InstanceFilter{}))
	require.Equal(t, []id.Instance{i.ID}, list(app.InstanceFilter{Status: instance.Deleted}))
	require.Equal(t, []id.Instance{kept.ID}, list(app.InstanceFilter{Name: "y"}))
	s.exec(t, `update instances set deleted_at = deleted_at - interval '31 days' where deleted_at is not null`)
	require.Empty(t, list(app.InstanceFilter{Status: instance.Deleted}))
	_, err = s.GetInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Wait{})
	require.Equal(t, "resource.not_found", fault.CodeOf(err))
}

func TestListsAreStableUnderWrites(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 100, GPUs: 100})
	want := map[id.Instance]bool{}
	for n := range 5 {
		want[s.create(t, fmt.Sprint("n", n)).ID] = true
	}
	seen := map[id.Instance]int{}
	for cursor := ""; ; {
		got, err := s.ListInstances(t.Context(), s.acme.Caller, s.acme.project, app.InstanceFilter{}, app.Page{Cursor: cursor, Size: 2})
		require.NoError(t, err)
		for _, i := range got.Items {
			seen[i.ID]++
		}
		s.create(t, "")
		if cursor = got.Next; cursor == "" {
			break
		}
	}
	require.Len(t, seen, len(want))
	for i, n := range seen {
		require.True(t, want[i])
		require.Equal(t, 1, n)
	}
	ops, err := s.ListOperations(t.Context(), s.acme.Caller, s.acme.project, app.OperationFilter{Status: store.OperationQueued}, app.Page{Size: 3})
	require.NoError(t, err)
	require.Len(t, ops.Items, 3)
	require.NotEmpty(t, ops.Next)
}

func TestWaitingReadsSeeTheEndAndHoldNoConnection(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	i := s.create(t, "x")
	// More waiters than the pool has connections.
	var wg sync.WaitGroup
	for n := range 30 {
		wg.Go(func() {
			if n%2 == 0 {
				got, err := s.GetInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Wait{For: instance.Running, Timeout: time.Minute})
				if err != nil || got.Status != instance.Running {
					t.Errorf("wait for instance: %v %v", got.Status, err)
				}
				return
			}
			op, err := s.GetOperation(t.Context(), s.acme.Caller, i.Operation.ID, time.Minute)
			if err != nil || op.Status != store.OperationSucceeded || op.Percent != 100 {
				t.Errorf("wait for operation: %v %v", op.Status, err)
			}
		})
	}
	s.run(t, i.ID)
	wg.Wait()
	start := time.Now()
	got, err := s.GetInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Wait{For: instance.Deleted, Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, instance.Running, got.Status)
	require.Less(t, time.Since(start), 10*time.Second, "nothing is under way that could delete it")
}

func TestWaitAnswersTheCurrentStateWhenTimeIsUp(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	i := s.create(t, "x")
	got, err := s.GetInstance(t.Context(), s.acme.Caller, s.acme.project, i.ID, app.Wait{For: instance.Running, Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, instance.Queued, got.Status)
	op, err := s.GetOperation(t.Context(), s.acme.Caller, i.Operation.ID, 50*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, store.OperationQueued, op.Status)
}

func TestForeignAndUnknownLookTheSame(t *testing.T) {
	s := newShop(t, quota.Limits{Instances: 1, GPUs: 1})
	i := s.create(t, "x")
	other := s.tenant(t, "Other", quota.Limits{Instances: 1, GPUs: 1})
	ctx := t.Context()
	var texts []string
	for _, ask := range []struct {
		p id.Project
		i id.Instance
		o id.Operation
	}{
		{s.acme.project, i.ID, i.Operation.ID},
		{other.project, i.ID, i.Operation.ID},
		{id.New[id.Project](), id.New[id.Instance](), id.New[id.Operation]()},
	} {
		_, get := s.GetInstance(ctx, other.Caller, ask.p, ask.i, app.Wait{})
		_, stop := s.StopInstance(ctx, other.Caller, ask.p, ask.i, app.Match{})
		_, start := s.StartInstance(ctx, other.Caller, ask.p, ask.i, app.Match{})
		_, del := s.DeleteInstance(ctx, other.Caller, ask.p, ask.i, app.Match{})
		_, op := s.GetOperation(ctx, other.Caller, ask.o, time.Second)
		for _, err := range []error{get, stop, start, del, op} {
			f, ok := errors.AsType[*fault.Error](err)
			require.True(t, ok)
			texts = append(texts, f.Code+f.Detail+f.Suggestion)
		}
	}
	for _, text := range texts {
		require.Equal(t, texts[0], text)
		require.Contains(t, text, "resource.not_found")
	}
	for _, p := range []id.Project{s.acme.project, id.New[id.Project]()} {
		_, err := s.ListInstances(ctx, other.Caller, p, app.InstanceFilter{}, app.Page{Size: 1})
		require.Equal(t, "resource.not_found", fault.CodeOf(err))
		_, err = s.ListOperations(ctx, other.Caller, p, app.OperationFilter{}, app.Page{Size: 1})
		require.Equal(t, "resource.not_found", fault.CodeOf(err))
	}
	require.Equal(t, instance.Queued, s.get(t, i.ID).Status)
}
