# What "make help" shows are the lines with two hashes. Everything needs only Go
# and what go.mod and the go.mod files in hack/ and test/ pin; only the test with a
# browser and what observes the operator take programs from Debian, and only what
# builds or checks the page takes npm.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# The folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
# What envtest installs lacks the third and fourth; bin/k8s then has links to the others. Each version that K8S
# chooses has a folder of its own.
BUILT = bin/k8s$(addprefix -,$(K8S))
ASSETS = $(if $(wildcard $(KUBEBUILDER_ASSETS)/kube-controller-manager),$(KUBEBUILDER_ASSETS),$(BUILT))

# The race detector needs cgo, which Go turns off where there is no C compiler.
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
RACE_FLAGS = $(if $(RACE),$(RACE) -exec "'$(CURDIR)/hack/test-exec.sh'")
TEST_TIMEOUT ?= 15m
TESTFLAGS ?=
CHROMIUM ?= bin/chromium/headless-shell
PROMETHEUS ?= bin/prometheus/usr/bin/prometheus

# Programs that are run and not debugged. The control plane is built with the same flags
# and shares what is compiled of Go's library. A compiler that collects garbage less
# often takes a tenth less time.
GO_BUILD = CGO_ENABLED=0 GOGC=$${GOGC:-400} go build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w"

# Tests run in the folders of their packages, so they need an absolute path.
GO_TEST_WITHOUT_RACE = assets="$$(cd "$(ASSETS)" && pwd)" && KUBEBUILDER_ASSETS="$$assets" go test -timeout $(TEST_TIMEOUT) $(TESTFLAGS)
GO_TEST = $(GO_TEST_WITHOUT_RACE) $(RACE_FLAGS)

# Every module, and every tree that "generate" writes to.
MODULES := . hack/chart hack/controlplane hack/etcdtools hack/krew hack/kwok hack/supplychain hack/tools test/bench test/browser test/chart test/gitops/argocd test/gitops/health test/gitops/kustomizecontroller test/observability test/peers
GENERATED := api config charts docs/alerts.md docs/cli-reference.md docs/metrics.md

##@ Help

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^##= / { printf "  %s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ Development cluster

# NODES=1 adds a node that kwok simulates.
NODES ?= 0
KWOK = $(if $(filter-out 0,$(NODES)),bin/kwok)

.PHONY: run
run: build control-plane $(KWOK) ## Run a cluster with the operator and its façade until Ctrl-C.
# With exec there is no shell between make and the cluster, so that a SIGTERM that
# make passes on arrives.
	@exec env KUBEBUILDER_ASSETS="$(ASSETS)" NODES="$(NODES)" bin/devcluster run

.PHONY: dev-up
dev-up: build control-plane $(KWOK) ## Do the same in the background.
	@exec env KUBEBUILDER_ASSETS="$(ASSETS)" NODES="$(NODES)" bin/devcluster up

.PHONY: dev-down
dev-down: bin/devcluster ## Stop the cluster, however it was started.
	@exec bin/devcluster down

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver and the like (minutes the first time).
	@cd hack/controlplane && $(GO_BUILD) -o "$(CURDIR)/bin/build-control-plane" .
	@exec bin/build-control-plane -kubernetes="$(K8S)" -out="$(BUILT)"

##@ Build

.PHONY: build
build: ## Build the operator, kubectl-lock and the development cluster.
# The go command downloads as many modules at a time as it may use processors.
	@GOMAXPROCS=16 go list -deps ./cmd/... ./hack/devcluster >/dev/null
	$(GO_BUILD) -o bin/ ./cmd/... ./hack/devcluster
# Under this name, it completes the arguments of "kubectl lock".
	@ln -sf kubectl-lock bin/kubectl_complete-lock

.PHONY: page
page: web/node_modules ## Build the page at /ui/ from web/ into facade/ui (Debian's npm).
	cd web && npm run --silent check && npm run --silent build

web/node_modules: web/package-lock.json
	@hack/debian.sh nodejs:node npm
	cd web && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

# Those that krew knows and most people have.
CLI_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

