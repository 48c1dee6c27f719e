//go:build !race

package leased

const raceEnabled = false
