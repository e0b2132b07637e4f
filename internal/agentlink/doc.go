// Package agentlink owns the language between a host's agent and the control
// plane: the Go form of every frame and its mapping to and from the wire
// (agentv1), the text of a join token, and how an agent decides whether to trust
// a gateway. Sub-package ca is the certificate authority.
//
// It does not own transport (gateway, nodeagent), nor what a frame does. A frame
// that cannot be mapped is refused as a whole with an error that names the field.
// Ages are durations of the agent's monotonic clock, whole microseconds on the
// wire; memory is MiB; slots name GPUs by the driver's UUID.
package agentlink
