package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	var all []decision
	for range 2500 { // at once: the burst, and 500 that nobody may have
		all = append(all, decision{0, 0})
	}
	for k := range int64(1000) { // and as it refills, half of which is refused
		at := int64(10*time.Second) + k*int64(time.Second)/2000
		one := decision{at, at}
		if k%2 == 1 {
			one.passed = -1
		}
		all = append(all, one)
	}
	admitted, use, over := judge(all)
	require.Equal(t, 3000, admitted)
	require.InDelta(t, 1, use, 1e-9, "what was too much at first was missing later")
	require.InDelta(t, 500, over, 1e-9)
}
