package containerd

import (
	"context"
	"errors"
	"time"

	events "github.com/containerd/containerd/api/events"
	"github.com/containerd/typeurl/v2"
)

// pause is between attempts to reach a daemon that is away.
const pause = time.Second

// listen notes ends and kills for want of memory as they happen, so that the exact
// instant is kept even if the daemon forgets the task. After an interruption it looks
// at everything once: what ended meanwhile sent no event.
func (d *Driver) listen(ctx context.Context) {
	for ctx.Err() == nil {
		d.hear(ctx)
		if !d.wait(ctx, pause) {
			return
		}
	}
}

// wait reports whether the time passed before the end.
func (d *Driver) wait(ctx context.Context, t time.Duration) bool {
	timer := d.cfg.Clock.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// hear returns when the stream of events breaks.
func (d *Driver) hear(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prefix := "namespace==" + d.cfg.Namespace + ",topic=="
	stream, broken := d.client.Subscribe(ctx, prefix+`"/tasks/exit"`, prefix+`"/tasks/oom"`)
	if _, err := d.List(ctx); err != nil {
		return // the next attempt looks again
	}
	for {
		select {
		case envelope := <-stream:
			if envelope == nil || envelope.Event == nil {
				continue
			}
			event, err := typeurl.UnmarshalAny(envelope.Event)
			if err == nil {
				err = d.heard(ctx, event)
			}
			if err != nil {
				return // the next attempt looks at the container itself
			}
		case <-broken:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (d *Driver) heard(ctx context.Context, event any) error {
	switch e := event.(type) {
	case *events.TaskExit:
		if e.ID != e.ContainerID {
			return nil // an exec
		}
		c, err := d.client.LoadContainer(ctx, e.ContainerID)
		if err != nil {
			return ignoreGone(err)
		}
		_, err = d.ended(ctx, c, e.ExitStatus, e.ExitedAt.AsTime())
		return ignoreGone(err)
	case *events.TaskOOM:
		return d.noteOOM(ctx, e.ContainerID)
	default:
		return errors.New("unknown event")
	}
}

func (d *Driver) noteOOM(ctx context.Context, name string) error {
	c, err := d.client.LoadContainer(ctx, name)
	if err != nil {
		return ignoreGone(err)
	}
	if d.oomKills(name) == 0 {
		return nil // memory was short, but nobody was killed for it
	}
	release, err := d.records.lock(ctx, name)
	if err != nil {
		return err
	}
	defer release()
	_, err = c.SetLabels(ctx, map[string]string{labelOOM: "1"})
	return ignoreGone(err)
}
