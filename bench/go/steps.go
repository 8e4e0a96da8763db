package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// at is where a step is taken.
type at struct {
	Address string `json:"address"`
	Name    string `json:"name"`
	CA      string `json:"ca"`
	User    *struct {
		Username string `json:"username"`
		Password string `json:"password"`
	} `json:"user"`
}

const (
	stepTTL = 15
	// By then, a waiter has its place and its watch.
	settle = 400 * time.Millisecond
	many   = 20
)

var background = context.Background()

func (p at) connect() (*concurrency.Session, error) {
	config := clientv3.Config{Endpoints: []string{p.Address}, DialTimeout: 5 * time.Second}
	if p.User != nil {
		config.Username, config.Password = p.User.Username, p.User.Password
	}
	if p.CA != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(p.CA))
		config.TLS = &tls.Config{RootCAs: roots}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(client, concurrency.WithTTL(stepTTL))
}

// step is what one client does, and returns the milliseconds of the part that counts.
func step(name string, p at) (interface{}, error) {
	var sessions []*concurrency.Session
	var failure error
	fresh := func() *concurrency.Session {
		session, err := p.connect()
		if err != nil {
			panic(err)
		}
		sessions = append(sessions, session)
		return session
	}
	defer func() {
		for _, session := range sessions {
			session.Close()
			session.Client().Close()
		}
	}()
	check := func(err error) {
		if err != nil && failure == nil {
			failure = err
		}
	}
	lock := func(session *concurrency.Session, name string) *concurrency.Mutex {
		mutex := concurrency.NewMutex(session, name)
		check(mutex.Lock(background))
		return mutex
	}
	warm := func() *concurrency.Session {
		session := fresh()
		check(lock(session, p.Name+"-warm").Unlock(background))
		return session
	}
	timed := func(work func()) float64 {
		begun := now()
		work()
		return (now() - begun) / 1e6
	}
	try := func(session *concurrency.Session) error {
		locker, can := interface{}(concurrency.NewMutex(session, p.Name)).(tryLocker)
		if !can {
			return errors.New("this client has no TryLock")
		}
		return locker.TryLock(background)
	}
	var ms interface{}
	switch name {
	case "first lock":
		ms = timed(func() { lock(fresh(), p.Name) })
	case "first tryLock, taken":
		lock(fresh(), p.Name)
		ms = timed(func() {
			if err := try(fresh()); err == nil || err.Error() != taken {
				check(fmt.Errorf("expected a refusal, got %v", err))
			}
		})
	case "lock":
		session := warm()
		ms = timed(func() { lock(session, p.Name) })
	case "tryLock":
		session := warm()
		ms = timed(func() { check(try(session)) })
	case "release":
		mutex := lock(warm(), p.Name)
		ms = timed(func() { check(mutex.Unlock(background)) })
	case "lock and release":
		session := warm()
		ms = timed(func() { check(lock(session, p.Name).Unlock(background)) })
	case "20 locks of 20 names":
		session := warm()
		ms = timed(func() {
			var all sync.WaitGroup
			for n := 0; n < many; n++ {
				all.Add(1)
				go func(n int) {
					defer all.Done()
					must(concurrency.NewMutex(session, fmt.Sprintf("%s-%d", p.Name, n)).Lock(background))
				}(n)
			}
			all.Wait()
		})
	case "hand-over":
		mutex, other := lock(warm(), p.Name), warm()
		next := make(chan error)
		go func() { next <- concurrency.NewMutex(other, p.Name).Lock(background) }()
		time.Sleep(settle)
		ms = timed(func() {
			check(mutex.Unlock(background))
			check(<-next)
		})
	case "campaign":
		session := warm()
		ms = timed(func() { check(concurrency.NewElection(session, p.Name).Campaign(background, "me")) })
	case "proclaim":
		election := concurrency.NewElection(warm(), p.Name)
		check(election.Campaign(background, "me"))
		ms = timed(func() { check(election.Proclaim(background, "again")) })
	case "close":
		session := warm()
		ms = timed(func() { check(session.Close()) })
	}
	return ms, failure
}
