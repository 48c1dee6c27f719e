//go:build !race

package live_test

const raceDetector = false
