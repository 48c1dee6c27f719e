//go:build race

package otelobserve_test

const raceEnabled = true
