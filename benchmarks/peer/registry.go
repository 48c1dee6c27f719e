package peer

import "slices"

// Mems returns every limiter in memory, in the order of measurement.
func Mems() []Mem {
	return slices.Concat(
		memFloors(),
		spillwayMems(),
		xtimeMems(),
		failsafeMems(),
		sethvargoMems(),
		throttledMems(),
		ululeMems(),
		tollboothMems(),
		httprateMems(),
		echoMems(),
		// Last on purpose: the library starts a sweeper that can never be stopped and keeps its map alive, which would
		// burden the collector for every peer measured after it in the same process.
		ginRateLimitMems(),
	)
}

// MWs returns every handler, in the order of measurement.
func MWs() []MW {
	return slices.Concat(
		httpFloors(),
		spillwayMWs(),
		sethvargoMWs(),
		throttledMWs(),
		ululeMWs(),
		tollboothMWs(),
		httprateMWs(),
		echoMWs(),
		ginRateLimitMWs(),
	)
}
