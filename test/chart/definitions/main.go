// Command definitions prints the paths of the CRDs that optional parts of the chart need, one in a line:
// those of cert-manager, the Prometheus Operator and the Gateway API, as their Go modules have them. It runs
// in a folder of this module.
package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	// Where the definitions come from.
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)

// files are the definitions by their modules.
var files = map[string][]string{
	"github.com/cert-manager/cert-manager": {
		"deploy/crds/cert-manager.io_certificates.yaml",
		"deploy/crds/cert-manager.io_issuers.yaml",
	},
	"github.com/prometheus-operator/prometheus-operator": {
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	},
	"sigs.k8s.io/gateway-api": {
		"config/crd/standard/gateway.networking.k8s.io_backendtlspolicies.yaml",
		"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
	},
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "definitions:", err)
		os.Exit(1)
	}
}

func run(to io.Writer) error {
	for _, module := range slices.Sorted(maps.Keys(files)) {
		folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return fmt.Errorf("find module %s: %w", module, err)
		}
		for _, file := range files[module] {
			path := filepath.Join(strings.TrimSpace(string(folder)), file)
			if _, err := os.Stat(path); err != nil {
				return errors.Join(errors.New("the module has another layout"), err)
			}
			if _, err := fmt.Fprintln(to, path); err != nil {
				return err
			}
		}
	}
	return nil
}
