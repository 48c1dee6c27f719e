//go:build race

package keyfunc_test

const raceEnabled = true