.PHONY: cli-binaries
cli-binaries: ## Build kubectl-lock for all platforms into bin/cli (minutes the first time).
	@set -e; for platform in $(CLI_PLATFORMS); do \
	  export GOOS="$${platform%/*}" GOARCH="$${platform#*/}"; suffix=; [ "$$GOOS" != windows ] || suffix=.exe; \
	  echo "Building kubectl-lock for $$platform"; \
	  $(subst -s -w,-s -w $(if $(VERSION),-X main.linkedVersion=$(VERSION)),$(GO_BUILD)) -o "bin/cli/kubectl-lock-$$GOOS-$$GOARCH$$suffix" ./cmd/kubectl-lock; \
	done

.PHONY: image
image: ## Build the images for linux/amd64 and linux/arm64 into bin/image (root, and Debian's buildah).
	@hack/debian.sh buildah busybox-static:busybox
	@hack/image.sh bin/image

# The version and the address are those of a release.
.PHONY: krew
krew: cli-binaries ## Pack those binaries and write the manifest for krew, into bin/krew.
	@go -C hack/krew run . -binaries "$(CURDIR)/bin/cli" -out "$(CURDIR)/bin/krew" \
	  -version "$${VERSION:-v0.0.0}" -url "https://forrst.dev/lock-operator/releases/$${VERSION:-v0.0.0}"

.PHONY: bundle
bundle: ## Render config/ and its overlays for kubectl into dist, with the image of IMAGE.
	@go -C hack/chart run . -bundles "$(CURDIR)/dist" -image "$(IMAGE)"

.PHONY: release
release: ## Make all that a release has into dist, as in make release VERSION=v0.1.0 IMAGE=registry.example.com/lock-operator (minutes).
	@VERSION="$(VERSION)" IMAGE="$(IMAGE)" hack/release.sh dist

# The images are for one platform, since each takes minutes.
.PHONY: release-test
release-test: bin/helm ## Make a release twice, in two clones, and compare.
	@set -e; folder="$$(mktemp -d)"; trap 'rm -rf "$$folder"' EXIT; \
	for copy in one two; do \
	  git clone --quiet --local . "$$folder/$$copy" && mkdir "$$folder/$$copy/bin" && cp bin/helm "$$folder/$$copy/bin/"; \
	  $(MAKE) --no-print-directory -C "$$folder/$$copy" release VERSION=v0.0.1 IMAGE=registry.example.com/lock-operator PLATFORMS=linux/amd64; \
	done; \
	diff "$$folder/one/dist/checksums.txt" "$$folder/two/dist/checksums.txt"; \
	cd "$$folder/one/dist" && sha256sum --check --quiet checksums.txt && ls -l

.PHONY: generate
generate: ## Generate what follows from code, markers and config: the API's objects, roles, the chart, alerts, and pages of reference.
	go tool controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...
	go tool controller-gen crd webhook paths=./... output:crd:dir=config/crd/bases output:webhook:dir=config/webhook
	go test ./cli -count=1 -run='^TestReference$$' -update >/dev/null
	go test ./lock/metric -count=1 -run='^TestTable$$' -update >/dev/null
	go run ./hack/observability
# The role of each component has the markers of the packages that the component runs.
	$(call role,facade,./facade/... ./auth ./lock/engine)
	$(call role,controllers,./controllers/... ./lock/engine ./facade/peers)
	$(call role,webhook,./webhook/... ./lock/holderref)
	@go -C hack/chart run .
	@go -C hack/chart tool helm-docs --chart-search-root="$(CURDIR)/charts" --sort-values-order=file --log-level=warning

# $(call role,component,packages)
role = go tool controller-gen rbac:roleName=lock-operator-$(1),fileName=$(1)_role.yaml output:rbac:dir=config/rbac \
	  $(addprefix paths=,$(2) ./cmd/lock-operator ./lock/audit/auditlog)

.PHONY: fmt
fmt: bin/golangci-lint ## Format the code and sort its imports.
	bin/golangci-lint fmt

.PHONY: clean
clean: ## Stop the cluster and delete what was built; Go's build cache stays.
	@if [ -x bin/devcluster ]; then bin/devcluster down; fi
	rm -rf bin .dev

