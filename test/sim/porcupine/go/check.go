package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdict is one line of the output: of one object of a run.
type verdict struct {
	Run        string                `json:"run"`
	Object     string                `json:"object"`
	Names      int                   `json:"names"`
	Operations int                   `json:"operations"`
	Unknown    int                   `json:"unknown"`
	Result     porcupine.CheckResult `json:"result"`
	Ms         float64               `json:"ms"`
	// For illegal histories.
	Why  string `json:"why,omitempty"`
	File string `json:"file,omitempty"`
}

type checker struct {
	timeout time.Duration
	// Gets a picture of each illegal history.
	folder string
}

func (c checker) check(run, object string, operations []*operation) verdict {
	found := verdict{Run: run, Object: object, Operations: len(operations)}
	for _, op := range operations {
		if op.To == nil {
			found.Unknown++
		}
	}
	all := history(operations)
	found.Names = len(byName(all))
	started := time.Now()
	found.Result = porcupine.CheckOperationsTimeout(models[object], all, c.timeout)
	found.Ms = float64(time.Since(started).Microseconds()) / 1000
	if found.Result == porcupine.Illegal {
		c.explain(&found, all)
	}
	return found
}

// explain checks the names one by one, and draws the first one that has no legal order.
func (c checker) explain(found *verdict, all []porcupine.Operation) {
	for _, part := range byName(all) {
		result, info := porcupine.CheckOperationsVerbose(models[found.Object], part, c.timeout)
		if result != porcupine.Illegal {
			continue
		}
		found.Why = why(part, info)
		if c.folder == "" {
			return
		}
		found.File = filepath.Join(c.folder, fmt.Sprintf("%s-%s.html", found.Run, found.Object))
		must(porcupine.VisualizePath(models[found.Object], info, found.File))
		return
	}
}

// why names the operation that returned first of those that the longest legal order does not contain.
func why(part []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	ordered := map[*operation]bool{}
	for _, op := range longest {
		ordered[op.Input.(*operation)] = true
	}
	var first *porcupine.Operation
	for n, op := range part {
		if !ordered[op.Input.(*operation)] && (first == nil || op.Return < first.Return) {
			first = &part[n]
		}
	}
	op := first.Input.(*operation)
	after := "at the beginning"
	if len(longest) > 0 {
		after = fmt.Sprintf("after %v", longest[len(longest)-1].Input)
	}
	return fmt.Sprintf("%s: %d of %d operations have a legal order; not %v, %s", op.Name, len(longest), len(part), op, after)
}
