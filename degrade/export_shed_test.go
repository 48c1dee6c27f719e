package degrade

import "time"

const (
	PlacesPerClass = placesPerClass
	ShedLevels     = shedLevels
)

func ShedReserve(level int, keep float64) float64                { return shedReserve(level, keep) }
func PlaceOf(id string, now time.Time, rotate time.Duration) int { return placeOf(id, now, rotate) }
func HashIdentity(id string) uint64                              { return hashIdentity(id) }
func Spread(h uint64) uint64                                     { return spread(h) }
