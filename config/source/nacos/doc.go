// Package nacossource is the policy document in a configuration of Nacos, by the gRPC protocol of Nacos 2 and 3.
//
//	src, err := nacossource.New(nacossource.Config{
//		Servers:   []string{"http://nacos-0:8848", "http://nacos-1:8848"},
//		Namespace: "0b5a3d2c-7a53-4a1e-8c2c-3f1f0e9d2b11",
//		DataID:    "limits.yaml",
//		Username:  "shop", Password: password,
//	})
//
// Import it under its own name:
//
//	import nacossource "github.com/spillway-go/spillway/config/source/nacos"
//
// # How it works
//
// Load opens a connection, asks for the configuration and closes the connection. What it returns is what a server has just
// said: nothing is kept, in memory or on disk, so a process that starts while Nacos is away gets an error and not the
// document of another day. A configuration that does not exist, is blank, or is being written is [config.ErrIncomplete].
//
// Watch opens a connection, listens, and says that the document may have changed whenever the server notifies of it, which
// it does within a second of a change. Every five seconds it asks whether the server is there; where there is no answer, or
// the server sends its clients elsewhere, the watch is lost. Every five minutes it listens anew and says that the document
// may have changed, should a notification have been lost.
//
// Servers are tried in turn when one cannot be reached, is too slow, or is just starting; the one that answered last is
// asked first. A refusal is final.
//
// The process writes no file, and nothing is logged. The package has its own client of the protocol because that of the
// Nacos project cannot be held to this: it answers from its snapshots, limits loads to five a second in the process, keeps
// every connection it ever had in a list, waits without a context, and ends the process over a certificate it cannot read.
//
// # What it does not do
//
// It does not decrypt: a data id that begins with cipher- is refused. It does not sign as version 4 of Alibaba Cloud's
// signatures, nor with temporary credentials. It does not look servers up by an endpoint: name them, or a load
// balancer of both ports. The HTTP interface of Nacos 1 is used for logins alone.
package nacossource
