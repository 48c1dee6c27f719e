// Package benchmarks compares spillway with other rate limiters of the Go world and with floors: the least work that can
// be done. It is a module of its own, so that no one who imports spillway gets the other libraries. README.md says how
// to run it; docs/benchmarks.md of the repository has the results.
package benchmarks
