package client

// InFlight returns how many places in flight are taken.
func (t *Transport) InFlight() (n int) {
	t.each(func(l *lane) { n += l.flying + int(l.underWay) })
	return n
}

// Waiting returns how many requests are in lines, or have a turn.
func (t *Transport) Waiting() (n int) {
	t.each(func(l *lane) {
		n += len(l.waiting) + l.users
		if l.taken {
			n++
		}
	})
	return n
}

func (t *Transport) each(f func(*lane)) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	all := []*lane{}
	for e := t.lanes.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*lane))
	}
	if t.lanes.rest != nil {
		all = append(all, t.lanes.rest)
	}
	for _, l := range all {
		l.mu.Lock()
		f(l)
		l.mu.Unlock()
	}
}

// Protocols returns how many endpoints are remembered by what they speak.
func (t *Transport) Protocols() int {
	t.spoken.mu.Lock()
	defer t.spoken.mu.Unlock()
	return len(t.spoken.young) + len(t.spoken.old)
}
