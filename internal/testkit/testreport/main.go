// Command testreport reads the stream of `go test -json` and prints what a
// person wants of it: one line a package, the output of what failed, and the
// counts. A skipped test counts as failed: a missing service is a failure.
//
//	go test -json ./... | testreport -counts FILE
//
// It does not run tests. It exits 1 when anything failed, or when no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	counts := flag.String("counts", "", "also write `passed failed` to this file")
	flag.Parse()
	sum, err := report(os.Stdin, os.Stdout)
	if err == nil && *counts != "" {
		err = os.WriteFile(*counts, fmt.Appendf(nil, "%d %d\n", sum.passed, sum.failed), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if sum.failed > 0 || sum.passed == 0 {
		os.Exit(1)
	}
}

// event is one line of the stream (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// summary counts tests, subtests included, and packages that failed by
// themselves: one that does not build, or that panics.
type summary struct{ passed, failed int }

// run is what is known of the packages so far.
type run struct {
	out    io.Writer
	sum    summary
	output map[string][]string // of a test, a package or a build not yet judged
	broken map[string]bool     // packages with a failed test
}

func report(in io.Reader, out io.Writer) (summary, error) {
	r := run{out: out, output: map[string][]string{}, broken: map[string]bool{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			var e event
			if json.Unmarshal([]byte(text), &e) != nil {
				// Not from the tests: a complaint of the tool itself.
				fmt.Fprintln(out, text)
			} else {
				r.take(e)
			}
		}
		if err == io.EOF {
			return r.sum, nil
		}
		if err != nil {
			return r.sum, fmt.Errorf("read the test stream: %w", err)
		}
	}
}

func (r *run) take(e event) {
	key := e.Package + " " + e.Test
	if e.Package == "" {
		key = e.ImportPath
	}
	switch e.Action {
	case "output", "build-output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.judgeTest(e, key)
		} else {
			r.judgePackage(e, key)
		}
		delete(r.output, key)
	}
}

func (r *run) judgeTest(e event, key string) {
	if e.Action == "pass" {
		r.sum.passed++
		return
	}
	r.sum.failed++
	r.broken[e.Package] = true
	if e.Action == "skip" {
		fmt.Fprintf(r.out, "%s was skipped, which counts as failed\n", key)
	}
	r.show(key)
}

func (r *run) judgePackage(e event, key string) {
	switch {
	case e.Action == "skip":
		return // no test files
	case e.Action == "fail" && !r.broken[e.Package]:
		r.sum.failed++
		r.show(e.FailedBuild)
		r.show(key)
		fallthrough
	case e.Action == "fail":
		r.showUnfinished(e.Package)
	}
	verdict := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
	fmt.Fprintf(r.out, "%s  %-70s %7.1fs\n", verdict, e.Package, e.Elapsed)
}

// showUnfinished shows the tests that a panic or a time-out cut off: they have no
// verdict of their own.
func (r *run) showUnfinished(name string) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		if strings.HasPrefix(key, name+" ") && key != name+" " {
			r.show(key)
			delete(r.output, key)
		}
	}
}

func (r *run) show(key string) {
	for _, line := range r.output[key] {
		fmt.Fprint(r.out, line)
	}
}
