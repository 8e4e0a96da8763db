package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// tick is how often this process looks whether it gets to run.
const tick = 25 * time.Millisecond

// tellStalls tells when the process did not get to run for four ticks more than it should.
func (w *worker) tellStalls() {
	last := time.Now()
	for range time.Tick(tick) {
		late := time.Since(last) - tick
		last = time.Now()
		if late > 4*tick {
			w.tell(line{K: "stall", Ms: late.Milliseconds()})
		}
	}
}

// now is CLOCK_MONOTONIC, which all processes of a machine share.
func now() string {
	var ts unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return fmt.Sprint(ts.Nano())
}
