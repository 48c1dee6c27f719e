// Package etcdsource is the policy document in a key of etcd, followed by a watch. It is a module of its own: nobody else
// gets the client of etcd and gRPC with it.
//
//	src, err := etcdsource.New(etcdsource.Config{Client: client, Key: "/shop/policies"})
//
// Whoever writes the document does no more than that:
//
//	etcdctl put /shop/policies <policies.yaml
//
// Every replica that watches loads it within milliseconds. Nothing is missed while a connection is lost, a server restarts
// or a revision is compacted. A watch that hangs without an error, as behind a network that drops packets, is found out by a
// look at the key every half minute ([Config.Poll]). A member that has lost its leader ends the watch with an error: it
// would tell of nothing.
//
// Where etcd asks who is there, the user needs a role that may read the key. A client with a namespace reads and watches in
// that namespace, if both its KV and its Watcher have it.
package etcdsource
