package live

// What is sent. Names are short where there is one of a thing for each policy and second.

// full is everything: the first event of a stream.
type full struct {
	Title    string       `json:"title"`
	Now      int64        `json:"now"`              // Unix seconds
	Times    []int64      `json:"times"`            // of the points
	Totals   [][]float64  `json:"totals"`           // allowed, refused, degraded, undecided
	Latency  [2][]float64 `json:"latency"`          // ms: p50, p99; 0 where nothing was asked
	Recent   int          `json:"recent,omitempty"` // points of each policy, from the end; 0: all
	Policies []fullPolicy `json:"policies"`
	State    state        `json:"state"`
	Stores   []storeRow   `json:"stores"`
	Document document     `json:"document"`
	Top      *[]topRow    `json:"top,omitempty"`
}

type fullPolicy struct {
	About   about       `json:"about"`
	Row     row         `json:"row"`
	History [][]float64 `json:"history,omitempty"` // as Totals; an empty one is all zero
}

// tick is what changed in a second.
type tick struct {
	Now      int64          `json:"now"`
	Total    [kinds]float64 `json:"total"`
	Latency  [2]float64     `json:"latency"`
	Rows     []row          `json:"rows,omitempty"`
	About    []about        `json:"about,omitempty"`
	Gone     []int          `json:"gone,omitempty"`
	State    *state         `json:"state,omitempty"`
	Stores   []storeRow     `json:"stores,omitempty"`
	Document *document      `json:"document,omitempty"`
	Top      *[]topRow      `json:"top,omitempty"`
}

// row is what moves of a policy.
type row struct {
	ID     int                `json:"i"`
	Rates  [kinds + 1]float64 `json:"r"`           // as Totals, a second; would be refused (shadow)
	Sums   [5]uint64          `json:"s"`           // allowed, refused, degraded, would be refused (shadow), undecided
	Flight int                `json:"f"`           // in flight
	Left   []int              `json:"l,omitempty"` // percent of decisions by what is left of the quota, in tenths from none; empty: no decision
	Median int                `json:"m"`           // percent of the quota
	Over   float64            `json:"o"`           // units above the promise
	Bound  float64            `json:"b"`           // units; −1: none
	Keys   int                `json:"k"`           // measured
}

// about is what a policy is.
type about struct {
	ID        int      `json:"i"`
	Order     int      `json:"order"`
	Name      string   `json:"name"`
	Stage     string   `json:"stage,omitempty"`
	Shadow    bool     `json:"shadow,omitempty"`
	Limiter   string   `json:"limiter,omitempty"`
	Via       []string `json:"via,omitempty"` // where it was decided so far
	Limit     string   `json:"limit,omitempty"`
	Effective string   `json:"effective,omitempty"` // where it is another
	Planned   bool     `json:"planned,omitempty"`
	Why       []string `json:"why,omitempty"`
	Closed    bool     `json:"closed,omitempty"` // fails closed
	Undecided bool     `json:"undecided,omitempty"`
	FlightOf  int      `json:"flight_of,omitempty"`
	Adaptive  string   `json:"adaptive,omitempty"` // the bound or rate in force, and why
	Reasons   []string `json:"reasons,omitempty"`  // of refusals: "quota"
	Promise   string   `json:"promise"`            // what is measured, and what the bound is made of
	Since     int64    `json:"since"`              // Unix seconds: measured from then on
	Leases    string   `json:"leases,omitempty"`
}

// state is the whole in a word.
type state struct {
	Word  string   `json:"word"`  // ok, away, fixed, refused, stale, mute
	Notes []string `json:"notes"` // everything that is not as it should be
}

type storeRow struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"` // store, memory
	Breaker string  `json:"breaker,omitempty"`
	Calls   float64 `json:"calls"` // a second
	Failed  float64 `json:"failed"`
	Cause   string  `json:"cause,omitempty"` // of the last failure
	P50     float64 `json:"p50"`             // ms
	P99     float64 `json:"p99"`
	Keys    int64   `json:"keys"`
	Shared  int64   `json:"shared"` // takes on shared cells
}

type document struct {
	Source   string   `json:"source,omitempty"`
	Hash     string   `json:"hash,omitempty"`
	Loaded   int64    `json:"loaded,omitempty"`
	Changes  []string `json:"changes,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Error    string   `json:"error,omitempty"`
	Applied  int      `json:"applied"`
	Refused  int      `json:"refused"`
}

type topRow struct {
	Policy string  `json:"policy"`
	Key    string  `json:"key"`
	Count  float64 `json:"count"`
	Reason string  `json:"reason"`
	Last   int64   `json:"last"`
}
