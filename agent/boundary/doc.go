// Package boundary owns what lies between the link, which talks to the control plane
// and has no rights, and the helper, which is root and talks to nobody but the link.
// Server is the helper's side, over the real ports of a host; Client is the link's side
// and gives those ports again.
//
// The verbs are these and no others. All can be repeated safely:
//
//	host.facts    what the host is
//	gpu.read      one call of gpudrv.Reader
//	gpu.watch     events of the GPUs, until it is taken back
//	gpu.reset     reset an idle GPU
//	gpu.test      prove that a GPU works
//	carve.ensure  make a slice
//	carve.remove  take a slice away
//	carve.observe list what is carved on a GPU
//	carve.quiet   cut processes off from a slice
//	carve.scrub   clean a slice that nobody uses
//	carve.prove   show that fresh clients of a GPU's slices work
//	mode.ensure   bring a GPU into a sharing mode
//	run.start     start a container
//	run.stop      end a container and remove its traces
//	run.list      list containers
//	run.stats     counters of a container
//	run.pids      processes of a container
//	net.traffic   bytes that passed each container's network
//	guard.sync    what the guard of shared GPUs looks after, and what it did
//	door.open     who may enter by SSH
//
// There is no shell, no program and no path among the arguments; each is checked for
// form and size before anything is done, and the helper adds mounts, devices and limits
// itself. A connection is taken only from the users that are allowed, by what the kernel
// says about the peer. What changes something goes on when the link goes away, one
// change of a GPU or a container at a time, whoever asks. Secrets pass through memory;
// the log names verbs and containers, never arguments.
package boundary