##@ Test

.PHONY: test
test: control-plane bin/kwok bin/helm bin/kustomize-controller ## Run all tests, with the race detector.
	@if [ -z "$(RACE)" ]; then echo "No C compiler: the tests run without the race detector"; fi
# Most suites wait more than they compute. The longest one starts first. None is cached: they build and render what Go's
# test cache does not know of.
	$(GO_TEST) -count=1 -p=3 ./test/jobs $$(go list ./... | grep -v -e /cli/supervise -e /test/audit -e /test/auth -e /test/cli/scale -e /test/e2e -e /test/image -e /test/installation -e /test/line -e /test/robustness -e /test/run$$)
# Alone, because they measure times or use up the machine.
	$(GO_TEST) -count=1 -p=1 ./cli/supervise ./test/cli/scale ./test/run ./test/audit ./test/auth ./test/e2e/... ./test/line ./test/robustness/...
# The race detector makes allocations of its own.
	go test -count=1 -run='^Test(Allocations|Chaos|Memory|TheDefaultsFit)' ./lock/line ./facade/forrst ./facade/rest ./cmd/lock-operator ./webhook
	go test -C hack/controlplane ./...
	go test -C hack/krew ./...
# It reads a file that is not of its module, so its results cannot be cached.
	go test -C hack/supplychain -count=1 ./...
	go test -C test/bench ./...
	go test -C test/gitops/health ./...
	@$(MAKE) --no-print-directory browser-test

# The check of the page's accessibility comes from the registry of npm. Without npm it is left out; in CI that is a
# failure.
AXE = $(if $(or $(CI),$(shell command -v npm)),web/node_modules)

.PHONY: browser-test
browser-test: control-plane $(CHROMIUM) $(AXE) ## Run the tests of the page and of the REST door's events with a browser.
	assets="$$(cd "$(ASSETS)" && pwd)" && KUBEBUILDER_ASSETS="$$assets" CHROMIUM="$(abspath $(CHROMIUM))" go test -C test/browser -count=1 ./...

.PHONY: page-pictures
page-pictures: $(CHROMIUM) ## Draw the pictures of docs/page.md.
	SCREENSHOTS="$(CURDIR)/docs/images" CHROMIUM="$(abspath $(CHROMIUM))" go test -C test/browser -count=1 -run='^TestPictures$$' ./ui

.PHONY: chart-test
chart-test: control-plane bin/helm ## Check the Helm chart, hold it against config/, and install it with Helm.
	bin/helm lint --strict charts/lock-operator
	assets="$$(cd "$(ASSETS)" && pwd)" && KUBEBUILDER_ASSETS="$$assets" go test -C test/chart -count=1 $(TESTFLAGS) ./...

.PHONY: peers-test
peers-test: control-plane ## Run the test suites of other lock libraries over adapters, on each backend (minutes the first time).
	assets="$$(cd "$(ASSETS)" && pwd)" && KUBEBUILDER_ASSETS="$$assets" go test -C test/peers -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) .

# Debian keeps only the latest version, so there is none to pin.
bin/chromium/headless-shell: hack/chromium.sh hack/unpack.sh
	@echo "Unpacking Chromium"
	@hack/chromium.sh bin/chromium

.PHONY: observe-test
observe-test: control-plane build $(PROMETHEUS) ## Test alerts, dashboard and the rest of what observes the operator with a Prometheus.
	assets="$$(cd "$(ASSETS)" && pwd)" && KUBEBUILDER_ASSETS="$$assets" PROMETHEUS="$(abspath $(PROMETHEUS))" go test -C test/observability -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...

# They differ each time, as the times that they show.
.PHONY: observe-plots
observe-plots: ## Draw the panels in docs/observability.md anew, of two minutes of load.
	@$(MAKE) --no-print-directory observe-test PLOTS="$(CURDIR)/docs/images/observability" TESTFLAGS=-run=OnACluster

.PHONY: prometheus
prometheus: $(PROMETHEUS) ## Unpack Debian's Prometheus, which OBSERVE=1 starts.

