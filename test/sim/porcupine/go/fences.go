package main

import (
	"slices"
	"strconv"
	"strings"
)

// fences is a set of fences as sorted numbers between commas: Porcupine compares states with ==.
type fences string

func (f fences) list() []int64 {
	var list []int64
	for _, text := range strings.FieldsFunc(string(f), func(r rune) bool { return r == ',' }) {
		fence, err := strconv.ParseInt(text, 10, 64)
		must(err)
		list = append(list, fence)
	}
	return list
}

func setOf(list []int64) fences {
	slices.Sort(list)
	text := make([]string, len(list))
	for n, fence := range list {
		text[n] = strconv.FormatInt(fence, 10)
	}
	return fences(strings.Join(text, ","))
}

func (f fences) has(fence int64) bool    { return slices.Contains(f.list(), fence) }
func (f fences) size() int               { return len(f.list()) }
func (f fences) with(fence int64) fences { return setOf(append(f.list(), fence)) }
func (f fences) without(fence int64) fences {
	return f.only(func(other int64) bool { return other != fence })
}

func (f fences) only(keep func(int64) bool) fences {
	return setOf(slices.DeleteFunc(f.list(), func(fence int64) bool { return !keep(fence) }))
}
