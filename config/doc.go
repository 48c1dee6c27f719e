// Package config is the policy document: limits as YAML or JSON, checked as a whole, turned into the policies of a guard,
// and followed while it serves.
//
//	source, err := filesource.New(filesource.Config{Path: "limits.yaml"}) // config/source/file; or any other Source
//	…
//	limiters := stores.New(stores.Config{}) // config/stores: what documents name as stores
//	follower, err := config.Open(ctx, source, config.Deps{Central: limiters.Central, Local: limiters.Local, Leased: limiters.Leased})
//	…
//	defer follower.Close()
//	go follower.Follow(ctx)
//	handler := stdhttp.Middleware(follower.Guard())(mux)
//
// A [Source] has the document. [Open] waits for a first good version until its context ends, a file that is not there yet included, and
// makes a guard of it; [Follower.Follow] applies later ones, and leaves what is in force where one has errors. Names that only the
// program can give a meaning to, such as "user", are in [Deps]. [Parse] and [Build] do the steps one by one.
//
// Every field and every finding is in docs/policy.md.
package config
