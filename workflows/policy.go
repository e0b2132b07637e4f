package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Task queues; one worker polls each.
const (
	QueueInstance = "ctl-instance"
	QueueHost     = "ctl-host"
	QueueBilling  = "ctl-billing"
)

// wakeSignal is the one signal: look at the row again.
const wakeSignal = "wake"

// Purposes of the policy table.
const (
	purposeDatabase = "database step"
	purposeInvoices = "invoices"
)

// policies is the one table of timeouts and retries, by purpose.
var policies = map[string]workflow.LocalActivityOptions{
	// One transaction of at most 100 ms; it may queue for a busy host's lock.
	purposeDatabase: {
		StartToCloseTimeout:    5 * time.Second,
		ScheduleToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2,
			MaximumInterval: time.Second, MaximumAttempts: 3,
		},
	},
	// A batch of organizations, each in transactions of its own: rating the usage of a
	// large one takes seconds.
	purposeInvoices: {
		StartToCloseTimeout:    2 * time.Minute,
		ScheduleToCloseTimeout: 5 * time.Minute,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2,
			MaximumInterval: time.Second, MaximumAttempts: 3,
		},
	},
}

const (
	// waitAtMost is how long a run waits for wake-ups before it completes; the
	// row's next_wake_at goes on from there.
	waitAtMost = 2 * time.Minute
	// pauseMin and pauseMax bound the pause after a step that failed three times.
	pauseMin = time.Second
	pauseMax = 30 * time.Second
	// roundsAtMost keeps a history below 500 events.
	roundsAtMost = 50
	// taskTimeout is how soon another worker takes over from one that died.
	taskTimeout = 10 * time.Second
)
