package peer

import (
	"net/http"
	"slices"
)

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

// Redises returns every limiter on Redis and every bare command, in the order of measurement.
func Redises() []Redis {
	return slices.Concat(
		redisFloors(),
		spillwayRedises(),
		spillwayLeasedRedises(),
		redisRateRedises(),
		ululeRedises(),
		throttledRedises(),
		valkeyRedises(),
	)
}

// RedisMWs returns the handlers whose limiter is on the Redis at addrs, and one without any. Their framework is "redis",
// so that they are compared among themselves; all stand on net/http.
func RedisMWs(addrs []string) []MW {
	return slices.Concat(
		[]MW{{Framework: "redis", Name: "none", Build: func(Profile, int) http.Handler { return stdApp(0, nil) }}},
		spillwayRedisMWs(addrs),
		redisRateRedisMWs(addrs),
		ululeRedisMWs(addrs),
	)
}
