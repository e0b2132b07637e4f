// Package network owns the network of the instances of a host: an address and a
// link for each, what may be reached from it and what may reach it, published
// ports, the rate limit and the byte counters.
//
// # Shape
//
// Every instance has one veth pair whose far end (eth0) is born inside the
// instance's own network namespace. The near end is routed, not bridged: the host
// holds one /32 (and /128) route for each instance and the same gateway address on
// every link. Two instances therefore share no Ethernet segment, and every packet
// between them passes the same forward hook as all others. Both ends know each other's
// Ethernet address by permanent entries; the host hears no ARP and no neighbour
// discovery, so there is nothing to forge and no table to fill. What "network of an
// organization" means is one rule: links of the same organization may open connections
// to each other.
//
// # Rules
//
// All rules lie in one nftables table, inet "tranche", which is always replaced as a
// whole in one transaction. From an instance everything is refused but: its own
// organization's instances, the resolvers, what the operator allows, and the
// Internet through the uplink. Never allowed, whatever the operator says: the host,
// link-local, multicast, other organizations, and the operator's denied networks.
// The order is never > resolvers > allowed > private > Internet. A packet that does
// not carry the instance's own Ethernet and IP addresses is dropped before connection
// tracking. A link that the table does not know is dropped too, so an instance that is
// half made, or half removed, reaches nothing. Ports are published on the uplink and
// to the host itself, never to instances (no hairpin).
//
// # Host settings
//
// IP forwarding is switched on when the manager opens. If it was off before, the
// forward hook also drops everything that is not an instance's, so that the host does
// not become a router between its own networks. Settings stay as long as the
// table, because instances outlive the agent; Uninstall puts them back.
//
// # Durability
//
// Leases (address, ports, sums of counters) are one file, replaced and synced before
// the kernel is touched. Attach, Detach and Sweep bring the kernel to what the file
// says, whatever a killed predecessor left.
//
// The package knows no runtime and no gateway; its caller names a process whose
// namespace is attached. Rates are Mbit/s (10⁶ bits), counters bytes of IP packets.
package network
