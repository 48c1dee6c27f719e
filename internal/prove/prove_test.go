package prove_test

import (
	"testing"
)

func TestFaults(t *testing.T) {
	var results []result
	k := 0
	for _, f := range faults {
		for _, mode := range modes {
			one := []string{adapters[k%len(adapters)], adapters[k%len(adapters)]}
			k++
			t.Run(f.name+"/"+mode, func(t *testing.T) {
				c := &cell{t: t, fault: f, mode: mode, adapters: one}
				results = append(results, c.run())
				r := results[len(results)-1]
				t.Logf("%s; longest %v; back after %v; wrong %d", told(r.statuses), r.longest, r.back, r.wrong)
			})
		}
	}
}
