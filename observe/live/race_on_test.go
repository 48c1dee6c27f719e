//go:build race

package live_test

const raceDetector = true
