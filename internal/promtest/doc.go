// Package promtest exists so that metrics, queries and alert rules are tested by the programs that will read them: it
// starts a real Prometheus on a private port and runs promtool.
//
//   - [Start]: a server that scrapes the test's own targets, in about a second
//   - [Promtool]: checks of configurations, rules and metrics, and unit tests of rules
//
// The server listens on 127.0.0.1 alone, keeps its data in the test's folder, and ends with the test that started it. On
// Linux it ends as well when the test process is killed or panics; elsewhere a killed test process leaves it behind.
//
// Without prometheus or promtool in PATH the test is skipped, or fails where the environment says CI=true.
//
// Functions and methods that wait end the test when they waited in vain, so they belong into the test's own goroutine.
package promtest
