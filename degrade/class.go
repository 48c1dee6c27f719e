package degrade

import "fmt"

// Class is how much a request matters, as in the book of Google's SREs ("Handling Overload", 2016). The zero Class is the
// lowest, so that a caller whom a table does not know gets no precedence.
type Class uint8

const (
	// Sheddable: may fail for hours, such as batch work that is repeated.
	Sheddable Class = iota
	// SheddablePlus: may fail for a while, such as prefetching and jobs that somebody waits for without hurry.
	SheddablePlus
	// Critical: users notice; the usual class.
	Critical
	// CriticalPlus: fails last, such as payments. It may use the whole quota, so it should be a small part of what is asked.
	CriticalPlus
)

var classNames = [...]string{"sheddable", "sheddable_plus", "critical", "critical_plus"}

// String returns the name, such as "sheddable_plus".
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

const (
	placesPerClass = 125
	shedLevels     = 4 * placesPerClass
	keptLevels     = int(CriticalPlus) * placesPerClass // from here on nothing is reserved for others
)

// shedReserve is the share of a quota that a request of a level leaves to those above. CriticalPlus leaves nothing and the
// highest level below it keep; from there on each level leaves (1−keep)/500 more than the one above it. So CriticalPlus
// always has keep, Critical and SheddablePlus each have (1−keep)/4 that no class below can use, and to the lowest level there
// is the uppermost (1−keep)/4 of a quota that few use.
func shedReserve(level int, keep float64) float64 {
	if level >= keptLevels {
		return 0
	}
	return keep + float64(keptLevels-1-level)*(1-keep)/shedLevels
}
