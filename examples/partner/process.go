package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9/logging"

	"github.com/spillway-go/spillway/internal/child"
)

// What the processes are told in their environment.
const (
	roleVar     = "PARTNER_ROLE"
	redisVar    = "PARTNER_REDIS_URL"
	providerVar = "PARTNER_PROVIDER_URL"
	messagesVar = "PARTNER_MESSAGES"

	roleRedis  = "redis"
	roleSender = "sender"
	roleNaive  = "naive"
)

// begin starts a process that plays a role and returns when it is ready.
func begin(ctx context.Context, role string, env ...string) (*child.Process, error) {
	return child.Start(ctx, append(env, roleVar+"="+role))
}

// work lets a sender begin, and returns how many messages it could not deliver; −1: it has not said.
func work(p *child.Process) int {
	p.Tell("go")
	said, _ := p.Next()
	n, err := strconv.Atoi(said)
	if err != nil {
		return -1
	}
	return n
}

// play is the life of a process that the parent has started.
func play(role string) error {
	child.IgnoreInterrupt()
	logging.Disable()
	switch role {
	case roleRedis:
		ctx, cancel := child.Lives(context.Background())
		defer cancel()
		return child.Redis(ctx, "")
	case roleSender, roleNaive:
		return send(context.Background(), role == roleNaive)
	}
	return fmt.Errorf("no role %q", role)
}
