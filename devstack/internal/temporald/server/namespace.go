package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	persistencespb "go.temporal.io/server/api/persistence/v1"
	"go.temporal.io/server/common"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/persistence"
	"go.temporal.io/server/common/persistence/client"
	"go.temporal.io/server/common/persistence/serialization"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/common/resolver"
	"go.temporal.io/server/common/telemetry"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retention is how long closed workflows stay readable. They hold no facts.
const retention = 24 * time.Hour

// registerNamespace writes the namespace straight into the store. A namespace
// made through the running server is unknown to its frontend until the cache
// refreshes, so the first workflows would be refused.
func registerNamespace(ctx context.Context, conf *config.Config, name string, logger log.Logger) error {
	serializer := serialization.NewSerializer()
	backends := client.DataStoreFactoryProvider(clusterName, resolver.NewNoopResolver(), &conf.Persistence,
		nil, logger, metrics.NoopMetricsHandler, telemetry.NoopTracerProvider, serializer)
	factory := client.FactoryProvider(client.NewFactoryParams{
		DataStoreFactory: backends, Cfg: &conf.Persistence, ClusterName: clusterName,
		MetricsHandler: metrics.NoopMetricsHandler, Logger: logger, Serializer: serializer,
	})
	defer factory.Close()
	manager, err := factory.NewMetadataManager()
	if err != nil {
		return fmt.Errorf("open the namespace store: %w", err)
	}
	defer manager.Close()

	ctx = headers.SetCallerInfo(ctx, headers.SystemBackgroundHighCallerInfo)
	_, err = manager.CreateNamespace(ctx, &persistence.CreateNamespaceRequest{Namespace: namespaceDetail(name)})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("register namespace %q: %w", name, err)
	}
	return nil
}

func namespaceDetail(name string) *persistencespb.NamespaceDetail {
	return &persistencespb.NamespaceDetail{
		Info: &persistencespb.NamespaceInfo{
			Id: primitives.NewUUID().String(), Name: name, State: enumspb.NAMESPACE_STATE_REGISTERED,
		},
		Config: &persistencespb.NamespaceConfig{
			Retention:               durationpb.New(retention),
			HistoryArchivalState:    enumspb.ARCHIVAL_STATE_DISABLED,
			VisibilityArchivalState: enumspb.ARCHIVAL_STATE_DISABLED,
		},
		ReplicationConfig: &persistencespb.NamespaceReplicationConfig{
			ActiveClusterName: clusterName, Clusters: []string{clusterName},
		},
		FailoverVersion:             common.EmptyVersion,
		FailoverNotificationVersion: -1,
	}
}
