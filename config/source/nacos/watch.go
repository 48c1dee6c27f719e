package nacossource

import (
	"context"
	"fmt"
	"time"
)

const (
	// beat is how often the server is asked whether it is there. It drops whoever it has not heard of for 20 s.
	beat = 5 * time.Second
	// renewal is how often one listens anew.
	renewal = 5 * time.Minute
)

// Watch calls changed when a server notifies of a change, and once as soon as it listens. It is lost with the connection:
// where Watch is called again it begins with the server it had, and goes on to the next one if that is gone.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	var c *connection
	err := s.each(ctx, func(srv server) error {
		conn, err := s.connect(ctx, srv)
		if err != nil {
			return err
		}
		if err := conn.listen(ctx); err != nil {
			conn.close()
			return err
		}
		c = conn
		return nil
	})
	if err != nil {
		return s.fault(ctx, err)
	}
	defer c.close()
	changed()
	return s.fault(ctx, c.follow(ctx, changed))
}

// follow calls changed until the connection is lost.
func (c *connection) follow(ctx context.Context, changed func()) error {
	alive, anew := time.NewTicker(beat), time.NewTicker(renewal)
	defer alive.Stop()
	defer anew.Stop()
	lost := func(err error) error { return fmt.Errorf("%s: %w", c.server.grpc, err) }
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return lost(c.err)
		case <-c.told:
			changed()
		case <-alive.C:
			if err := c.isThere(ctx); err != nil {
				return lost(err)
			}
		case <-anew.C:
			if err := c.listen(ctx); err != nil {
				return lost(err)
			}
			changed()
		}
	}
}

// listen has the server notify of changes. The sum of the document, by which it could tell at once whether there has
// been one, is left out: whoever follows loads anyhow.
func (c *connection) listen(ctx context.Context) error {
	ctx, cancel := c.source.within(ctx)
	defer cancel()
	type listened struct {
		Group  string `json:"group"`
		MD5    string `json:"md5"`
		DataID string `json:"dataId"`
		Tenant string `json:"tenant"`
	}
	s := c.source
	return c.call(ctx, "ConfigBatchListenRequest", struct {
		Module   string     `json:"module"`
		Listen   bool       `json:"listen"`
		Contexts []listened `json:"configListenContexts"`
	}{"config", true, []listened{{Group: s.group, DataID: s.dataID, Tenant: s.namespace}}}, nil)
}

// isThere asks the server whether it knows the connection.
func (c *connection) isThere(ctx context.Context) error {
	ctx, cancel := c.source.within(ctx)
	defer cancel()
	return c.callOnce(ctx, "HealthCheckRequest", internal{Module: "internal"}, nil)
}
