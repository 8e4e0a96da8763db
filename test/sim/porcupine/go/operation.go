package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// operation is one line of the input. See README.md for the operations of each object.
type operation struct {
	Run    string `json:"run"`
	Object string `json:"object"`
	Name   string `json:"name"`
	Client string `json:"client"`
	From   int64  `json:"from"`
	// If missing, the outcome is unknown: the operation may take effect at any time after From, or never.
	To *int64 `json:"to"`

	Op       string `json:"op"`
	Fence    int64  `json:"fence"`
	Shared   bool   `json:"shared"`
	Permits  int    `json:"permits"`
	Weight   int    `json:"weight"`
	Excused  bool   `json:"excused"`
	Placed   bool   `json:"placed"`
	Accepted *bool  `json:"accepted"`
	Value    int64  `json:"value"`
	Number   int64  `json:"number"`
	Item     string `json:"item"`
}

// history converts the operations of one object. Names are partitions: Porcupine checks them apart.
func history(operations []*operation) []porcupine.Operation {
	var clients []string
	var found []porcupine.Operation
	for _, op := range operations {
		if !slices.Contains(clients, op.Client) {
			clients = append(clients, op.Client)
		}
		to := int64(math.MaxInt64)
		if op.To != nil {
			to = *op.To
		}
		client := slices.Index(clients, op.Client)
		found = append(found, porcupine.Operation{ClientId: client, Input: op, Call: op.From, Return: to})
	}
	return found
}

func byName(operations []porcupine.Operation) [][]porcupine.Operation {
	index := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range operations {
		name := op.Input.(*operation).Name
		n, known := index[name]
		if !known {
			n = len(parts)
			index[name] = n
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], op)
	}
	return parts
}

func (op *operation) String() string {
	switch op.Op {
	case "keep", "replay", "expire":
		return fmt.Sprintf("%s: %s(%d)", op.Client, op.Op, op.Value)
	case "countDown", "enlist", "wait", "reset", "refused", "die":
		return fmt.Sprintf("%s: %s(%d) %s", op.Client, op.Op, op.Number, op.Item)
	case "rule":
		return fmt.Sprintf("%s: %s(%d)", op.Client, op.Op, op.Permits)
	case "count", "hold":
		return fmt.Sprintf("%s: %s(%d) -> %d", op.Client, op.Op, op.Number, op.Value)
	case "release", "pass":
		return fmt.Sprintf("%s: %s", op.Client, op.Op)
	case "read":
		return fmt.Sprintf("%s: read -> %d", op.Client, op.Value)
	case "write":
		outcome := "unknown"
		if op.Accepted != nil {
			outcome = map[bool]string{true: "accepted", false: "refused"}[*op.Accepted]
		}
		return fmt.Sprintf("%s: write(%d, fence %d) -> %s", op.Client, op.Value, op.Fence, outcome)
	case "acquire":
		text := fmt.Sprintf("%s: acquire -> fence %d", op.Client, op.Fence)
		if op.Shared {
			text += ", shared"
		}
		if op.Weight > 0 {
			text += fmt.Sprintf(", weight %d", op.Weight)
		}
		if op.Excused {
			text += ", excused"
		}
		return text
	default:
		return fmt.Sprintf("%s: %s(%d)", op.Client, op.Op, op.Fence)
	}
}
