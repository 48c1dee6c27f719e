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
	list := flag.Bool("list", false, "list the names and exit")
	flag.Parse()
	for _, m := range peer.MWs() {
		switch {
		case *list:
			fmt.Println(m.FullName())
		case m.FullName() == *name:
			s := &http.Server{Addr: *addr, Handler: m.Build(peer.Open, 1), ReadHeaderTimeout: time.Minute}
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
