package sshgw

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/sshcert"
)

// errDenied is all that anybody is told who is not let in.
var errDenied = errors.New("denied")

// credential is the key under which a connection's grant travels. It is bound to the
// key that signed, whatever other keys were offered before.
type credential struct{}

// grant is what a connection may do, and whose it is.
type grant struct {
	entry       Entry
	key         ssh.PublicKey    // the user's
	cert        *ssh.Certificate // nil: the key itself is listed
	holder      string
	serial      uint64
	terminal    bool
	forward     bool
	logsOnly    bool
	fingerprint string
}

// authenticate judges an offered key. An instance that is not here goes the same way as
// one whose key is wrong.
func (s *Server) authenticate(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	instance, err := id.Parse[id.Instance](meta.User())
	if err != nil {
		instance = id.Instance{}
	}
	s.mu.Lock()
	now := s.view
	s.mu.Unlock()
	who, err := s.judge(now, instance, meta, key)
	if err != nil {
		s.cfg.Log.Debug("ssh key refused", "instance_id", meta.User(), "remote", meta.RemoteAddr().String(), "error", err)
		return nil, errDenied
	}
	return &ssh.Permissions{ExtraData: map[any]any{credential{}: who}}, nil
}

func (s *Server) judge(now *view, instance id.Instance, meta ssh.ConnMetadata, key ssh.PublicKey) (grant, error) {
	entry, here := now.instances[instance]
	who := grant{entry: entry.Entry, key: key, terminal: true, forward: true}
	if cert, ok := key.(*ssh.Certificate); ok {
		allowed, err := sshcert.Verify(now.authorities, cert, instance, addressOf(meta.RemoteAddr()), s.cfg.Clock.Now())
		if err != nil {
			return grant{}, err
		}
		who.key, who.cert, who.holder, who.serial = cert.Key, cert, allowed.Holder, allowed.Serial
		who.terminal, who.forward, who.logsOnly = allowed.Terminal, allowed.Forward, allowed.Kind == sshcert.Logs
	} else if !listed(entry.keys, key) {
		return grant{}, fmt.Errorf("%w: the key is not listed", errDenied)
	}
	if !here {
		return grant{}, fmt.Errorf("%w: no such instance here", errDenied)
	}
	who.fingerprint = ssh.FingerprintSHA256(who.key)
	return who, nil
}

func listed(keys []sshcert.Key, key ssh.PublicKey) bool {
	wanted := key.Marshal()
	for _, k := range keys {
		if bytes.Equal(k.Marshal(), wanted) {
			return true
		}
	}
	return false
}

// stands says why an open session may not go on under the desired state, or "".
func (o *session) stands(now *view) string {
	entry, here := now.instances[o.who.entry.Instance]
	switch {
	case !here || entry.Assignment != o.who.entry.Assignment:
		return "instance stopped"
	case o.who.cert == nil && !listed(entry.keys, o.who.key):
		return "key withdrawn"
	case o.who.cert != nil && !trusted(now.authorities, o.who.cert.SignatureKey):
		return "authority withdrawn"
	}
	return ""
}

func trusted(authorities []ssh.PublicKey, key ssh.PublicKey) bool {
	for _, a := range authorities {
		if bytes.Equal(a.Marshal(), key.Marshal()) {
			return true
		}
	}
	return false
}
