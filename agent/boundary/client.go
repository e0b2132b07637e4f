package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/nodeagent/callwire"
)

// Times of a client.
const (
	// dialAgain is the pause before a helper that is away is dialled again.
	dialAgain = 100 * time.Millisecond
	// awayFor is how long a call waits for a helper that is away: a restart is
	// seconds.
	awayFor  = 2 * time.Minute
	dialFor  = 5 * time.Second
	floorFor = 5 * time.Second
)

// ErrAway is a helper that did not come back in time.
var ErrAway = errors.New("the helper does not answer: see that tranche-agent-helper runs")

// Client is the link's side. Calls outlive a restart of the helper: one whose answer was
// lost is made again, which is safe for every verb.
type Client struct {
	path   string
	clock  clock.Clock
	ctx    context.Context // of what no caller bounds; ends with Close
	cancel context.CancelFunc

	mu  sync.Mutex
	now *callwire.Client
}

// Dial connects to the helper's socket; it waits for a helper that is still starting.
func Dial(ctx context.Context, path string, c clock.Clock) (*Client, error) {
	client := &Client{path: path, clock: c}
	client.ctx, client.cancel = context.WithCancel(context.WithoutCancel(ctx))
	waiting, cancel := context.WithTimeout(ctx, awayFor)
	defer cancel()
	if _, err := client.connection(waiting); err != nil {
		client.cancel()
		return nil, err
	}
	return client, nil
}

// Close ends the connection; what the helper does goes on.
func (c *Client) Close() error {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.Close()
	}
	return nil
}

// connection is the present one, or a new one once the helper answers.
func (c *Client) connection(ctx context.Context) (*callwire.Client, error) {
	for {
		now, err := c.dial(ctx)
		if err == nil || errors.Is(err, callwire.ErrVersion) || c.ctx.Err() != nil {
			return now, err
		}
		timer := c.clock.NewTimer(dialAgain)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w (%s): %w", ErrAway, c.path, err)
		}
	}
}

// dial connects unless somebody has.
func (c *Client) dial(ctx context.Context) (*callwire.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		select {
		case <-c.now.Done():
		default:
			return c.now, nil
		}
	}
	if err := c.ctx.Err(); err != nil {
		return nil, callwire.ErrLost
	}
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	if c.now, err = callwire.NewClient(ctx, conn); err != nil {
		c.now = nil
		return nil, err
	}
	return c.now, nil
}

// call makes a verb happen and reads its answer into out, if not nil.
func (c *Client) call(ctx context.Context, verb string, in, out any, notes func(json.RawMessage)) error {
	for {
		waiting, cancel := context.WithTimeout(ctx, awayFor)
		now, err := c.connection(waiting)
		cancel()
		if err != nil {
			return err
		}
		body, err := now.Call(ctx, verb, in, notes)
		if errors.Is(err, callwire.ErrLost) && c.ctx.Err() == nil {
			continue
		}
		if err != nil || out == nil {
			return err
		}
		if err := json.Unmarshal(body, out); err != nil {
			return fmt.Errorf("read the helper's answer to %s: %w", verb, err)
		}
		return nil
	}
}
