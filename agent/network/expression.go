package network

import (
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// match is a condition or an action of a rule.
type match []expr.Any

// rule joins conditions and an action.
func rule(parts ...match) match {
	var all match
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func equal(data []byte) expr.Any   { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }
func differs(data []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: data} }

func interfaceName(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}

func iif(name string) match {
	return match{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equal(interfaceName(name))}
}

func oif(name string) match {
	return match{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, equal(interfaceName(name))}
}

func oifNot(name string) match {
	return match{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, differs(interfaceName(name))}
}

// iifOurs and oifOurs match every link of an instance: a shorter comparison than the
// name is a comparison of its beginning.
func iifOurs() match {
	return match{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, equal([]byte(linkPrefix))}
}

func oifOurs() match {
	return match{&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, equal([]byte(linkPrefix))}
}

func family(v6 bool) match {
	proto := byte(unix.NFPROTO_IPV4)
	if v6 {
		proto = unix.NFPROTO_IPV6
	}
	return match{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal([]byte{proto})}
}

// Offsets and lengths of addresses in the IP headers.
const (
	source4, destination4, length4 = 12, 16, 4
	source6, destination6, length6 = 8, 24, 16
)

func from(p netip.Prefix) match { return address(p, source4, source6) }
func to(p netip.Prefix) match   { return address(p, destination4, destination6) }

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// address matches an address of the header that lies within a network.
func address(p netip.Prefix, offset4, offset6 uint32) match {
	offset, length := offset4, uint32(length4)
	if p.Addr().Is6() {
		offset, length = offset6, length6
	}
	m := append(family(p.Addr().Is6()),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length})
	if !p.IsSingleIP() {
		m = append(m, &expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: length,
			Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()), Xor: make([]byte, length),
		})
	}
	return append(m, equal(p.Masked().Addr().AsSlice()))
}

// notLoopback matches packets whose destination is not one of 127/8 or ::1.
func notLoopback(v6 bool) match {
	if v6 {
		return append(family(true),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination6, Len: length6},
			differs(netip.IPv6Loopback().AsSlice()))
	}
	return append(family(false),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: destination4, Len: 1},
		differs([]byte{127}))
}

// strangeMAC matches packets from another Ethernet address than a.
func strangeMAC(a net.HardwareAddr) match {
	return match{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1}, equal(binaryutil.NativeEndian.PutUint16(unix.ARPHRD_ETHER)),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 6, Len: 6}, differs(a),
	}
}

func protocol(number byte) match {
	return match{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal([]byte{number})}
}

// port matches the destination port of a transport protocol, tcp or udp.
func port(transport string, number int) match {
	p := protocol(unix.IPPROTO_TCP)
	if transport == "udp" {
		p = protocol(unix.IPPROTO_UDP)
	}
	return append(p,
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		equal(binaryutil.BigEndian.PutUint16(uint16(number))))
}

// connection matches packets by the state of their connection.
func connection(states uint32) match {
	return bits(&expr.Ct{Register: 1, Key: expr.CtKeySTATE}, states)
}

// published matches packets of connections whose destination was translated.
func published() match {
	const destinationTranslated = 1 << 5
	return bits(&expr.Ct{Register: 1, Key: expr.CtKeySTATUS}, destinationTranslated)
}

func bits(load expr.Any, mask uint32) match {
	return match{
		load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: make([]byte, 4)},
		differs(make([]byte, 4)),
	}
}

// local matches packets to an address of the host.
func local() match {
	return match{&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, equal(binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL))}
}

// faster matches what exceeds a rate in bytes per second; a second's worth, which
// the kernel adds to the burst, may come at once.
func faster(rate uint64) match {
	const burst = 256 << 10
	return match{&expr.Limit{Type: expr.LimitTypePktBytes, Rate: rate, Over: true, Unit: expr.LimitTimeSecond, Burst: burst}}
}

// moreThan matches what exceeds a number of packets a second.
func moreThan(packets uint64) match {
	return match{&expr.Limit{Type: expr.LimitTypePkts, Rate: packets, Over: true, Unit: expr.LimitTimeSecond, Burst: uint32(packets)}}
}

// moreConnections matches a new connection beyond n.
func moreConnections(n int) match {
	return match{&expr.Connlimit{Count: uint32(n), Flags: expr.NFT_CONNLIMIT_F_INV}}
}

func count(name string) match {
	return match{&expr.Objref{Type: int(nftables.ObjTypeCounter), Name: name}}
}

func verdict(kind expr.VerdictKind, chain string) match {
	return match{&expr.Verdict{Kind: kind, Chain: chain}}
}

func drop() match               { return verdict(expr.VerdictDrop, "") }
func accept() match             { return verdict(expr.VerdictAccept, "") }
func follow(chain string) match { return verdict(expr.VerdictGoto, chain) }

// reset answers a TCP segment as a closed port does, so that a program fails at once:
// an ICMP answer may arrive while connect holds the socket, and then counts for little.
func reset() match {
	return match{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}

// prohibited answers "administratively prohibited".
func prohibited() match {
	const code = 3
	return match{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: code}}
}

func masquerade() match { return match{&expr.Masq{}} }

// forwardTo translates the destination to a port of an instance.
func forwardTo(a netip.Addr, number int) match {
	fam := uint32(unix.NFPROTO_IPV4)
	if a.Is6() {
		fam = unix.NFPROTO_IPV6
	}
	return match{
		&expr.Immediate{Register: 1, Data: a.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(uint16(number))},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: fam, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
	}
}
