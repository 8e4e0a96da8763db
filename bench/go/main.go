// One process of contenders with etcd's own Go client, package concurrency: the equivalent of
// worker/main.ts. It reads orders as lines of JSON from standard input, one at a time, and answers each with one line
// on standard output.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
)

type command struct {
	Do         string `json:"do"`
	Connection struct {
		Addresses  []string `json:"addresses"`
		TTLSeconds int      `json:"ttlSeconds"`
		Sessions   int      `json:"sessions"`
	} `json:"connection"`
	Task    task   `json:"task"`
	Collect bool   `json:"collect"`
	Step    string `json:"step"`
	At      at     `json:"at"`
}

type task struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Names      string `json:"names"`
	Contenders int    `json:"contenders"`
	// If missing, until it is stopped.
	HoldMs *float64 `json:"holdMs"`
	Cycles *int     `json:"cycles"`
}

type look struct {
	CPUMicros int64   `json:"cpuMicros"`
	Granted   int64   `json:"granted"`
	HeapBytes uint64  `json:"heapBytes"`
	StallMs   float64 `json:"stallMs"`
}

type answer struct {
	OK    interface{} `json:"ok,omitempty"`
	Error string      `json:"error,omitempty"`
}

func main() {
	w := &worker{}
	orders := bufio.NewScanner(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	must(output.Encode(answer{OK: true}))
	for orders.Scan() {
		var c command
		must(json.Unmarshal(orders.Bytes(), &c))
		result, err := w.obey(c)
		if err != nil {
			must(output.Encode(answer{Error: err.Error()}))
			continue
		}
		must(output.Encode(answer{OK: result}))
	}
}

func (w *worker) obey(c command) (interface{}, error) {
	switch c.Do {
	case "open":
		return true, w.open(c)
	case "start":
		w.start(c.Task)
		return true, nil
	case "step":
		return step(c.Step, c.At)
	case "look":
		return w.look(c.Collect), nil
	default:
		return w.stop()
	}
}

func (w *worker) look(collect bool) look {
	if collect {
		runtime.GC()
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return look{CPUMicros: cpuMicros(), Granted: w.granted.count(), HeapBytes: memory.HeapAlloc}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
