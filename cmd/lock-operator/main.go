// Command lock-operator runs the controllers, the admission webhook and the
// façade of the lock service, or some of them. "lock-operator try" and "lock-operator check-released"
// look at an installation instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"forrst.dev/lock-operator/tracing/otlp"
)

func main() {
	isCommand, err := runCommand(os.Args[1:])
	if !isCommand {
		var settings options
		var logging zap.Options
		settings.bindFlags(flag.CommandLine)
		logging.BindFlags(flag.CommandLine)
		flag.Parse()
		setLoggers(newLogger(&logging))
		limitMemory(memlimit.FromCgroup, ctrl.Log.WithName("memory"))
		err = run(settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lock-operator:", err)
		os.Exit(1)
	}
}

func run(settings options) error {
	if err := settings.validate(flag.Args()); err != nil {
		return err
	}
	if err := checkConnectionsOften(); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	records, closeAudit, err := openAudit(settings.auditLog, settings.vias())
	if err != nil {
		return err
	}
	settings.audit = records
	ctx := ctrl.SetupSignalHandler()
	traces := otlp.Start(ctx, otlp.Options{Version: version(), TellsAPIServer: settings.tracesAPIServer, Logger: ctrl.Log.WithName("traces")})
	settings.tracer = traces.Tracer()
	manager, err := newManager(ctx, config, settings)
	if err == nil {
		err = manager.Start(settings.untilDrained(ctx, manager))
	}
	// The last calls have ended.
	traces.Stop(context.WithoutCancel(ctx))
	// Last: the end of the manager may write records, too.
	return errors.Join(err, closeAudit())
}
