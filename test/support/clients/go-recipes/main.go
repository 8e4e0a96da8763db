// One process that uses the barriers of etcd's own Go client, package recipe. It reads orders and answers in lines of JSON.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

type task struct {
	Addresses  []string `json:"addresses"`
	TTLSeconds int      `json:"ttlSeconds"`
}

// command: Member chooses one of the double barriers of this process, each with a session of its own.
type command struct {
	Do      string `json:"do"`
	ID      int    `json:"id"`
	Name    string `json:"name"`
	Member  int    `json:"member"`
	Members int    `json:"members"`
}

type line struct {
	K   string `json:"k"`
	ID  int    `json:"id,omitempty"`
	Err string `json:"err,omitempty"`
}

var output sync.Mutex

func tell(told line) {
	output.Lock()
	defer output.Unlock()
	must(json.NewEncoder(os.Stdout).Encode(told))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	var given task
	must(json.Unmarshal([]byte(os.Args[1]), &given))
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   given.Addresses,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
	})
	must(err)
	members := map[int]*recipe.DoubleBarrier{}
	tell(line{K: "ready"})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var c command
		must(json.Unmarshal(orders.Bytes(), &c))
		if c.Do == "enter" {
			session, err := concurrency.NewSession(client, concurrency.WithTTL(given.TTLSeconds))
			must(err)
			members[c.Member] = recipe.NewDoubleBarrier(session, c.Name, c.Members)
		}
		member := members[c.Member]
		go func() {
			told := line{K: "done", ID: c.ID}
			if err := obey(client, member, c); err != nil {
				told.Err = err.Error()
			}
			tell(told)
		}()
	}
}

func obey(client *clientv3.Client, member *recipe.DoubleBarrier, c command) error {
	barrier := recipe.NewBarrier(client, c.Name)
	switch c.Do {
	case "enter":
		return member.Enter()
	case "leave":
		return member.Leave()
	case "hold":
		return barrier.Hold()
	case "release":
		return barrier.Release()
	default:
		return barrier.Wait()
	}
}