bin/prometheus/usr/bin/prometheus: hack/unpack.sh
	@echo "Unpacking Prometheus"
	@hack/unpack.sh bin/prometheus prometheus
	@touch $@

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane.
	@packages="$$(go list -test -f '{{.ImportPath}} {{.Deps}}' ./... | \
	  awk '$$1 ~ /\.test$$/ && !/sigs.k8s.io\/controller-runtime\/pkg\/envtest/ { sub(/\.test$$/, "", $$1); print $$1 }')" && \
	go test $(RACE_FLAGS) -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $$packages

.PHONY: test-one
test-one: control-plane ## Run one spec or test, as in make test-one PKG=./test/jobs FOCUS="takes no label away".
	@if [ -z "$$PKG" ] || [ -z "$$FOCUS" ]; then \
	  echo 'test-one: say what to run, as in make test-one PKG=./test/jobs FOCUS="takes no label away"' >&2; exit 1; \
	fi; \
	flag=-run; if grep -qs 'RunSpecs(' "$$PKG"/*_test.go; then flag=-ginkgo.focus; fi; \
	$(GO_TEST) -count=1 -v "$$PKG" "$$flag=$$FOCUS"

.PHONY: test-elsewhere
test-elsewhere: control-plane bin/kwok ## Run the end-to-end tests and those of Jobs with the operator in another namespace, under another name.
	export OPERATOR_NAMESPACE=platform-locks OPERATOR_NAME_PREFIX=team- && $(GO_TEST) -count=1 -p=1 ./test/e2e ./test/jobs

.PHONY: test-e2e
test-e2e: control-plane bin/kwok ## Run the end-to-end tests only.
	$(GO_TEST) -count=1 ./test/e2e/...

.PHONY: screenshots
screenshots: control-plane ## Draw the pictures of README.
	@SCREENSHOTS=1 && export SCREENSHOTS && $(GO_TEST) -count=1 ./test/e2e -ginkgo.focus="pictures of README"

.PHONY: upgrade-test
upgrade-test: control-plane ## Upgrade an installation of an earlier revision to this tree and back, under load; a part of "make test".
	$(GO_TEST) -count=1 ./test/upgrade

.PHONY: image-test
image-test: image control-plane ## Look at the images, build them again, and run one (root, and Debian's podman and runc).
	@hack/debian.sh podman runc
	$(GO_TEST_WITHOUT_RACE) -count=1 ./test/image

# The test has a network of its own, in which no address is taken, and which ends with it.
.PHONY: install-test
install-test: build image control-plane bin/kwok bin/helm ## Install the chart with Helm, run its pods in containers, and test that (root, podman, runc, iproute2).
	@hack/debian.sh podman runc iproute2:ip
	go test -c -o bin/test/ ./test/e2e ./test/installation
	@go -C test/chart run ./definitions >bin/test/definitions
	@assets="$$(cd "$(ASSETS)" && pwd)" && cd test/installation && KUBEBUILDER_ASSETS="$$assets" exec unshare --net --mount -- sh -c ' \
	  ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec ../../bin/test/installation.test -test.v -test.timeout=$(TEST_TIMEOUT)'

.PHONY: line-test
line-test: control-plane ## Measure the lines that replicas share: 70 kills, 10,000 waiters, 1,000 in a rolling restart (minutes).
	LINE_KILLS=50 LINE_HOME_KILLS=20 LINE_CROWD=10000 LINE_ROLLED=1000 && export LINE_KILLS LINE_HOME_KILLS LINE_CROWD LINE_ROLLED && $(GO_TEST_WITHOUT_RACE) -count=1 -timeout=40m -v ./test/line -ginkgo.v

.PHONY: robustness
robustness: control-plane ## Break things under running clients for two minutes, and two more with shared lines, and check what they saw.
	@DURATION="$${DURATION:-2m}" && export DURATION && $(GO_TEST) -count=1 -timeout=0 -v -run='^TestRobustness(OfSharedLines)?$$' ./test/robustness

.PHONY: soak
soak: control-plane ## Do the same until so many operations, and add what was found to a report.
# Without the race detector, and with the code's revision in the report.
	@SOAK=1 && OPERATIONS="$${OPERATIONS:-1000000}" && REPORT="$${REPORT:-$(CURDIR)/bin/soak}" && mkdir -p "$$REPORT" && REPORT="$$(cd "$$REPORT" && pwd)" && \
	REVISION="$$(git rev-parse --short HEAD 2>/dev/null || true)" && export SOAK OPERATIONS REPORT REVISION && \
	$(GO_TEST_WITHOUT_RACE) -count=1 -timeout=0 -v -run='^TestSoak$$' ./test/robustness

.PHONY: robustness-breakages
robustness-breakages: control-plane ## Break the code in several ways, and make sure that such a run, or a test, finds each.
	@BREAKAGES=1 && export BREAKAGES && $(GO_TEST) -count=1 -timeout=0 -v -run='^TestBreakages$$' ./test/robustness

AGAINST_TREE = $(CURDIR)/bin/against/$(AGAINST)
BENCH = env KUBEBUILDER_ASSETS="$(ASSETS)" bin/bench $(if $(AGAINST),-against="$(AGAINST_TREE)")
LOCKS ?= 100000
SUITE ?= speed

.PHONY: bench
bench: bin/bench bench-against ## Measure against what locks are built on and against peers; fail on a figure out of bounds.
	@exec $(BENCH) $(BENCHFLAGS)

.PHONY: bench-report
bench-report: bin/bench bench-against ## Do the same, or what SUITE=scale says, and write tables and plots into docs/performance.md.
	@exec $(BENCH) -suite=$(SUITE) -live-locks=$(LOCKS) -report=docs/performance.md -revision="$$(git describe --always --dirty)" $(BENCHFLAGS)

.PHONY: bench-scale
bench-scale: bin/bench ## Measure with 100,000 live locks, or as many as LOCKS says.
	@exec $(BENCH) -suite=scale -live-locks=$(LOCKS) $(BENCHFLAGS)

# The commit of AGAINST in a folder of its own, built.
.PHONY: bench-against
bench-against:
	@if test -n "$(AGAINST)" && ! test -x "$(AGAINST_TREE)/bin/lock-operator"; then \
	  mkdir -p "$(AGAINST_TREE)" && git archive "$(AGAINST)" | tar -x -C "$(AGAINST_TREE)" && $(MAKE) --no-print-directory -C "$(AGAINST_TREE)" build; \
	fi

# Go finds out by itself whether there is something to build.
.PHONY: bin/bench
bin/bench: build control-plane
	@cd test/bench && $(GO_BUILD) -o "$(CURDIR)/$@" .

.PHONY: nightly
nightly: ## Run what takes longer than ten minutes, all night, and print a table of the results, which bin/nightly keeps.
	@NIGHTLY="$(NIGHTLY)" hack/nightly.sh bin/nightly

##@ Check

.PHONY: verify
verify: verify-generated verify-page verify-modules verify-platforms licenses ## Fail if generated files, the page or go.mod files are out of date, a platform of kubectl-lock does not compile, or a licence is not allowed.

.PHONY: verify-generated
verify-generated:
# A comparison with what was there before, unlike one with the last commit, also
# works among changes that are not committed yet.
	@changed=; before="$$(mktemp -d)" && trap 'rm -rf "$$before"' EXIT && \
	cp -R $(GENERATED) "$$before" && \
	$(MAKE) --no-print-directory generate && \
	for tree in $(GENERATED); do \
	  git --no-pager diff --no-index --exit-code "$$before/$${tree##*/}" "$$tree" || changed="$$changed $$tree"; \
	done && \
	if [ -n "$$changed" ]; then \
	  echo "verify: generated files were out of date in:$$changed; they are up to date now, commit them" >&2; exit 1; \
	fi

