package sim

import (
	"slices"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// actions are what a fault file may order. Those of a GPU are taken on each GPU
// that the step names.
func actions() map[string]action {
	return map[string]action{
		"xid": {keys: []string{"code", "gi", "ci"}, need: []string{"code"}, take: func(d *Driver, uuid string, s step) error {
			d.XID(uuid, s.code, s.gi, s.ci)
			return nil
		}},
		"lose":         {take: func(d *Driver, uuid string, _ step) error { return d.Lose(uuid) }},
		"lose_quietly": {take: func(d *Driver, uuid string, _ step) error { return d.LoseQuietly(uuid) }},
		"recovery_action": {keys: []string{"action"}, need: []string{"action"}, take: func(d *Driver, uuid string, s step) error {
			return d.Advise(uuid, s.action)
		}},
		"fail": {keys: []string{"op", "kind", "hang", "late"}, need: []string{"op"}, take: inject(Fault{})},
		"hang": {keys: []string{"op", "late"}, need: []string{"op"}, take: inject(Fault{Hang: true})},
		"in_use": {
			keys: []string{"op", "pid", "name"}, need: []string{"op"},
			take: inject(Fault{Kind: gpudrv.InUse}),
		},
		"ci_fails":     {take: inject(Fault{Op: OpCreateComputeInstance, Kind: gpudrv.NoRoom})},
		"needs_reset":  {take: inject(Fault{Op: OpSetMode, Kind: gpudrv.NeedsReset})},
		"mps_stuck":    {take: inject(Fault{Op: OpMPSProbe, Kind: gpudrv.Broken})},
		"mps_fault":    {keys: []string{"pid"}, need: []string{"pid"}, take: func(d *Driver, uuid string, s step) error { return d.Fault(uuid, s.pid) }},
		"kill":         {keys: []string{"pid"}, need: []string{"pid"}, take: func(d *Driver, uuid string, s step) error { return d.Kill(uuid, s.pid) }},
		"detach":       {keys: []string{"pid"}, need: []string{"pid"}, take: func(d *Driver, uuid string, s step) error { return d.Detach(uuid, s.pid) }},
		"attach":       {keys: []string{"pid", "name", "start", "duty", "used_mib", "hide_pipe"}, need: []string{"pid"}, take: attach(false)},
		"monitor":      {keys: []string{"pid", "name", "start"}, need: []string{"pid"}, take: attach(true)},
		"fabric_down":  {take: hurt(func(c *card, _ step) { c.Hurt.FabricDown = true })},
		"fabric_up":    {take: hurt(func(c *card, _ step) { c.Hurt.FabricDown, c.Hurt.LinksDown = false, nil })},
		"link_down":    {keys: []string{"link"}, need: []string{"link"}, take: hurt(linkDown)},
		"thermal":      {keys: []string{"celsius"}, need: []string{"celsius"}, take: hurt(func(c *card, s step) { c.Hurt.Celsius = int64(s.number) })},
		"ecc":          {keys: []string{"count"}, need: []string{"count"}, take: hurt(func(c *card, s step) { c.Hurt.Uncorrected += int64(s.number) })},
		"remap":        {keys: []string{"count"}, need: []string{"count"}, take: hurt(remap)},
		"remap_failed": {take: hurt(func(c *card, _ step) { c.Hurt.RemapFailed = true })},
		"reset_fails":  {keys: []string{"count"}, need: []string{"count"}, take: hurt(func(c *card, s step) { c.Hurt.ResetRefusals += s.number })},
		"reset":        {take: func(d *Driver, uuid string, _ step) error { return d.HardReset(uuid) }},
		"mismatch":     {host: true, take: func(d *Driver, _ string, _ step) error { return d.Mismatch() }},
		"reboot":       {host: true, take: func(d *Driver, _ string, _ step) error { return d.Reboot() }},
	}
}

// inject makes a call fault of a step.
func inject(f Fault) func(*Driver, string, step) error {
	return func(d *Driver, uuid string, s step) error {
		f := f
		f.GPU, f.Times, f.Late = uuid, s.times, s.late
		if s.every > 0 || f.Times < 1 {
			f.Times = 1
		}
		if s.op != "" {
			f.Op = s.op
		}
		if s.kind != "" {
			f.Kind = gpudrv.Kind(s.kind)
		}
		f.Hang = f.Hang || s.hang
		if s.pid > 0 || s.name != "" {
			f.Holders = []gpudrv.Holder{{PID: s.pid, Name: s.name}}
		}
		d.Inject(f)
		return nil
	}
}

func hurt(f func(*card, step)) func(*Driver, string, step) error {
	return func(d *Driver, uuid string, s step) error {
		return d.event(uuid, func(c *card) { f(c, s) })
	}
}

func linkDown(c *card, s step) {
	if !slices.Contains(c.Hurt.LinksDown, s.number) {
		c.Hurt.LinksDown = append(c.Hurt.LinksDown, s.number)
	}
}

// remap puts rows aside that wait for a reset to be replaced.
func remap(c *card, s step) {
	c.Hurt.RemapFatal += int64(s.number)
	c.Hurt.RemapPending = true
}

// attach puts a client on the slice that begins at the step's start.
func attach(monitor bool) func(*Driver, string, step) error {
	return func(d *Driver, uuid string, s step) error {
		slot, err := d.slotAt(uuid, s.start)
		if err != nil {
			return err
		}
		duty := s.duty
		if duty == 0 {
			duty = defaultDuty
		}
		return d.Attach(uuid, Client{
			PID: s.pid, Name: s.name, Slot: slot, Monitor: monitor, UsedBytes: s.mib * mib, Duty: duty, HidePipe: s.hide,
		})
	}
}

// slotAt is the slice that begins at a unit of the GPU's present mode.
func (d *Driver) slotAt(uuid string, start int) (gpu.Slot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, err := d.st.find("attach", uuid)
	if err != nil {
		return gpu.Slot{}, err
	}
	c := d.st.GPUs[i]
	if c.Mode.Kind != gpu.MIG {
		return gpu.Slot{GPU: uuid, Mode: c.Mode, Start: start, Size: 1}, nil
	}
	for _, in := range c.Instances {
		if in.Start == start {
			return gpu.Slot{GPU: uuid, Mode: c.Mode, Profile: in.Profile, Start: start, Size: c.describe(in).Placement.Size}, nil
		}
	}
	return gpu.Slot{}, gpudrv.Refuse(gpudrv.NotFound, "attach", uuid, "no GPU instance begins at %d", start)
}
