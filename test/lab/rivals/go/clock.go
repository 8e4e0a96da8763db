package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// tick is how often this process checks that it is being scheduled.
const tick = 25 * time.Millisecond

// tellStalls reports when the process was not scheduled for four ticks longer than expected.
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
