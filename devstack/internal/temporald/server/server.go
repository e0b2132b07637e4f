package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/postgresql"
	"go.temporal.io/server/temporal"

	"github.com/tranche-cloud/tranche/devstack/internal/temporald"
)

const (
	clusterName     = "active"
	mainStore       = "main"
	visibilityStore = "visibility"
	historyShards   = 4

	// Membership ports lie in an int2 column: a larger one is stored as
	// nonsense and every call then times out without a word in the log.
	maxMembershipPort = 1<<15 - 1
)

// Run serves until ctx ends, and calls ready once clients may connect. The
// databases must have been prepared (Prepare).
func Run(ctx context.Context, c temporald.Config, ready func()) error {
	if c.MembershipPort+3 > maxMembershipPort {
		return fmt.Errorf("membership ports %d and up do not fit below %d", c.MembershipPort, maxMembershipPort+1)
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: "error"}))
	conf := configuration(c)
	if err := registerNamespace(ctx, conf, c.Namespace, logger); err != nil {
		return err
	}
	server, err := newServer(conf, logger)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the Temporal server: %w", err)
	}
	ready()
	<-ctx.Done()
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stop the Temporal server: %w", err)
	}
	return nil
}

func newServer(conf *config.Config, logger log.Logger) (temporal.Server, error) {
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, fmt.Errorf("make the authorizer: %w", err)
	}
	claims, err := authorization.GetClaimMapperFromConfig(&conf.Global.Authorization, logger)
	if err != nil {
		return nil, fmt.Errorf("make the claim mapper: %w", err)
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(settings()),
	)
	if err != nil {
		return nil, fmt.Errorf("make the Temporal server: %w", err)
	}
	return server, nil
}

// settings trims what only pays on a cluster: one partition a task queue saves
// a hop on each task.
func settings() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
		dynamicconfig.NamespaceCacheRefreshInterval.Key():       2 * time.Second,
	}
}

func configuration(c temporald.Config) *config.Config {
	conf := &config.Config{
		Persistence: stores(c),
		Services:    map[string]config.Service{},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: c.Address()},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		// Without the public client's address the start panics.
		PublicClient: config.PublicClient{HostPort: c.Address()},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
	}
	conf.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: "127.0.0.1"}
	for i, service := range temporal.DefaultServices {
		conf.Services[service] = config.Service{RPC: config.RPC{
			GRPCPort:       c.FrontendPort + i,
			MembershipPort: c.MembershipPort + i,
			BindOnIP:       "127.0.0.1",
		}}
	}
	return conf
}

func stores(c temporald.Config) config.Persistence {
	store := func(database string, conns int) config.DataStore {
		return config.DataStore{SQL: &config.SQL{
			PluginName:      postgresql.PluginNamePGX,
			DatabaseName:    database,
			ConnectAddr:     net.JoinHostPort(c.Host, strconv.Itoa(c.Port)),
			ConnectProtocol: "tcp",
			User:            c.User,
			Password:        c.Password,
			MaxConns:        conns,
			MaxIdleConns:    conns,
			MaxConnLifetime: time.Hour,
			ConnectAttributes: map[string]string{
				"sslmode": "disable",
			},
		}}
	}
	return config.Persistence{
		DefaultStore:     mainStore,
		VisibilityStore:  visibilityStore,
		NumHistoryShards: historyShards,
		DataStores: map[string]config.DataStore{
			mainStore:       store(temporald.Database, 20),
			visibilityStore: store(temporald.VisibilityDatabase, 5),
		},
	}
}
