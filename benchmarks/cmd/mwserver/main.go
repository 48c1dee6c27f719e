// Command mwserver serves one of the handlers over HTTP on the loopback interface, for a load generator.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spillway-go/spillway/benchmarks/peer"
)

func main() {
	name := flag.String("mw", "std/none", "framework/limiter")
	addr := flag.String("addr", "127.0.0.1:18080", "address to listen on")
	redis := flag.String("redis", "", "address of a Redis server: the handlers whose limiter is there; empty: those in memory")
	list := flag.Bool("list", false, "list the names and exit")
	flag.Parse()
	handlers, profile := peer.MWs(), peer.Open
	if *redis != "" {
		handlers, profile = peer.RedisMWs([]string{*redis}), peer.Kept
	}
	for _, m := range handlers {
		switch {
		case *list:
			fmt.Println(m.FullName())
		case m.FullName() == *name:
			s := &http.Server{Addr: *addr, Handler: m.Build(profile, 1), ReadHeaderTimeout: time.Minute}
			fail(s.ListenAndServe())
		}
	}
	if !*list {
		fail(fmt.Errorf("no handler is called %q", *name))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mwserver:", err)
	os.Exit(1)
}
