// Package integration stands in for the one of etcd's tests that starts etcd in the process of the tests: the program at
// LEASEHOLD_CLUSTERS starts its clusters.
package integration

import (
	"io"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type ClusterConfig struct{ Size int }

type Cluster struct {
	clients []*clientv3.Client
	hosts   string
}

func BeforeTest(testutil.TB) {}

// NewCluster has a client for each of its members.
func NewCluster(t testutil.TB, config *ClusterConfig) *Cluster {
	cluster := &Cluster{hosts: ask("start", strconv.Itoa(config.Size))}
	for _, host := range strings.Split(cluster.hosts, ",") {
		client, err := NewClient(t, clientv3.Config{Endpoints: []string{host}})
		if err != nil {
			log.Fatal(err)
		}
		cluster.clients = append(cluster.clients, client)
	}
	return cluster
}

func (c *Cluster) Terminate(t testutil.TB) {
	CloseClients(t, c.clients)
	ask("stop", c.hosts)
}

func ask(what, of string) string {
	answer, err := http.Get(os.Getenv("LEASEHOLD_CLUSTERS") + "/" + what + "/" + of)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		log.Fatal(answer.Status, string(text), err)
	}
	return string(text)
}

func NewClient(_ testutil.TB, config clientv3.Config) (*clientv3.Client, error) {
	config.DialTimeout = 10 * time.Second
	return clientv3.New(config)
}

func (c *Cluster) Client(index int) *clientv3.Client { return c.clients[index] }

func (c *Cluster) RandClient() *clientv3.Client { return c.clients[rand.Intn(len(c.clients))] }

func CloseClients(_ testutil.TB, clients []*clientv3.Client) {
	for _, client := range clients {
		if err := client.Close(); err != nil {
			log.Print(err)
		}
	}
}

func MakeSingleNodeClients(t testutil.TB, c *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, made, c.Client(0).Endpoints)
}

func MakeMultiNodeClients(t testutil.TB, c *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, made, func() []string { return c.RandClient().Endpoints() })
}

func makeClients(t testutil.TB, made *[]*clientv3.Client, choose func() []string) func() *clientv3.Client {
	var mutex sync.Mutex
	return func() *clientv3.Client {
		client, err := NewClient(t, clientv3.Config{Endpoints: choose()})
		if err != nil {
			log.Fatal(err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		*made = append(*made, client)
		return client
	}
}
