//go:build race

package leased

const raceEnabled = true
