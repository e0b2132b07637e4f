package api

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/org"
)

// publicLimits bound each address on operations that need no credential.
var publicLimits = org.RateLimits{Read: 6000, Write: 1200, Launch: 600}

// webhookLimit bounds each address that sends events of payments, a minute.
const webhookLimit = 6000

// limitOf is the requests a minute that the call's class allows.
func limitOf(c *call) int {
	limits := c.limits
	if limits == (org.RateLimits{}) {
		limits = publicLimits
	}
	switch c.op.rate {
	case rateRead:
		return limits.Read
	case rateWebhook:
		return webhookLimit
	case rateLaunch:
		return limits.Launch
	default:
		return limits.Write
	}
}

// maxBuckets bounds the memory of the limiter; beyond it full buckets are dropped.
const maxBuckets = 100_000

// limiter holds the token buckets of this process. Several replicas each grant
// the whole rate; the limit protects a replica, it is no quota.
type limiter struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// grant is the state of one bucket after a request.
type grant struct {
	policy    string
	quota     int
	remaining int
	reset     time.Duration // until the bucket is full
	wait      time.Duration // until the next request passes; 0: this one did
}

// check draws from the credential's and the project's bucket and says so in the
// headers of the answer.
func (l *limiter) check(c *call, w http.ResponseWriter, r *http.Request) *fault.Error {
	quota := limitOf(c)
	grants := []grant{l.draw("credential", credentialKey(c, r), c.op.rate, quota)}
	if project := c.params["project"]; project != "" && !c.principal.Org.IsZero() {
		grants = append(grants, l.draw("project", c.principal.Org.String()+"/"+project, c.op.rate, quota))
	}
	var policies, states []string
	var wait time.Duration
	for _, g := range grants {
		policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=60`, g.policy, g.quota))
		states = append(states, fmt.Sprintf(`"%s";r=%d;t=%d`, g.policy, g.remaining, int(math.Ceil(g.reset.Seconds()))))
		wait = max(wait, g.wait)
	}
	w.Header().Set("RateLimit-Policy", strings.Join(policies, ", "))
	w.Header().Set("RateLimit", strings.Join(states, ", "))
	if wait == 0 {
		return nil
	}
	return fault.New(fault.RateLimited, "rate.limited",
		fmt.Sprintf("More than %d %s requests a minute.", quota, c.op.rate)).After(max(wait, time.Second))
}

func credentialKey(c *call, r *http.Request) string {
	if !c.principal.Key.IsZero() {
		return c.principal.Key.String()
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return host
}

func (l *limiter) draw(subject, key string, class rateClass, quota int) grant {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	name := subject + ":" + key + ":" + string(class)
	perSecond := rate.Limit(float64(quota) / 60)
	b, ok := l.buckets[name]
	switch {
	case !ok:
		l.sweep(now)
		b = rate.NewLimiter(perSecond, quota)
		l.buckets[name] = b
	case b.Burst() != quota: // the limit was changed; what was drawn stays drawn
		b.SetLimitAt(now, perSecond)
		b.SetBurstAt(now, quota)
	}
	g := grant{policy: subject + "-" + string(class), quota: quota}
	if !b.AllowN(now, 1) {
		g.wait = time.Duration((1 - b.TokensAt(now)) / float64(b.Limit()) * float64(time.Second))
	}
	left := max(b.TokensAt(now), 0)
	g.remaining = int(left)
	g.reset = time.Duration((float64(quota) - left) / float64(b.Limit()) * float64(time.Second))
	return g
}

// sweep drops full buckets when there are too many; l.mu is held.
func (l *limiter) sweep(now time.Time) {
	if len(l.buckets) < maxBuckets {
		return
	}
	for name, b := range l.buckets {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(l.buckets, name)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}
