package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Causes that are not an Xid.
const (
	causeLost        = "GPU_LOST"
	causeHung        = nodeagent.CauseHung
	causeUnreadable  = "GPU_FAILED"
	causeUnavailable = "GPU_UNAVAILABLE"
	causeECC         = "GPU_ECC"
	causeECCOff      = "GPU_ECC_OFF"
	causeRemap       = "GPU_REMAP_PENDING"
	causeRemapFailed = "GPU_REMAP_FAILED"
	causeRetired     = "GPU_PAGES_PENDING"
	causeFabric      = "GPU_FABRIC"
	causeNVLink      = "GPU_NVLINK"
	causeGroup       = "GPU_RESET_GROUP"
	causeReset       = "GPU_RESET_FAILED"
	causeNoReset     = "GPU_RESET_UNSUPPORTED"
	causeDrift       = "GPU_COMPUTE_MODE"
	causeMPS         = "MPS_SERVER"
	causeMismatch    = "LIB_MISMATCH"
	causeHungGPUs    = "GPUS_HUNG"
	causeHungDriver  = "DRIVER_HUNG"
	recoveryPrefix   = "GPU_RECOVERY_"
	xidPrefix        = "XID_"
)

// reading is what one look at a GPU gave.
type reading struct {
	health gpudrv.Health
	fabric gpudrv.Fabric
	// ecc is whether ECC is on; shared that the GPU is cut into shares of several.
	ecc    gpudrv.Value[bool]
	shared bool
	mode   gpu.Mode
	mps    error // a fresh client of the MPS server; nil also if none was tried
}

// memory is what earlier looks at a GPU showed, within this boot.
type memory struct {
	uncorrected int64
	counted     bool // uncorrected was read
	linksUp     map[int]bool
	joined      bool // the fabric was completed
}

// recoveryActions are the driver's advices. An unknown one is a suspicion that a reset
// cures; "none" and what is not reported is none.
var recoveryActions = map[string]Ailment{
	"reset":         {Level: Failed, Cure: ByReset, Credited: true},
	"bus_reset":     {Level: Failed, Cure: ByReboot, Credited: true, Cordon: true},
	"reboot":        {Level: Failed, Cure: ByReboot, Credited: true, Cordon: true},
	"system_reboot": {Level: Failed, Cure: ByReboot, Credited: true, Cordon: true},
	"drain_reset":   {Level: Suspect, Cure: ByReset},
	"drain_p2p":     {Level: Suspect, Cure: ByItself},
	"recover_imex":  {Level: Suspect, Cure: ByItself},
}

// judgeReading says what is wrong with a GPU by what was read of it, the driver's own
// advice first.
func judgeReading(r reading, m *memory, now time.Duration) []Ailment {
	var out []Ailment
	add := func(a Ailment, cause, format string, args ...any) {
		a.Cause, a.Detail, a.Since = cause, fmt.Sprintf(format, args...), now
		out = append(out, a)
	}
	if action, ok := r.health.RecoveryAction.Get(); ok && action != "none" && action != "" {
		a, known := recoveryActions[action]
		if !known {
			a = Ailment{Level: Suspect, Cure: ByReset}
		}
		add(a, recoveryPrefix+strings.ToUpper(action), "the driver advises %s", action)
	}
	if r.health.RemapFailed.Or(false) {
		add(Ailment{Level: Suspect, Cure: ByHands}, causeRemapFailed, "a bad memory row could not be replaced")
	}
	if r.health.RemapPending.Or(false) {
		add(Ailment{Level: Suspect, Cure: ByReset}, causeRemap, "bad memory rows are replaced at the next reset")
	}
	if r.health.RetiredPagePending.Or(false) {
		add(Ailment{Level: Suspect, Cure: ByReset}, causeRetired, "bad memory pages are retired at the next reset")
	}
	if n, ok := r.health.ECCUncorrected.Get(); ok {
		if m.counted && n > m.uncorrected {
			add(Ailment{Level: Suspect, Cure: ByReset}, causeECC, "%d more memory errors that could not be corrected", n-m.uncorrected)
		}
		m.uncorrected, m.counted = n, true // lower after a reset
	}
	if on, ok := r.ecc.Get(); ok && !on && r.shared {
		add(Ailment{Level: Suspect, Cure: ByItself}, causeECCOff, "ECC is off on a GPU that is shared")
	}
	if r.mps != nil {
		add(Ailment{Level: Suspect, Cure: ByItself}, causeMPS, "a fresh client of the MPS server does not work: %v", r.mps)
	}
	return append(out, judgeFabric(r.fabric, m, now)...)
}

