package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// now is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share. A float64, like JavaScript's.
func now() float64 {
	var ts unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return float64(ts.Nano())
}

// cpuMicros is the processor time of this process so far.
func cpuMicros() int64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return micros(usage.Utime) + micros(usage.Stime)
}

func micros(t syscall.Timeval) int64 {
	return t.Nano() / 1000
}
