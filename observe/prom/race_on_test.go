//go:build race

package prom_test

const raceDetector = true
