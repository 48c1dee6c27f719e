package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9/logging"

	"github.com/spillway-go/spillway/internal/child"
)

// What the processes are told in their environment.
const (
	roleVar    = "WORKER_ROLE"
	redisVar   = "WORKER_REDIS_URL"
	serviceVar = "WORKER_SERVICE_URL"
	nameVar    = "WORKER_NAME"

	roleRedis  = "redis"
	roleWorker = "worker"
)

// begin starts a process that plays a role and returns when it is ready.
func begin(ctx context.Context, role string, env ...string) (*child.Process, error) {
	return child.Start(ctx, append(env, roleVar+"="+role))
}

// work lets a worker begin, and returns when the queue is empty.
func work(p *child.Process) {
	p.Tell("go")
	_, _ = p.Next()
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
	case roleWorker:
		return drain(context.Background())
	}
	return fmt.Errorf("no role %q", role)
}
