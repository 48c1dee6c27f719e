// Command summarize turns the raw results of run.sh into the page docs/benchmarks.md. Ratios are taken inside a round
// first and medianed after, so that they survive a noisy machine. No number of the page is typed by hand.
//
//	summarize DIR >PAGE
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: summarize DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "summarize:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	r, err := load(dir)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	page{w: out, r: r}.render()
	return out.Flush()
}
