// Package redistest exists because limiters on Redis are tested against real Redis: it starts servers, fail-over groups and
// clusters on private ports, breaks them on request, and leaves no process behind.
//
//   - [Start]: one server of the test's own, in tens of milliseconds
//   - [Shared]: one server for all tests of a process
//   - [StartSentinel]: a master, two replicas and three sentinels, in less than a second
//   - [StartCluster]: three masters with a replica each, in two to four seconds, of which a new master waits two
//   - [StartProxy]: connections that can be silent, slow, or cut before or in the middle of a reply
//   - [StartClock]: one server whose wall clock can be set
//
// Everything listens on 127.0.0.1 alone, keeps its data in memory, and ends with the test that started it. On Linux it
// ends as well when the test process is killed or panics; elsewhere a killed test process leaves its servers behind.
//
// Without a redis-server in PATH the test is skipped, or fails where the environment says CI=true.
//
// Functions and methods that wait end the test when they waited in vain, so they belong into the test's own goroutine.
// [Server.Kill], [Server.Pause], [Server.Resume] and the switches of a [Proxy] may be called from any.
package redistest
