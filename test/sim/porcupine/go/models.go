package main

import (
	"strings"

	"github.com/anishathalye/porcupine"
)

// model makes a sequential specification of one name from a step function over a comparable state.
func model[S comparable](step func(S, *operation) (bool, S)) porcupine.Model {
	return porcupine.Model{
		Partition: byName,
		Init:      func() interface{} { var first S; return first },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			return step(state.(S), input.(*operation))
		},
		DescribeOperation: func(input, _ interface{}) string { return input.(*operation).String() },
	}
}

var models = map[string]porcupine.Model{
	"mutex":     model(mutex),
	"rwlock":    model(rwlock),
	"semaphore": model(semaphore),
	"weighted":  model(weighted),
	"register":  model(register),
	"result":    model(result),
	"latch":     model(latch),
	"barrier":   model(barrier),
}

type mutexState struct {
	// 0: no holder.
	Holder int64
	// The highest fence that was ever given.
	Highest int64
}

func mutex(s mutexState, op *operation) (bool, mutexState) {
	switch op.Op {
	case "acquire":
		if op.Excused {
			return true, s
		}
		return op.Placed && s.Holder == 0 && op.Fence > s.Highest, mutexState{op.Fence, op.Fence}
	case "end":
		return s.Holder == op.Fence, mutexState{0, s.Highest}
	case "claim":
		return s.Holder == op.Fence, s
	case "gone":
		return s.Holder != op.Fence, s
	}
	return false, s
}

type rwlockState struct {
	Writer  int64
	Readers fences
	// The highest fence that was ever given. Readers get none.
	Highest int64
}

func rwlock(s rwlockState, op *operation) (bool, rwlockState) {
	held := s.Writer == op.Fence || s.Readers.has(op.Fence)
	switch op.Op {
	case "acquire":
		if op.Excused {
			return true, s
		}
		free := op.Placed && s.Writer == 0
		if op.Shared {
			return free && !held, rwlockState{0, s.Readers.with(op.Fence), s.Highest}
		}
		return free && s.Readers == "" && op.Fence > s.Highest, rwlockState{op.Fence, "", op.Fence}
	case "downgrade":
		return s.Writer == op.Fence, rwlockState{0, s.Readers.with(op.Fence), s.Highest}
	case "end":
		if s.Writer == op.Fence {
			return true, rwlockState{0, s.Readers, s.Highest}
		}
		return held, rwlockState{s.Writer, s.Readers.without(op.Fence), s.Highest}
	case "claim":
		return held, s
	case "gone":
		return !held, s
	}
	return false, s
}

// semaphore has the holders of the permits as its state.
func semaphore(s fences, op *operation) (bool, fences) {
	switch op.Op {
	case "acquire":
		if op.Excused {
			return true, s
		}
		return op.Placed && s.size() < op.Permits && !s.has(op.Fence), s.with(op.Fence)
	case "end":
		return s.has(op.Fence), s.without(op.Fence)
	case "claim":
		return s.has(op.Fence), s
	case "gone":
		return !s.has(op.Fence), s
	}
	return false, s
}

type weightedState struct {
	Holders fences
	// How many permits they take.
	Taken int
	// How many permits there are. A smaller number takes none from those that hold.
	Permits int
}

func weighted(s weightedState, op *operation) (bool, weightedState) {
	held := s.Holders.has(op.Fence)
	switch op.Op {
	case "rule":
		return true, weightedState{s.Holders, s.Taken, op.Permits}
	case "acquire":
		if op.Excused {
			return true, s
		}
		taken := s.Taken + op.Weight
		return op.Placed && taken <= s.Permits && !held, weightedState{s.Holders.with(op.Fence), taken, s.Permits}
	case "end":
		return held, weightedState{s.Holders.without(op.Fence), s.Taken - op.Weight, s.Permits}
	case "claim":
		return held, s
	case "gone":
		return !held, s
	}
	return false, s
}

type registerState struct {
	// The highest fence of a write that was accepted.
	Highest int64
	Value   int64
	// The fences whose holds have ended, without those lower than Highest, which are refused anyway.
	Ended fences
}

func register(s registerState, op *operation) (bool, registerState) {
	switch op.Op {
	case "read":
		return op.Value == s.Value, s
	case "end":
		if op.Fence < s.Highest || s.Ended.has(op.Fence) {
			return true, s
		}
		return true, registerState{s.Highest, s.Value, s.Ended.with(op.Fence)}
	case "write":
		accepts := op.Fence >= s.Highest && !s.Ended.has(op.Fence)
		if op.Accepted != nil && *op.Accepted != accepts {
			return false, s
		}
		if !accepts {
			return true, s
		}
		current := s.Ended.only(func(fence int64) bool { return fence >= op.Fence })
		return true, registerState{op.Fence, op.Value, current}
	}
	return false, s
}

// result has what etcd keeps of a slot as its state; 0: nothing.
func result(s int64, op *operation) (bool, int64) {
	switch op.Op {
	case "keep":
		return s == 0, op.Value
	case "replay":
		return s == op.Value, s
	case "expire":
		return s == op.Value, 0
	}
	return false, s
}

type latchState struct {
	// How many counts open it; 0: nobody has begun it.
	Number int64
	Left   int64
	// The IDs that were counted, between commas.
	Items string
}

func latch(s latchState, op *operation) (bool, latchState) {
	begun := s
	if s.Number == 0 {
		begun = latchState{op.Number, op.Number, ","}
	}
	// Of unknown outcome: it may have been refused.
	if op.To == nil && op.Op != "reset" && begun.Number != op.Number {
		return true, s
	}
	switch op.Op {
	case "countDown":
		counted := op.Item != "" && strings.Contains(begun.Items, ","+op.Item+",")
		if begun.Number != op.Number || begun.Left == 0 || counted {
			return begun.Number == op.Number, begun
		}
		if op.Item != "" {
			begun.Items += op.Item + ","
		}
		begun.Left--
		return true, begun
	case "enlist":
		return begun.Number == op.Number, begun
	case "wait":
		return s.Number == op.Number && s.Left == 0, s
	case "count":
		return begun.Number == op.Number && begun.Left == op.Value, s
	case "reset":
		if s.Number == 0 {
			return true, s
		}
		return true, latchState{op.Number, op.Number, ","}
	case "refused":
		return s.Number != 0 && s.Number != op.Number, s
	case "expire":
		return true, latchState{}
	}
	return false, s
}

type barrierState struct {
	Closed bool
	// Its holder has died.
	Broken bool
}

func barrier(s barrierState, op *operation) (bool, barrierState) {
	free := !s.Closed && !s.Broken
	switch op.Op {
	case "hold":
		if op.To == nil && !free {
			return true, s
		}
		if op.Value == 0 {
			return s.Closed, s
		}
		return free, barrierState{Closed: true}
	case "release":
		return true, barrierState{}
	case "pass":
		return free, s
	case "die":
		return s.Closed, barrierState{Broken: true}
	case "refused":
		return s.Broken, s
	}
	return false, s
}
