// Package redissource is the policy document in a string key of Redis, with its changes told by Pub/Sub.
//
//	src, err := redissource.New(redissource.Config{Client: rdb, Key: "shop:policies"})
//
// Whoever writes the document says so on a channel, by default the key with ":changed" behind it; what the message says
// does not matter:
//
//	redis-cli -x SET shop:policies <policies.yaml
//	redis-cli PUBLISH shop:policies:changed ""
//
// [Source.Publish] does both at once. A replica that listens loads the document within milliseconds. Redis keeps no
// messages for those who do not listen at the moment, so a source also says that the document may have changed whenever it
// has subscribed again, and every half minute ([Config.Poll]): a message that is lost, or never sent, costs that long.
//
// It works with one server, with Sentinel, with a Cluster (a message reaches the subscribers of all nodes) and with a Ring,
// where the channel is that of the server which has the key. Where ACLs are used the user needs GETRANGE and STRLEN on
// the key and SUBSCRIBE on the channel (`~shop:policies &shop:policies:changed +getrange +strlen +subscribe +ping`), and EVAL, EVALSHA, SET
// and PUBLISH to Publish.
//
// It is not for documents that no replica may miss for half a minute while Redis is cut off: nothing is told by a server
// that is gone, and what was loaded last stays in force.
package redissource
