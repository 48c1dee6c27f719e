package limitertest_test

import (
	"testing"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

func newModel(*testing.T) limiter.Limiter { return limitertest.NewModel() }

func TestModel(t *testing.T) {
	limitertest.Run(t, newModel, limitertest.Exact)
}
