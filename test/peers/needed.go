//go:build peers

package peers

// What the suites import, and what go.mod therefore needs.
import (
	_ "github.com/bsm/redislock"
	_ "github.com/stretchr/testify/assert"
	_ "go.etcd.io/etcd/client/v3/experimental/recipes"
	_ "go.etcd.io/etcd/tests/v3/framework/integration"
)
