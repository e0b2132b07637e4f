// Package callwire carries calls between the processes of one host, over a pipe or a
// unix socket. It owns the frames, the pairing of answers with calls, deadlines, and the
// form in which typed errors of the driver and runtime ports travel.
//
// A frame is four bytes of length, big endian, and one JSON object of at most MaxFrame
// bytes. Both sides begin with a hello that names the version; they must be equal. The
// client numbers its calls; answers come in any order. A call may tell the client things
// (notes) before it is answered, and the client may take a call back (cancel).
//
// It does not know what calls mean, starts no process, and logs nothing: what it carries
// may be secret. Times on the wire are milliseconds.
package callwire
