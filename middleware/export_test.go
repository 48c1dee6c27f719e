package middleware

// States is how many policies a guard remembers.
func (g *Guard) States() int {
	g.states.mu.Lock()
	defer g.states.mu.Unlock()
	return len(g.states.m)
}
