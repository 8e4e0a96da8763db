// One process that uses etcd's own Go client, package concurrency: the equivalent of worker.ts.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// callTime bounds calls that a careful caller would not leave unbounded.
const callTime = 5 * time.Second

type task struct {
	Addresses  []string `json:"addresses"`
	TTLSeconds int      `json:"ttlSeconds"`
}

type command struct {
	Do        string `json:"do"`
	ID        int    `json:"id"`
	Name      string `json:"name"`
	TimeoutMs int    `json:"timeoutMs"`
	Ms        int    `json:"ms"`
}

type line struct {
	T      string  `json:"t"`
	K      string  `json:"k"`
	ID     int     `json:"id,omitempty"`
	Token  string  `json:"token,omitempty"`
	Held   *bool   `json:"held,omitempty"`
	TimeUp *bool   `json:"timeUp,omitempty"`
	Err    *string `json:"err,omitempty"`
	Ms     int64   `json:"ms,omitempty"`
}

type hold struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
}

type worker struct {
	client     *clientv3.Client
	ttlSeconds int

	output sync.Mutex

	opening  sync.Mutex
	standing *concurrency.Session

	taking sync.Mutex
	holds  map[int]hold
}

func main() {
	var given task
	must(json.Unmarshal([]byte(os.Args[1]), &given))
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   given.Addresses,
		DialTimeout: callTime,
		Logger:      zap.NewNop(),
	})
	must(err)
	w := &worker{client: client, ttlSeconds: given.TTLSeconds, holds: map[int]hold{}}
	go w.tellStalls()
	w.tell(line{K: "ready"})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var c command
		must(json.Unmarshal(orders.Bytes(), &c))
		w.obey(c)
	}
	// The process that sends the commands has ended.
	os.Exit(70)
}

// obey answers a claim at once, as the others do; other commands may take longer.
func (w *worker) obey(c command) {
	switch c.Do {
	case "claim":
		w.claim(c.ID)
	case "acquire", "tryAcquire":
		go w.acquire(c)
	case "release":
		go w.release(c.ID)
	case "block":
		compute(time.Duration(c.Ms) * time.Millisecond)
	case "close":
		go w.close()
	}
}

// compute keeps this goroutine busy; the runtime runs the others.
func compute(long time.Duration) {
	for until := time.Now().Add(long); time.Now().Before(until); {
	}
}

// session returns one session for all locks of this process, and replaces it when it has ended.
func (w *worker) session(ctx context.Context) (*concurrency.Session, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.standing != nil && !over(w.standing) {
		return w.standing, nil
	}
	lease, err := w.client.Grant(ctx, int64(w.ttlSeconds))
	if err != nil {
		return nil, err
	}
	w.standing, err = concurrency.NewSession(w.client, concurrency.WithLease(lease.ID), concurrency.WithTTL(w.ttlSeconds))
	return w.standing, err
}

func (w *worker) acquire(c command) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.TimeoutMs)*time.Millisecond)
	defer cancel()
	session, err := w.session(ctx)
	if err != nil {
		w.refused(c.ID, err)
		return
	}
	mutex := concurrency.NewMutex(session, c.Name)
	lock := mutex.Lock
	if c.Do == "tryAcquire" {
		lock = tryLock(mutex)
	}
	if err := lock(ctx); err != nil {
		w.refused(c.ID, err)
		return
	}
	t := now()
	w.take(c.ID, hold{mutex, session})
	w.tell(line{T: t, K: "granted", ID: c.ID, Token: fence(mutex)})
	go w.tellLoss(c.ID, session)
}

// tryLock is the method of that name, which the client of etcd 3.4 doesn't have.
func tryLock(mutex interface{}) func(context.Context) error {
	if m, has := mutex.(interface{ TryLock(context.Context) error }); has {
		return m.TryLock
	}
	return func(context.Context) error { return errors.New("no TryLock") }
}

// fence is the number that IsOwner compares: the create revision of the key.
func fence(mutex *concurrency.Mutex) string {
	compare := mutex.IsOwner()
	return fmt.Sprint(compare.GetCompare().GetCreateRevision())
}

func (w *worker) tellLoss(id int, session *concurrency.Session) {
	<-session.Done()
	if _, holds := w.held(id); holds {
		w.tell(line{K: "lost", ID: id})
	}
}

func (w *worker) claim(id int) {
	t := now()
	h, holds := w.held(id)
	held := holds && !over(h.session)
	w.tell(line{T: t, K: "claim", ID: id, Held: &held})
}

func (w *worker) release(id int) {
	h, holds := w.held(id)
	w.drop(id)
	w.tell(line{K: "release", ID: id})
	if !holds {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if err := h.mutex.Unlock(ctx); err != nil {
		w.tell(line{K: "unreleased", ID: id, Err: text(err)})
		return
	}
	w.tell(line{K: "released", ID: id})
}

func (w *worker) close() {
	w.opening.Lock()
	defer w.opening.Unlock()
	var failures []error
	if w.standing != nil {
		failures = append(failures, w.standing.Close())
	}
	failures = append(failures, w.client.Close())
	if err := errors.Join(failures...); err != nil {
		w.tell(line{K: "closed", Err: text(err)})
		return
	}
	w.tell(line{K: "closed"})
}

func (w *worker) take(id int, h hold) {
	w.taking.Lock()
	defer w.taking.Unlock()
	w.holds[id] = h
}

func (w *worker) held(id int) (hold, bool) {
	w.taking.Lock()
	defer w.taking.Unlock()
	h, holds := w.holds[id]
	return h, holds
}

func (w *worker) drop(id int) {
	w.taking.Lock()
	defer w.taking.Unlock()
	delete(w.holds, id)
}

func (w *worker) refused(id int, err error) {
	timeUp := errors.Is(err, context.DeadlineExceeded)
	w.tell(line{K: "refused", ID: id, TimeUp: &timeUp, Err: text(err)})
}

func (w *worker) tell(l line) {
	if l.T == "" {
		l.T = now()
	}
	bytes, err := json.Marshal(l)
	must(err)
	w.output.Lock()
	defer w.output.Unlock()
	_, err = os.Stdout.Write(append(bytes, '\n'))
	must(err)
}

func over(session *concurrency.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

func text(err error) *string {
	s := err.Error()
	return &s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
