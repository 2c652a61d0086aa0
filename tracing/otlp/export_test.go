package otlp

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// NewLossLog returns what logs lost spans.
func NewLossLog(clock clock.PassiveClock, logger logr.Logger) func(spans int, err error) {
	return (&lossLog{clock: clock, logger: logger}).record
}
