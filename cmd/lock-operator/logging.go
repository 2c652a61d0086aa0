package main

import (
	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// maxVerbosity is the highest verbosity that is logged, whatever the flags say. From 6 on client-go logs
// requests, from 7 on headers and the bodies of some, and from 8 on all bodies: those of reviews have the
// bearer tokens of callers, and those of locks owner tokens.
const maxVerbosity = 5

// boundedLevel is a level that enables no verbosity above [maxVerbosity].
type boundedLevel struct{ zapcore.LevelEnabler }

// Enabled implements [zapcore.LevelEnabler]. Zap counts verbosities downwards.
func (l boundedLevel) Enabled(level zapcore.Level) bool {
	return level >= -maxVerbosity && l.LevelEnabler.Enabled(level)
}

// newLogger returns the logger of the process.
func newLogger(options *zap.Options) logr.Logger {
	bounded := *options
	if bounded.Level != nil { // The defaults are below.
		bounded.Level = boundedLevel{bounded.Level}
	}
	return zap.New(zap.UseFlagOptions(&bounded))
}

// setLoggers has controller-runtime and client-go, which logs through klog, use the logger.
func setLoggers(logger logr.Logger) {
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}
