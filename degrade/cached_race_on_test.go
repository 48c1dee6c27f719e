//go:build race

package degrade_test

const cachedUnderRace = true
