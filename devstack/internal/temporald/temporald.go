// Package temporald owns the settings of an embedded Temporal server on Postgres,
// and how to reach one.
//
// The server itself is package server below it, which only its own process and
// test link: it is a hundred times the size of this one.
package temporald

import (
	"context"
	"net"
	"strconv"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// Names of the two databases.
const (
	Database           = "temporal"
	VisibilityDatabase = "temporal_visibility"
)

// Config says where the server stores its data and where it listens.
type Config struct {
	// Host and Port of Postgres; both databases are on it.
	Host string
	Port int
	// User owns both databases.
	User, Password string
	// FrontendPort and the next three are taken on 127.0.0.1.
	FrontendPort int
	// MembershipPort and the next three are taken; below 32765.
	MembershipPort int
	// Namespace is registered before the first client can connect.
	Namespace string
}

// Address is the host and port that clients dial.
func (c Config) Address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.FrontendPort))
}

// Ping asks a server whether it serves the namespace.
func Ping(ctx context.Context, address, namespace string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	return err
}

// quiet drops what the SDK says about a server that is not there yet.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
