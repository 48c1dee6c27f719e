package middleware

// States is how many policies a guard remembers.
func (g *Guard) States() int {
	g.states.mu.Lock()
	defer g.states.mu.Unlock()
	return len(g.states.m)
}

// TakeTraits makes the guard find out everything policy by policy, and reports whether that is another way than before.
func TakeTraits(g *Guard) (short bool) {
	s := g.core.snapshot.Load()
	for _, st := range s.stages {
		short = short || st.simple
		st.traits = traits{bounded: true, settles: true}
	}
	for _, p := range s.policies {
		p.plain = false
	}
	return short
}