# The page is checked in, so that only who changes it needs npm.
.PHONY: verify-page
verify-page: web/node_modules
	@built="$$(mktemp -d)" && trap 'rm -rf "$$built"' EXIT && cd web && npm run --silent check && OUT="$$built" npm run --silent build && \
	if ! diff -rq "$$built" ../facade/ui/assets; then echo 'verify: facade/ui/assets is not what web/ makes; run "make page"' >&2; exit 1; fi

.PHONY: verify-modules
verify-modules:
	@outdated=; for module in $(MODULES); do \
	  go mod tidy -C "$$module" -diff || outdated="$$outdated $$module"; \
	done; \
	if [ -n "$$outdated" ]; then \
	  echo "verify: run \"go mod tidy\" in:$$outdated" >&2; exit 1; \
	fi

.PHONY: verify-platforms
verify-platforms:
	@set -e; for platform in $(CLI_PLATFORMS); do \
	  go -C hack/krew run ./typecheck -C "$(CURDIR)" -platform "$$platform" ./cli/... ./cmd/kubectl-lock; \
	done

.PHONY: licenses
licenses: build ## Fail unless all modules of the operator and kubectl-lock have licences that are allowed.
	@go -C hack/supplychain run . -module "$(CURDIR)" -page "$(CURDIR)/web" "$(CURDIR)/bin/lock-operator"
	@go -C hack/supplychain run . -module "$(CURDIR)" "$(CURDIR)/bin/kubectl-lock"

