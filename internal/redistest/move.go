package redistest

import "context"

// Move is a slot on its way from one master to another.
type Move struct {
	c        *Cluster
	slot     int
	from, to *Server
}

// MoveSlot moves a slot and its keys to another master, as redis-cli --cluster reshard does.
func (c *Cluster) MoveSlot(slot int, to *Server) {
	c.t.Helper()
	c.BeginMove(slot, to).Finish()
}

// BeginMove begins to move a slot. From now on the old master still answers for the keys that it has, and sends clients
// to the new one for all others, with ASK.
func (c *Cluster) BeginMove(slot int, to *Server) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: slot, from: c.owner(slot), to: to}
	if m.from == to {
		c.t.Fatalf("redistest: %s has slot %d already", to.Addr(), slot)
	}
	m.set(to, "IMPORTING", m.id(m.from))
	m.set(m.from, "MIGRATING", m.id(to))
	return m
}

// Keys moves the keys of the slot. From now on the old master sends clients to the new one for every key, with ASK.
func (m *Move) Keys() {
	m.c.t.Helper()
	ctx := context.Background()
	for {
		keys, err := m.from.admin.ClusterGetKeysInSlot(ctx, m.slot, 100).Result()
		if err != nil {
			m.c.t.Fatalf("redistest: %v", err)
		}
		if len(keys) == 0 {
			return
		}
		args := []any{"MIGRATE", "127.0.0.1", m.to.Port(), "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := m.from.admin.Do(ctx, args...).Err(); err != nil {
			m.c.t.Fatalf("redistest: MIGRATE: %v", err)
		}
	}
}

// Finish moves the keys that are left and gives the slot to the new master. It returns when all nodes know that; the old
// master answers with MOVED.
func (m *Move) Finish() {
	m.c.t.Helper()
	m.Keys()
	m.set(m.to, "NODE", m.id(m.to)) // first: if it ended here, the slot would still have a master
	m.set(m.from, "NODE", m.id(m.to))
	m.c.Wait()
}

// set changes the slot on a node. The others are told by the new master.
func (m *Move) set(on *Server, state, id string) {
	m.c.t.Helper()
	if err := on.admin.Do(context.Background(), "CLUSTER", "SETSLOT", m.slot, state, id).Err(); err != nil {
		m.c.t.Fatalf("redistest: SETSLOT %d %s: %v", m.slot, state, err)
	}
}

func (m *Move) id(of *Server) string {
	for id, s := range m.c.ids {
		if s == of {
			return id
		}
	}
	m.c.t.Fatalf("redistest: %s is no node of this cluster", of.Addr())
	return ""
}
