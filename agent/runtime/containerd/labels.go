package containerd

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/tranche-cloud/tranche/agent/cgroup"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/runtime"
)

// Labels of a container. Instants are µs of uptime.
const (
	labelRun      = "tranche.dev/run"
	labelInstance = "tranche.dev/instance"
	labelOrg      = "tranche.dev/org"
	labelSlots    = "tranche.dev/slots"
	labelBoot     = "tranche.dev/boot-id"
	labelDigest   = "tranche.dev/image-digest"
	labelIDs      = "tranche.dev/id-base"
	labelStarted  = "tranche.dev/started-us"
	labelEnded    = "tranche.dev/ended-us"
	labelExit     = "tranche.dev/exit-code"
	labelOOM      = "tranche.dev/oom"
)

// labelsOf are those that a container is made with.
func (d *Driver) labelsOf(s runtime.Spec, digest string) (map[string]string, error) {
	slots, err := json.Marshal(s.Slots)
	if err != nil {
		return nil, runtime.Refuse(runtime.Broken, "start", s.Name, "encode slots").Because(err)
	}
	return map[string]string{
		labelRun: strconv.Itoa(s.Run), labelInstance: s.Instance, labelOrg: s.Org, labelSlots: string(slots),
		labelBoot: d.cfg.BootID, labelDigest: digest,
		labelIDs: strconv.FormatUint(uint64(s.Extra.IDBase), 10),
	}, nil
}

// recorded is what the labels say of a container.
func recorded(name string, labels map[string]string) (runtime.Container, error) {
	c := runtime.Container{
		Name: name, Instance: labels[labelInstance], BootID: labels[labelBoot], Digest: labels[labelDigest],
		Started: instant(labels[labelStarted]), Ended: instant(labels[labelEnded]), OOM: labels[labelOOM] != "",
		ExitCode: number(labels[labelExit]), Run: number(labels[labelRun]), Cgroup: cgroup.Path(name),
	}
	if text := labels[labelSlots]; text != "" {
		var slots []gpu.Slot
		if err := json.Unmarshal([]byte(text), &slots); err != nil {
			return c, runtime.Refuse(runtime.Broken, "list", name, "read its slots %q", text).Because(err)
		}
		c.Slots = slots
	}
	return c, nil
}

// number reads what this package wrote; 0 is also that there is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

func instant(text string) time.Duration {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Microsecond
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
