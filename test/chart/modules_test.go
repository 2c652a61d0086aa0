package chart_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	// Where the definitions of optional objects come from.
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
	_ "sigs.k8s.io/gateway-api/apis/v1"
)

// foreignDefinitions are the files of the definitions that optional parts of the chart need, by their modules.
var foreignDefinitions = map[string][]string{
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

// definitionFiles returns the paths of [foreignDefinitions] in the module cache.
func definitionFiles(ctx context.Context) ([]string, error) {
	var paths []string
	for module, files := range foreignDefinitions {
		folder, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s: %w", module, err)
		}
		for _, file := range files {
			paths = append(paths, filepath.Join(strings.TrimSpace(string(folder)), file))
		}
	}
	return paths, nil
}