.PHONY: sbom
sbom: build ## Write the bill of materials of the operator's binary to bin/lock-operator.cdx.json.
	@go -C hack/supplychain run . -module "$(CURDIR)" -page "$(CURDIR)/web" -sbom "$(CURDIR)/bin/lock-operator.cdx.json" "$(CURDIR)/bin/lock-operator"

.PHONY: vuln
vuln: ## Look for known vulnerabilities in the code that is called; needs vuln.go.dev, or a copy of it in VULNDB.
	go -C hack/supplychain tool govulncheck -C "$(CURDIR)" $(if $(VULNDB),-db "file://$(abspath $(VULNDB))") ./...

.PHONY: vet
vet: ## Run go vet.
	go vet ./...
	go vet -C hack/chart ./...
	go vet -C hack/controlplane ./...
	go vet -C hack/krew ./...
	go vet -C hack/supplychain ./...
	go vet -C test/bench ./...
	go vet -C test/browser ./...
	go vet -C test/chart ./...
	go vet -C test/gitops/argocd ./...
	go vet -C test/gitops/health ./...
	go vet -C test/observability ./...
	go vet -C test/peers ./...

.PHONY: lint
lint: lint-packages lint-openapi bin/golangci-lint ## Run golangci-lint, find packages of more than 25 files, and lint the OpenAPI document.
	bin/golangci-lint run
	cd hack/chart && ../../bin/golangci-lint run
	cd hack/controlplane && ../../bin/golangci-lint run
	cd hack/krew && ../../bin/golangci-lint run
	cd hack/supplychain && ../../bin/golangci-lint run
	cd test/bench && ../../bin/golangci-lint run
	cd test/browser && ../../bin/golangci-lint run
	cd test/chart && ../../bin/golangci-lint run
	cd test/gitops/argocd && ../../../bin/golangci-lint run
	cd test/gitops/health && ../../../bin/golangci-lint run
	cd test/observability && ../../bin/golangci-lint run
	cd test/peers && ../../bin/golangci-lint run

# Tests and generated files are not counted.
.PHONY: lint-packages
lint-packages:
	@go list -f '{{$$package := .ImportPath}}{{range .GoFiles}}{{$$package}} {{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$$package}} {{.}}{{"\n"}}{{end}}' ./... | \
	awk -v most=25 'NF && !/_test\.go$$|zz_generated/ { files[$$1]++ } \
	  END { for (package in files) if (files[package] > most) { failed = 1; \
	    printf "lint: package %s has %d hand-written files without its tests; split it, %d are allowed\n", package, files[package], most } \
	    exit failed }' >&2

# The linter is a program for Node.js. Where there is none, the tests alone check the document.
.PHONY: lint-openapi
lint-openapi:
	@if command -v npx >/dev/null; then \
	  REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --yes @redocly/cli@2.77.0 lint facade/rest/openapi.yaml; \
	else echo "lint: no npx, so facade/rest/openapi.yaml is not linted"; fi

