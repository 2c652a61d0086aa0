package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/audit/auditlog"
)

// stdoutAudit selects the standard output for the audit; logs go to standard error.
const stdoutAudit = "-"

// auditCloseTimeout bounds how long the end of the process waits for the reader of the
// audit.
const auditCloseTimeout = 5 * time.Second

// vias are the paths of the records of the components.
func (o *options) vias() (vias []audit.Via) {
	for component, via := range map[string]audit.Via{
		controllerComponent: audit.Controller, webhookComponent: audit.Admission, facadeComponent: audit.Facade,
	} {
		if o.runs(component) {
			vias = append(vias, via)
		}
	}
	return vias
}

// openAudit returns the sink for a value of --audit-log, and a function that writes the rest
// of the records and closes the sink.
func openAudit(path string, vias []audit.Via) (records audit.Sink, closeAudit func() error, err error) {
	var writer io.Writer
	closeFile := func() error { return nil }
	switch path {
	case "":
	case stdoutAudit:
		writer = os.Stdout
	default:
		// Every replica needs its own file, or a file system that appends atomically.
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("--audit-log: %w", err)
		}
		writer, closeFile = file, file.Close
	}
	log, err := auditlog.New(auditlog.Options{
		Writer: writer, Registerer: metrics.Registry, Vias: vias, Logger: ctrl.Log.WithName("audit"),
	})
	if err != nil {
		return nil, nil, errors.Join(err, closeFile())
	}
	return log, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), auditCloseTimeout)
		defer cancel()
		return errors.Join(log.Close(ctx), closeFile())
	}, nil
}
