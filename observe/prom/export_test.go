package prom

// What tests of the bounds go by.
const (
	MaxMet    = maxMet
	MaxValues = maxValues
)
