package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type worker struct {
	client   *clientv3.Client
	sessions []*concurrency.Session
	ended    sync.WaitGroup
	run      context.Context
	cancel   context.CancelFunc
	granted  *counter
	journals [][]float64
	failures chan error
}

type counter struct{ n int64 }

func (c *counter) add()         { atomic.AddInt64(&c.n, 1) }
func (c *counter) count() int64 { return atomic.LoadInt64(&c.n) }

// open connects once; the sessions share the connection, as they do in a program.
func (w *worker) open(c command) error {
	config := clientv3.Config{Endpoints: c.Connection.Addresses, DialTimeout: 5 * time.Second}
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	*w = worker{client: client, granted: &counter{}}
	w.run, w.cancel = context.WithCancel(context.Background())
	for n := 0; n < c.Connection.Sessions; n++ {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(c.Connection.TTLSeconds))
		if err != nil {
			return err
		}
		w.sessions = append(w.sessions, session)
	}
	return nil
}

func (w *worker) start(t task) {
	w.journals = make([][]float64, t.Contenders)
	w.failures = make(chan error, t.Contenders)
	for n := 0; n < t.Contenders; n++ {
		name := t.Name
		if t.Names == "each" {
			name = fmt.Sprintf("%s-%d", t.Name, n)
		}
		mutex := concurrency.NewMutex(w.sessions[n%len(w.sessions)], name)
		w.ended.Add(1)
		go w.contend(n, mutex, t)
	}
}

// contend runs until it is stopped; an error after that is an effect of the stop.
func (w *worker) contend(n int, mutex *concurrency.Mutex, t task) {
	defer w.ended.Done()
	for cycle := 0; t.Cycles == nil || cycle < *t.Cycles; cycle++ {
		err := w.once(n, mutex, t)
		if w.run.Err() != nil {
			return
		}
		if err != nil {
			w.failures <- err
			return
		}
	}
}

func (w *worker) once(n int, mutex *concurrency.Mutex, t task) error {
	if t.Kind == "try" {
		return w.try(n, mutex)
	}
	asked := now()
	if err := mutex.Lock(w.run); err != nil {
		return err
	}
	granted := now()
	w.granted.add()
	w.hold(t)
	released := now()
	w.journals[n] = append(w.journals[n], float64(n), asked, granted, released)
	return mutex.Unlock(w.run)
}

// tryLocker is not implemented by every client: that of etcd 3.4 lacks TryLock and the error that it returns.
type tryLocker interface {
	TryLock(ctx context.Context) error
}

const taken = "mutex: Locked by another session"

func (w *worker) try(n int, mutex *concurrency.Mutex) error {
	locker, can := interface{}(mutex).(tryLocker)
	if !can {
		return errors.New("this client has no TryLock")
	}
	asked := now()
	if err := locker.TryLock(w.run); err == nil || err.Error() != taken {
		return fmt.Errorf("expected a refusal, got %v", err)
	}
	answered := now()
	w.journals[n] = append(w.journals[n], float64(n), asked, answered, answered)
	return nil
}

func (w *worker) hold(t task) {
	if t.HoldMs == nil {
		<-w.run.Done()
	} else if *t.HoldMs > 0 {
		time.Sleep(time.Duration(*t.HoldMs * float64(time.Millisecond)))
	}
}

type stopped struct {
	Journal []float64 `json:"journal"`
}

func (w *worker) stop() (interface{}, error) {
	w.cancel()
	w.ended.Wait()
	var closing sync.WaitGroup
	for _, session := range w.sessions {
		closing.Add(1)
		go func(session *concurrency.Session) {
			defer closing.Done()
			session.Close()
		}(session)
	}
	closing.Wait()
	w.client.Close()
	select {
	case err := <-w.failures:
		return nil, err
	default:
	}
	all := stopped{Journal: []float64{}}
	for _, journal := range w.journals {
		all.Journal = append(all.Journal, journal...)
	}
	return all, nil
}