##@ Variables
##= AGAINST             a commit that "make bench" and "make bench-report" compare with, as in AGAINST=1585f14 (none)
##= AUTH                how the façade of the development cluster authenticates its callers: none or token (none)
##= BENCHFLAGS          flags for the benchmarks, as in BENCHFLAGS="-quick -only=hot"
##= CHROMIUM            a Chromium for the test with a browser (bin/chromium/headless-shell, unpacked from Debian's packages)
##= CLI_PLATFORMS       platforms of "make cli-binaries", as in CLI_PLATFORMS=linux/amd64 (six)
##= DURATION            how long "make robustness" runs (2m), or a part of "make soak" (150s)
##= FACADE_ADDR         where the façade of the development cluster listens (127.0.0.1:8080)
##= FOCUS               what "make test-one" runs: a part of a spec's name, or a pattern for -run
##= IMAGE               the image in the bundles of "make bundle", as in IMAGE=registry.example.com/lock-operator:v1.0.0 (lock-operator:latest); of "make release", where it is pushed to, without a tag, or local
##= K8S                 version of Kubernetes in place of the pinned one, as in K8S=1.34.4 (built into bin/k8s-1.34.4)
##= KUBEBUILDER_ASSETS  folder of a ready-made control plane, or of envtest's binaries (bin/k8s, built when necessary)
##= NIGHTLY             which steps of "make nightly" run, as in NIGHTLY="witness bench" (all)

##= LOCKS               how many live locks "make bench-scale" holds, as in LOCKS=1000000 (100000)
##= NODES               how many nodes kwok simulates in the development cluster, whose pods only seem to run (0)
##= OBSERVE             1: the development cluster has a Prometheus that reads the operator's metrics (make prometheus unpacks one)
##= OPERATIONS          how many operations "make soak" adds (1000000)
##= PLATFORMS           platforms of "make image" (linux/amd64 linux/arm64)
##= PKG                 the package of "make test-one"
##= PROMETHEUS          a Prometheus, with promtool beside it (bin/prometheus/usr/bin/prometheus, unpacked from Debian's package)
##= REPORT              folder of the report that "make soak" adds to (bin/soak)
##= ROUTES              a file of routes for the façade, as in ROUTES=docs/routes.yaml
##= SEED                a number that repeats the choices of a run of "make robustness" or "make soak"
##= SUITE               what "make bench-report" measures: speed or scale (speed)
##= TESTFLAGS           more flags for go test, as in TESTFLAGS=-run=Expiry
##= UPGRADE_FROM        the revision that "make upgrade-test" upgrades from (that in test/upgrade/from)
##= VERSION             version of "make release", of the images and of the plugin that "make krew" packs, as in VERSION=v0.1.0
##= VULNDB              folder with a copy of the vulnerability database, for "make vuln" without a network

bin/devcluster:
	$(GO_BUILD) -o $@ ./hack/devcluster

# Its nodes are objects, and its pods are statuses that it writes.
bin/kwok: hack/kwok/go.mod hack/kwok/go.sum
	@echo "Building kwok (a minute the first time)"
	@cd hack/kwok && $(GO_BUILD) -o "$(CURDIR)/$@" sigs.k8s.io/kwok/cmd/kwok

bin/golangci-lint: hack/tools/go.mod hack/tools/go.sum
	@echo "Building golangci-lint (minutes the first time)"
	@go build -C hack/tools -o "$(CURDIR)/$@" github.com/golangci/golangci-lint/v2/cmd/golangci-lint

bin/helm: hack/chart/go.mod hack/chart/go.sum
	@echo "Building Helm (minutes the first time)"
	@cd hack/chart && $(GO_BUILD) -o "$(CURDIR)/$@" helm.sh/helm/v4/cmd/helm

bin/kustomize-controller: test/gitops/kustomizecontroller/go.mod test/gitops/kustomizecontroller/go.sum
	@echo "Building Flux's kustomize-controller (minutes the first time)"
	@cd test/gitops/kustomizecontroller && $(GO_BUILD) -o "$(CURDIR)/$@" github.com/fluxcd/kustomize-controller
