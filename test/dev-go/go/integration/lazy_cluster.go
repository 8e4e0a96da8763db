// Package integration stands in for the one of etcd's tests that starts a cluster when it is first needed.
package integration

import (
	"sync"

	"go.etcd.io/etcd/tests/v3/framework/integration"
)

type LazyCluster struct {
	once    sync.Once
	cluster *integration.Cluster
}

func NewLazyCluster() *LazyCluster { return &LazyCluster{} }

func (lazy *LazyCluster) EndpointsGRPC() []string {
	lazy.once.Do(func() { lazy.cluster = integration.NewCluster(nil, &integration.ClusterConfig{Size: 1}) })
	return lazy.cluster.Client(0).Endpoints()
}

func (lazy *LazyCluster) Terminate() {
	if lazy.cluster != nil {
		lazy.cluster.Terminate(nil)
	}
}
