//go:build race

package rediscall_test

const raceEnabled = true
