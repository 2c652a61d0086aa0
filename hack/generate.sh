#!/usr/bin/env bash
# Generates what follows from code, markers and config: the API's objects, roles, the chart, alerts, and pages of reference.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The role of each component has the markers of the packages that the component runs.
role() {
  local component="$1"
  shift
  go tool controller-gen "rbac:roleName=lock-operator-$component,fileName=${component}_role.yaml" output:rbac:dir=config/rbac \
    "${@/#/paths=}" paths=./cmd/lock-operator paths=./lock/audit/auditlog
}

go tool controller-gen object:headerFile=hack/boilerplate.go.txt crd output:crd:dir=config/crd/bases paths=./api/...
go tool controller-gen webhook output:webhook:dir=config/webhook paths=./webhook/...
go test -vet=off ./cli -count=1 -run='^TestReference$' -update >/dev/null
go test -vet=off ./cmd/lock-operator -count=1 -run='^TestFlagsPage$' -update >/dev/null
go test -vet=off ./lock/metric -count=1 -run='^TestTable$' -update >/dev/null
go run ./hack/observability
role facade ./facade/... ./auth ./lock/engine
role controllers ./controllers/... ./lock/engine ./facade/peers
role webhook ./webhook/... ./lock/holderref
go -C hack/chart run .
go -C hack/chart tool helm-docs --chart-search-root="$PWD/charts" --sort-values-order=file --log-level=warning
