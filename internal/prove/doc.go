// Package prove exists so that what docs/guarantees.md promises under faults is measured on real processes: guards that are
// children of the test process, a real Redis, real sockets, and a meter that knows nothing of how anything was decided.
//
// Each cell of the matrix is one fault under load, in one mode: central (package redislimit), leased (package leased), or
// fallback (package fallback over redislimit). Every request that a handler sees is told to the meter with two instants: when
// it entered the guard, and when it came out. From these the cell computes by how much the fullest of all intervals was above
// the limit, and compares it with what docs/guarantees.md says may be added for this fault and mode. Times, such as until
// decisions are back, are told and never asserted.
//
// Ordinary tests run a few cells. make prove runs all and writes their table into docs/guarantees.md; make soak runs all
// modes in one process for long, and fails when it grows.
package prove