// judgeFabric looks at what ties a GPU to others. Links that never were up may not be
// connected at all; those that were and are not any more are broken. The fabric of a
// GPU that is tied to nothing does not matter.
func judgeFabric(f gpudrv.Fabric, m *memory, now time.Duration) []Ailment {
	var out []Ailment
	var down []string
	for _, l := range f.Links {
		up, ok := l.Up.Get()
		switch {
		case ok && up:
			if m.linksUp == nil {
				m.linksUp = map[int]bool{}
			}
			m.linksUp[l.Number] = true
		case ok && m.linksUp[l.Number]:
			down = append(down, strconv.Itoa(l.Number))
		}
	}
	state, ok := f.State.Get()
	switch healthy := f.Healthy.Or(true); {
	case !ok || state == "not_supported":
	case state != "completed" && (m.joined || len(m.linksUp) > 0):
		out = append(out, Ailment{Cause: causeFabric, Detail: "the fabric is " + state, Level: Suspect, Since: now})
	case state == "completed" && !healthy:
		out = append(out, Ailment{Cause: causeFabric, Detail: "the fabric's registration ended with an error", Level: Suspect, Since: now})
	case state == "completed":
		m.joined = true
	}
	if len(down) > 0 {
		out = append(out, Ailment{
			Cause: causeNVLink, Detail: "NVLink " + strings.Join(down, ", ") + " went down", Level: Suspect, Since: now,
		})
	}
	return out
}

// judgeError says what is wrong with a GPU that cannot be read.
func judgeError(p *Policy, err error, now time.Duration) []Ailment {
	a := Ailment{Detail: err.Error(), Credited: true, Since: now}
	switch gpudrv.KindOf(err) {
	case gpudrv.GPULost, gpudrv.NotFound:
		// A GPU is often lost without a word, so it is treated as if the word had come.
		a = ailmentOf(p, lostXID, now)
		a.Cause, a.Detail = causeLost, err.Error()
	case gpudrv.Hung:
		a.Cause, a.Level, a.Cure = causeHung, Shut, ByReset
	case gpudrv.Mismatch:
		return nil // the host's condition, not the GPU's
	default:
		a.Cause, a.Level, a.Cure = causeUnreadable, Suspect, ByItself
	}
	return []Ailment{a}
}

// lostXID is the code of a GPU that has fallen off the bus.
const lostXID = 79

// ailmentOf is what a code makes of a GPU; the zero Ailment if nothing.
func ailmentOf(p *Policy, code int, now time.Duration) Ailment {
	rule, known := p.Rule(code)
	a := Ailment{Cause: xidPrefix + strconv.Itoa(code), Credited: rule.Credited, Since: now}
	switch rule.Do {
	case ResetGPU, NVLinkGroup:
		a.Level, a.Cure, a.Detail = Failed, ByReset, "the GPU needs a reset"
	case RestartHost:
		a.Level, a.Cure, a.Cordon, a.Detail = Failed, ByReboot, true, "the host needs a reboot"
	case AwaitReboot:
		a.Level, a.Cure, a.Detail = Failed, ByReboot, "the GPU comes back with the next reboot"
	case Inspect:
		a.Level, a.Cure, a.Detail = Failed, ByHands, "somebody has to look at the machine"
	case Update:
		a.Level, a.Cure, a.Detail = Suspect, ByReboot, "driver or firmware must be changed"
	case DoubleBit:
		a.Level, a.Cure, a.Detail = Suspect, ByReset, "a memory error of two bits"
	case Alarm:
		a.Level, a.Cure, a.Detail = Suspect, ByReset, "an Xid without advice"
		if !known {
			a.Detail = "an Xid that the policy does not know"
		}
	case RestartApp, Ignore, Contained, Follow, DriverSays, RestartVM:
		return Ailment{}
	}
	return a
}

// Verdict is what follows from one Xid beside the ailment of its GPU.
type Verdict struct {
	Rule  Rule
	Known bool
	// Ailment is what the GPU has now; Cause "" is nothing.
	Ailment Ailment
	// EndInstance ends the runs that the event names, all of the GPU's if it names
	// none, and no others.
	EndInstance bool
	// Tell tells the tenants of these runs.
	Tell bool
	// Probe reads the GPU at once.
	Probe bool
	// Group: the GPUs it is linked to take no new work either.
	Group bool
}

// Judge says what follows from an Xid.
func (p *Policy) Judge(code int, now time.Duration) Verdict {
	v := Verdict{Ailment: ailmentOf(p, code, now)}
	v.Rule, v.Known = p.Rule(code)
	switch v.Rule.Do {
	case RestartApp:
		v.Tell, v.Probe = true, true
	case Contained, RestartVM:
		v.EndInstance, v.Probe = true, true
	case Follow, DriverSays, DoubleBit, Alarm, ResetGPU, RestartHost, AwaitReboot:
		v.Probe = true
	case NVLinkGroup:
		v.Probe, v.Group = true, true
	case Ignore, Update, Inspect:
	}
	return v
}
