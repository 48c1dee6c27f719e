// Package sourcetest is the table of tests that every [config.Source] has to pass, those of this module and a user's own.
//
//	func TestSource(t *testing.T) {
//		sourcetest.Run(t, func(t *testing.T) (config.Source, func([]byte)) {
//			key := newKey(t)
//			return newSource(t, key), func(doc []byte) { put(t, key, doc) }
//		})
//	}
//
// It looks at what a source promises to whoever follows it: which document it loads, and that no change passes unnoticed.
// What a protocol has of its own, a server that goes away, a password, a listing, is for the tests of the source. So is a
// check for goroutines that survive Watch: only they know which of them belong to a client or a server.
package sourcetest
