package limiter

import "time"

// Leases is what an [EventLease] tells of a policy beside the number of leases held. Counts and maxima are of what came since
// the event before it, so that whoever adds them up has them all.
type Leases struct {
	Units     int64         // held now
	Staleness time.Duration // how long ago the oldest lease that is held was told about by the store

	Local                       uint64 // decisions that needed no call
	Calls                       uint64 // for units, and to give some back
	Granted, Returned, Stranded uint64 // units; stranded: granted, and neither spent nor given back

	// Late is by how many units of one key this process may have exceeded its limit: units that were waited for pass when the
	// reply is here, later than the store counted them, by at most the time of the call. LateBound is what the rate of a key
	// brings in the time of the slowest call. All processes together were above by at most the sum of Late, and by at most the
	// largest LateBound. Late is never above LateBound.
	Late, LateBound float64
}
