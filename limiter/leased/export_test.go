package leased

// Source is the script's.
var Source = source

const RaceEnabled = raceEnabled
