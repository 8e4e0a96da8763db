// Checks histories with Porcupine. It reads operations as lines of JSON from standard input; the line {"check": RUN} ends
// those of a run. For each object of that run it prints one line with the verdict, then {"checked": RUN}.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"time"
)

type line struct {
	operation
	Check string `json:"check"`
}

type checked struct {
	Checked string `json:"checked"`
}

func main() {
	c := checker{}
	flag.DurationVar(&c.timeout, "timeout", 10*time.Second, "for one object of one run; then its result is unknown")
	flag.StringVar(&c.folder, "pictures", "", "the folder that gets a picture of each illegal history")
	flag.Parse()
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	output := json.NewEncoder(os.Stdout)
	var objects []string
	operations := map[string][]*operation{}
	for input.More() {
		var l line
		must(input.Decode(&l))
		if l.Check == "" {
			if operations[l.Object] == nil {
				objects = append(objects, l.Object)
			}
			operations[l.Object] = append(operations[l.Object], &l.operation)
			continue
		}
		for _, object := range objects {
			must(output.Encode(c.check(l.Check, object, operations[object])))
		}
		must(output.Encode(checked{l.Check}))
		objects, operations = nil, map[string][]*operation{}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
