// Package apollosource is the policy document in a namespace of Apollo, the configuration centre of Ctrip.
//
//	src, err := apollosource.New(apollosource.Config{
//		Servers:   []string{"http://apollo-config-0:8080", "http://apollo-config-1:8080"},
//		AppID:     "shop",
//		Namespace: "limits.yaml",
//		AccessKey: secret,
//	})
//
// Import it under its own name:
//
//	import apollosource "github.com/spillway-go/spillway/config/source/apollo"
//
// # The namespace
//
// A namespace whose name ends in .yaml, .yml, .json or .txt holds one document, and is the one to choose. A namespace of
// properties can hold it in an item, which [Config].Key then names. What counts is what has been released. A public
// namespace that belongs to another application is found too, as Apollo does it.
//
// For a gray release the config service goes by the address of the caller or by [Config].IP, and by [Config].Label.
//
// # How it works
//
// It speaks HTTP to config services, with no library beside the standard one. Load asks for the release as a whole, without
// the key of an earlier one, so an answer is never a part or "not modified". A namespace without a release, and one whose
// document is blank, are [config.ErrIncomplete]. As an application, a cluster or a namespace that does not exist looks the
// same to whoever asks, so does a misspelt one.
//
// Watch asks for notifications by long polls, each held by the service for 60 s where nothing is released, and says that
// the document may have changed whenever there is one: within a second of a release. Load hands the last notification on,
// so that a config service with a cache does not answer with a release from before it. Every five minutes Watch forgets
// what it was notified of, and is notified again: that makes up for a database of Apollo that was set back.
//
// Servers are tried in turn when one cannot be reached, is too slow or answers with a 5xx status or 429; the one that
// answered last is asked first. Anything else one says is final: a wrong access key is not tried out on all of them.
// Redirections are not followed, as an answer to a signed request from elsewhere is worth nothing.
//
// It is not for finding config services through a meta service: name them, or the address of a load balancer, which has to
// bear requests that are silent for 60 s.
package apollosource
