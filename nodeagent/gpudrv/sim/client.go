package sim

import (
	"slices"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// Client is a process, or a monitor that no process list shows, on a GPU.
type Client struct {
	PID       int // unique among the GPU's clients
	Name      string
	Slot      gpu.Slot // where it is; the zero Slot is the GPU itself
	Monitor   bool
	UsedBytes int64
	Duty      int    // percent of the time with work running; 0 is 25, -1 is idle
	Cgroup    string // counted against the cgroup's memory limit; may be ""
	// HidePipe: the client hides the pipe folder of the MPS daemon. It gets the
	// whole device without a limit, unless the compute mode forbids.
	HidePipe bool
}

// Attach puts a client on a slot of a GPU, where it keeps the slot in use. Where
// an MPS daemon serves the slot's device, the client connects to it and gets the
// limits set by then. It fails with NotFound if the slot does not exist, NoRoom
// if the memory is over a limit or used up, InUse if the compute mode lets nobody
// in, Broken if the server takes nobody.
func (d *Driver) Attach(uuid string, cl Client) error {
	const op = "attach"
	at := d.now()
	var refused error
	err := d.event(uuid, func(c *card) {
		in := client{
			PID: cl.PID, Name: cl.Name, GPUInstance: -1, Unit: -1, Monitor: cl.Monitor,
			UsedBytes: cl.UsedBytes, Duty: cl.Duty, Cgroup: cl.Cgroup,
		}
		if !c.place(&in, cl.Slot) {
			refused = gpudrv.Refuse(gpudrv.NotFound, op, uuid, "no slice %s", cl.Slot)
			return
		}
		if !cl.Monitor {
			if refused = c.connect(&in, cl.HidePipe, func(dm daemon) error { return dm.takes(at) }); refused != nil {
				return
			}
			if refused = d.room(*c, in); refused != nil {
				return
			}
		}
		c.Clients = append(c.Clients, in)
	})
	if err == nil {
		return refused
	}
	return err
}

// place finds where a client is; false if its slot does not exist.
func (c *card) place(in *client, s gpu.Slot) bool {
	switch s.Mode.Kind {
	case gpu.MIG:
		i := slices.IndexFunc(c.Instances, func(i instance) bool { return i.Profile == s.Profile && i.Start == s.Start })
		if i < 0 {
			return false
		}
		in.GPUInstance = c.Instances[i].ID
	case gpu.MPS, gpu.TimeSlice:
		in.Unit = s.Start
		return slices.Contains(c.Shares, s.Start) || slices.Contains(c.Functions, s.Start)
	}
	return true
}

// connect gives a client the limits of the daemon that serves its device. Without
// a daemon, or hiding from it, it opens the device by itself.
func (c *card) connect(in *client, hide bool, takes func(daemon) error) error {
	device := c.UUID
	if in.GPUInstance >= 0 {
		device = migUUID(c.UUID, in.GPUInstance, 0)
	}
	i := c.daemonOn(device)
	if i < 0 || hide || c.Daemons[i].Server == 0 {
		return c.openAlone(*in, device, i >= 0 && c.Daemons[i].Server != 0)
	}
	if err := takes(c.Daemons[i]); err != nil {
		return err
	}
	in.Limit, in.Memory = c.Daemons[i].Percent, c.Daemons[i].Memory
	return nil
}

// openAlone applies the compute mode to a process that opens the device itself.
func (c *card) openAlone(in client, device string, served bool) error {
	const op = "attach"
	switch c.ComputeMode {
	case gpudrv.ComputeProhibited:
		return gpudrv.Refuse(gpudrv.InUse, op, c.UUID, "compute mode is prohibited")
	case gpudrv.ComputeExclusiveProcess:
		busy := served || slices.ContainsFunc(c.Clients, func(cl client) bool {
			return !cl.Monitor && c.onDevice(cl, device) && cl.PID != in.PID
		})
		if busy {
			return gpudrv.Refuse(gpudrv.InUse, op, c.UUID, "compute mode is exclusive_process and the device is taken")
		}
	}
	return nil
}

// room refuses memory over the limit of the client, of its slice where the driver
// counts that, or of its cgroup, and memory that the device does not have.
func (d *Driver) room(c card, in client) error {
	const op, namespaces = "allocate", 3
	if limit := int64(in.Memory) * mib; in.Limit > 0 && in.Memory > 0 {
		used := in.UsedBytes
		for _, cl := range c.Clients {
			if d.can.MPS >= namespaces && cl.Unit == in.Unit && cl.GPUInstance == in.GPUInstance && cl.Limit > 0 {
				used += cl.UsedBytes
			}
		}
		if used > limit {
			return gpudrv.Refuse(gpudrv.NoRoom, op, c.UUID, "out of memory: %d bytes, limit %d", used, limit)
		}
	}
	if limit := c.MemoryLimits[in.Cgroup]; limit > 0 && in.Cgroup != "" {
		used := in.UsedBytes
		for _, cl := range c.Clients {
			if cl.Cgroup == in.Cgroup {
				used += cl.UsedBytes
			}
		}
		if used > limit {
			return gpudrv.Refuse(gpudrv.NoRoom, op, c.UUID, "out of memory: %d bytes in the cgroup, limit %d", used, limit)
		}
	}
	if c.usedBytes()+in.UsedBytes > c.model().totalBytes {
		return gpudrv.Refuse(gpudrv.NoRoom, op, c.UUID, "out of memory: the gpu is full")
	}
	return nil
}

// Detach is the regular end of a client; it does nothing if there is none with
// that PID.
func (d *Driver) Detach(uuid string, pid int) error {
	return d.event(uuid, func(c *card) {
		c.Clients = slices.DeleteFunc(c.Clients, func(cl client) bool { return cl.PID == pid })
	})
}

// Kill ends a client by a signal. If it has work in flight in an MPS server, the
// server's other clients end with it; one that was cut off before has none.
func (d *Driver) Kill(uuid string, pid int) error {
	return d.event(uuid, func(c *card) {
		i := slices.IndexFunc(c.Clients, func(cl client) bool { return cl.PID == pid })
		if i < 0 {
			return
		}
		victim := c.Clients[i]
		c.Clients = slices.Delete(c.Clients, i, i+1)
		if victim.Limit > 0 && !victim.Cut && victim.duty() > 0 {
			c.endClients(victim)
		}
	})
}

// Fault is an illegal access by a client: an XID 31, and the end of every client
// of the same MPS server, which takes nobody new for a second.
func (d *Driver) Fault(uuid string, pid int) error {
	return d.fault(uuid, pid, false)
}

// StickyFault is Fault after which the server takes nobody until it is started
// again.
func (d *Driver) StickyFault(uuid string, pid int) error { return d.fault(uuid, pid, true) }

func (d *Driver) fault(uuid string, pid int, stuck bool) error {
	gi, at := -1, d.now()
	err := d.event(uuid, func(c *card) {
		i := slices.IndexFunc(c.Clients, func(cl client) bool { return cl.PID == pid })
		if i < 0 {
			return
		}
		culprit := c.Clients[i]
		gi = culprit.GPUInstance
		c.Clients = slices.Delete(c.Clients, i, i+1)
		if culprit.Limit == 0 || culprit.Cut {
			return
		}
		for n := range c.Daemons {
			if c.onDevice(culprit, c.Daemons[n].Device) {
				c.Daemons[n].FaultAt, c.Daemons[n].Stuck = at, stuck
			}
		}
		c.endClients(culprit)
	})
	if err != nil {
		return err
	}
	const illegalAccess = 31
	ci := gi
	if gi >= 0 {
		ci = 0
	}
	d.XID(uuid, illegalAccess, gi, ci)
	return nil
}

// endClients ends every client of the server that one client was connected to.
func (c *card) endClients(of client) {
	c.Clients = slices.DeleteFunc(c.Clients, func(cl client) bool {
		return cl.Limit > 0 && !cl.Cut && cl.GPUInstance == of.GPUInstance
	})
}
