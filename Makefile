# What "make help" shows are the lines with two hashes. Everything needs only Go and what the go.mod files pin; the tests with a
# browser or a Prometheus take Debian's, and what builds or checks the page takes npm.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
# A target without a slash in its name is no file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

# The folder of the control plane's programs and kubectl. What envtest installs lacks two of them; bin/k8s then has links to the
# others. Each version that K8S chooses has a folder of its own.
BUILT = bin/k8s$(addprefix -,$(K8S))
ASSETS = $(if $(wildcard $(KUBEBUILDER_ASSETS)/kube-controller-manager),$(KUBEBUILDER_ASSETS),$(BUILT))
CHROMIUM ?= bin/chromium/headless-shell
PROMETHEUS ?= bin/prometheus/usr/bin/prometheus
KWOK = $(if $(filter-out 0,$(NODES)),bin/kwok)

# Compilers, tests and their control planes take a quarter less time if they collect garbage less often.
SPARE_GC = GOGC=$${GOGC:-400}
# Programs that are run and not debugged. The control plane shares with them what is compiled of Go's library.
GO_BUILD = CGO_ENABLED=0 $(SPARE_GC) go build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w"
PROGRAMS = ./cmd/... ./hack/devcluster ./hack/gotest

# Every module; those with code of ours; and those whose tests have no target of their own.
MODULES := . $(patsubst %/go.mod,%,$(filter-out bin/%,$(wildcard */*/go.mod */*/*/go.mod)))
WITH_CODE := $(filter-out hack/tools,$(MODULES))
WITH_TESTS := $(filter-out . test/browser test/chart test/observability test/peers,$(foreach module,$(MODULES),$(if $(shell find $(module) -name '*_test.go' -print -quit),$(module))))
CLI_PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64# Those that krew knows and most people have.
export MODULES CLI_PLATFORMS

# What tests draw, they draw from SEED. What they wait for takes a tenth of this at most, or the test says how long it waits.
export SEED ?= 1
export RAPID_SEED ?= $(SEED)
export GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT ?= 30s
export GOMEGA_DEFAULT_EVENTUALLY_POLLING_INTERVAL ?= 50ms
export REPORTS ?= $(CURDIR)/bin/reports
JOBS ?= $(shell echo $$((3 * $$(getconf _NPROCESSORS_ONLN))))
RACE ?= $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)# It needs cgo, and so a C compiler.
# Tests run in the folders of their packages, so they need absolute paths. The linter vets. Only a hang lasts until the time-out,
# and then it is reported, with what each goroutine does, before CI gives up.
TIMEOUT = 75m
TEST_FLAGS = -vet=off -count=1 -timeout=$(TIMEOUT) -exec=$(CURDIR)/hack/test-exec.sh $(TESTFLAGS)
TEST_ENV = $(SPARE_GC) KUBEBUILDER_ASSETS="$(abspath $(ASSETS))" CHROMIUM="$(abspath $(CHROMIUM))" PROMETHEUS="$(abspath $(PROMETHEUS))" TEST_FLAGS="$(TEST_FLAGS)"
RACE_ENV = $(TEST_ENV) $(if $(RACE),BUBBLES_ON_ONE_PROCESSOR=1)
# $(call test,name of the log,flags and packages) runs tests, $(call module,folder) all of another module, and $(call unit,…)
# those for which Go's cache answers if they have passed, and neither code nor files have changed since; with another seed, none.
test = $(TEST_ENV) bin/gotest -log="$(REPORTS)/$(subst /,-,$(1)).json" -- $(TEST_FLAGS) $(2)
module = $(TEST_ENV) bin/gotest -log="$(REPORTS)/$(subst /,-,$(1)).json" -C $(1) -- $(TEST_FLAGS) ./...
unit = $(SPARE_GC) bin/gotest -log="$(REPORTS)/$(1).json" -- -vet=off -timeout=20m -p=3 $(if $(filter-out 1,$(SEED)),-count=1) $(TESTFLAGS) $(2)
# Suites with the race detector. The others run code that units run with it, and most of it in other processes. Of test/contract see hack/nightly.sh.
RACED ?= controllers/expiry test/robustness webhook
suites = $(shell hack/test-packages.sh suites)

##@ Help

help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^##= / { printf "  %s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ Development cluster

run: build control-plane $(KWOK) ## Run a cluster with the operator and its façade until Ctrl-C.
# With exec there is no shell between, so that a SIGTERM that make passes on arrives.
	@exec env KUBEBUILDER_ASSETS="$(ASSETS)" NODES="$(NODES)" bin/devcluster run

dev-up: build control-plane $(KWOK) ## Do the same in the background.
	@exec env KUBEBUILDER_ASSETS="$(ASSETS)" NODES="$(NODES)" bin/devcluster up

dev-down: build ## Stop the cluster, however it was started.
	@exec bin/devcluster down

control-plane: ## Build etcd, kube-apiserver and the like (minutes the first time).
	@cd hack/controlplane && $(GO_BUILD) -o "$(CURDIR)/bin/build-control-plane" .
	@exec bin/build-control-plane -kubernetes="$(K8S)" -out="$(BUILT)"

##@ Build

build: ## Build the operator, kubectl-lock and the programs for development.
# The go command downloads as many modules at a time as it may use processors.
	@GOMAXPROCS=16 go list -deps $(PROGRAMS) >/dev/null
	$(GO_BUILD) -o bin/ $(PROGRAMS)
# Under this name, it completes the arguments of "kubectl lock".
	@ln -sf kubectl-lock bin/kubectl_complete-lock

page: web/node_modules ## Build the pages /ui/ and /docs from web/ into facade/ui (Debian's npm).
	cd web && npm run --silent check && npm run --silent build

web/node_modules: web/package-lock.json
	@hack/debian.sh nodejs:node npm
	cd web && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

cli-binaries: ## Build kubectl-lock for all platforms into bin/cli (minutes the first time).
	@VERSION="$(VERSION)" hack/cli-binaries.sh

image: ## Build the images for the platforms of PLATFORMS into bin/image (root, and Debian's buildah).
	@hack/debian.sh buildah busybox-static:busybox
	@hack/image.sh bin/image

# The version and the address are those of a release.
krew: cli-binaries ## Pack those binaries and write the manifest for krew, into bin/krew.
	@go -C hack/release/krew run . -binaries "$(CURDIR)/bin/cli" -out "$(CURDIR)/bin/krew" \
	  -version "$${VERSION:-v0.0.0}" -url "https://forrst.dev/lock-operator/releases/$${VERSION:-v0.0.0}"

bundle: ## Render config/ and its overlays for kubectl into dist, with the image of IMAGE.
	@go -C hack/chart run . -bundles "$(CURDIR)/dist" -image "$(IMAGE)"

release: ## Make all that a release has into dist, as in make release VERSION=v0.1.0 IMAGE=registry.example.com/lock-operator (minutes).
	@VERSION="$(VERSION)" IMAGE="$(IMAGE)" hack/release.sh dist

release-test: bin/helm ## Make a release twice, in two clones, and compare.
	@hack/release-test.sh

generate: ## Generate what follows from code, markers and config: the API's objects, roles, the chart, alerts, and pages of reference.
	@hack/generate.sh

fmt: bin/golangci-lint ## Format the code and sort its imports.
	bin/golangci-lint fmt

clean: ## Stop the cluster and delete what was built; Go's build cache stays.
	@if [ -x bin/devcluster ]; then bin/devcluster down; fi
	rm -rf bin .dev

pictures: build control-plane $(CHROMIUM) $(PROMETHEUS) ## Draw the pictures of README, docs/page.md and docs/observability.md, as far as PICTURES names them (all).
	@$(TEST_ENV) hack/pictures.sh $(or $(PICTURES),readme page plots)

# Each tool, the module that pins it, and its package. The go command links it anew only if it is out of date.
bin/kwok: TOOL = hack/chart sigs.k8s.io/kwok/cmd/kwok
bin/helm: TOOL = hack/chart helm.sh/helm/v4/cmd/helm
bin/golangci-lint: TOOL = hack/tools github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/actionlint: TOOL = hack/tools github.com/rhysd/actionlint/cmd/actionlint
bin/kustomize-controller: TOOL = test/gitops/health github.com/fluxcd/kustomize-controller
bin/bench: TOOL = test/bench .
bin/kwok bin/helm bin/golangci-lint bin/actionlint bin/kustomize-controller bin/bench: always
	@[ -e $@ ] || echo "Building $(notdir $@) (minutes the first time)"
	@cd $(firstword $(TOOL)) && $(GO_BUILD) -o "$(CURDIR)/$@" $(lastword $(TOOL))
always:

# Debian keeps only the latest version of a package, so there is none to pin.
bin/chromium/headless-shell: hack/chromium.sh hack/unpack.sh
	@hack/chromium.sh bin/chromium

bin/prometheus/usr/bin/prometheus: hack/unpack.sh
	@hack/unpack.sh bin/prometheus prometheus
	@touch $@

##@ Test

quick: ## Run the tests that only compute, unless their results are cached: what one runs while working.
	@packages="$$(hack/test-packages.sh unit)" && go test -vet=off $(TESTFLAGS) $$packages

# What computes comes first. Suites wait more than they compute, so three for each processor run at once, with what BESIDE says.
test: build control-plane bin/kwok bin/helm bin/kustomize-controller $(CHROMIUM) compile-tests ## Run all tests that judge a change.
	@rm -rf "$(REPORTS)"/*.json "$(REPORTS)/ginkgo"; failed=0; $(MAKE) --no-print-directory test-units || failed=1; \
	$(MAKE) --no-print-directory -k -j$(JOBS) module/test/browser $(BESIDE) $(suites:%=suite/%) $(addprefix module/,$(WITH_TESTS)) || failed=1; \
	bin/gotest -slowest=10 "$(REPORTS)"; exit $$failed
compile-tests:
	@$(SPARE_GC) RACE="$(RACE)" hack/compile-tests.sh "$(filter $(RACED),$(suites))" "$(filter-out $(RACED),$(suites)) test/image test/installation" \
	  $(WITH_TESTS) test/browser test/chart test/observability

# hack/test-exec.sh says why bubbles have one processor. The last ones are about what the race detector adds to: memory and time.
test-units: build
	@failed=0; bubbles="$$(hack/test-packages.sh bubbles)" && $(if $(RACE),GOMAXPROCS=1) $(call unit,bubbles,$(RACE) $$bubbles) || failed=1; \
	units="$$(hack/test-packages.sh plain)" && $(call unit,units,$(RACE) $$units) || failed=1; \
	unraced="$$(hack/test-packages.sh unraced)" && $(call unit,unraced,$$unraced) || failed=1; exit $$failed

suite/%:
	@$(if $(filter $(RACED),$*),BUBBLES_ON_ONE_PROCESSOR=$(RACE)) $(call test,$*,$(if $(filter $(RACED),$*),$(RACE)) ./$*)
module/%:
	@$(call module,$*)

test-one: build control-plane bin/kwok bin/helm bin/kustomize-controller ## Run one spec or test, as in make test-one PKG=./test/jobs FOCUS="takes no label away".
	@if [ -z "$$PKG" ] || [ -z "$$FOCUS" ]; then echo 'test-one: say what to run, as in make test-one PKG=./test/jobs FOCUS="takes no label away"' >&2; exit 1; fi
	@$(RACE_ENV) TAG="$${TAG-any}" go test $(TEST_FLAGS) $(RACE) -tags=timing,nightly -v "$$PKG" "$$(if grep -qs 'onsi/ginkgo/v2"' "$$PKG"/*_test.go; then echo -ginkgo.focus; else echo -run; fi)=$$FOCUS"

timing: build control-plane $(CHROMIUM) ## Judge how fast things are: alone on the machine, against floors that the same run measures.
	@$(TEST_ENV) GOGC=100 hack/test-tagged.sh timing $(PKGS)

# The check of the page's accessibility comes from the registry of npm. Without npm it is left out; in CI that is a failure.
test-nightly: build control-plane bin/kwok bin/helm bin/kustomize-controller $(CHROMIUM) $(PROMETHEUS) $(if $(or $(CI),$(shell command -v npm)),web/node_modules)
	@$(TEST_ENV) hack/test-tagged.sh nightly $(PKGS)

browser-test: build control-plane $(CHROMIUM) ## Run the tests of the page and of the REST door's events with a browser.
	@$(call module,test/browser)

chart-test: build control-plane bin/helm ## Check the Helm chart, hold it against config/, and install it with Helm.
	bin/helm lint --strict charts/lock-operator
	@$(call module,test/chart)

peers-test: build control-plane ## Run the test suites of other lock libraries over adapters, on each backend (minutes the first time).
	@$(call module,test/peers)

observe-test: build control-plane $(PROMETHEUS) ## Test alerts, dashboard and the rest of what observes the operator with a Prometheus.
	@$(call module,test/observability)

prometheus: $(PROMETHEUS) ## Unpack Debian's Prometheus, which OBSERVE=1 starts.

image-test: build image control-plane ## Look at the images, and run one (root, and Debian's podman and runc).
	@hack/debian.sh podman runc
	@$(call test,image,./test/image)

install-test: build image control-plane bin/kwok bin/helm ## Install the chart with Helm, run its pods in containers, and test that (root, podman, runc, iproute2).
	@hack/debian.sh podman runc iproute2:ip
	@$(TEST_ENV) INSTALLATIONS="$(INSTALLATIONS)" hack/install-test.sh

nightly: build ## Run what takes longer than ten minutes, all night, with a drawn seed, and print a table of the results, which bin/nightly keeps.
	@NIGHTLY="$(NIGHTLY)" NIGHTLY_SEED="$(if $(findstring file,$(origin SEED)),,$(SEED))" hack/nightly.sh bin/nightly

robustness: build control-plane ## Break things under running clients for DURATION, twice, the second time with shared lines, and check what they saw.
	@$(RACE_ENV) DURATION="$(or $(DURATION),2m)" go test $(TEST_FLAGS) $(RACE) -tags=nightly -timeout=0 -v -run='^TestRobustness' ./test/robustness

soak: build control-plane ## Do the same until so many operations, without the race detector, and add what was found to a report.
	@$(TEST_ENV) hack/soak.sh "$(or $(REPORT),bin/soak)"

robustness-breakages: build control-plane ## Break the code in several ways, and make sure that such a run, or a test, finds each.
	@$(RACE_ENV) go test $(TEST_FLAGS) $(RACE) -tags=nightly -timeout=0 -v -run='^TestBreakages$$' ./test/robustness

BENCH = AGAINST="$(AGAINST)" KUBEBUILDER_ASSETS="$(ASSETS)" hack/bench.sh -live-locks=$(or $(LOCKS),100000)
bench: build control-plane bin/bench ## Measure against what locks are built on and against peers; fail on a figure out of bounds.
	@$(BENCH) $(BENCHFLAGS)

bench-report: build control-plane bin/bench ## Do the same, or what SUITE=scale says, and write tables into docs/performance.md.
	@$(BENCH) -suite=$(or $(SUITE),speed) -report=docs/performance.md -revision="$$(git describe --always --dirty)" $(BENCHFLAGS)

bench-scale: build control-plane bin/bench ## Measure with 100,000 live locks, or as many as LOCKS says.
	@$(BENCH) -suite=scale $(BENCHFLAGS)

##@ Check

verify: build web/node_modules ## Fail if generated files, the page or go.mod files are out of date, a platform of kubectl-lock does not compile, or a licence is not allowed.
	@hack/verify.sh

sbom: build ## Write the bill of materials of the operator's binary to bin/lock-operator.cdx.json.
	@go -C hack/release run ./supplychain -module "$(CURDIR)" -page "$(CURDIR)/web" -sbom "$(CURDIR)/bin/lock-operator.cdx.json" "$(CURDIR)/bin/lock-operator"

vuln: ## Look for known vulnerabilities in the code that is called; needs vuln.go.dev, or a copy of it in VULNDB.
	go -C hack/release tool govulncheck -C "$(CURDIR)" $(if $(VULNDB),-db "file://$(abspath $(VULNDB))") ./...

lint: bin/golangci-lint bin/actionlint web/node_modules ## Run golangci-lint in every module, and lint the OpenAPI document and the workflows.
	@WITH_CODE="$(WITH_CODE)" hack/lint.sh

##@ Variables
##= AGAINST, BENCHFLAGS, LOCKS, SUITE  of the benchmarks: a commit to compare with, flags such as "-quick -only=hot", live locks (100000), speed or scale
##= AUTH, FACADE_ADDR, NODES, OBSERVE, ROUTES  of the development cluster: none or token, where the façade listens, simulated nodes (0), 1 for a Prometheus, a file of routes
##= CHROMIUM, KUBEBUILDER_ASSETS, PROMETHEUS  a browser, a folder of a control plane and a Prometheus in place of those in bin/
##= DURATION, OPERATIONS, REPORT, REPORTS  of tests: how long "make robustness" runs, how much "make soak" does and where it reports, where times are kept
##= FOCUS, INSTALLATIONS, JOBS, PKG, PKGS, SEED, TESTFLAGS  of tests: how many suites run at once, what "make test-one", "make install-test" and "make timing" run, what choices are drawn from (1), more flags for go test
##= K8S  version of Kubernetes in place of the pinned one, as in K8S=1.34.4 (built into bin/k8s-1.34.4)
##= IMAGE, PLATFORMS, CLI_PLATFORMS, VERSION  of "make release" and its parts: where the image is pushed to, or local; of images and programs; as in v0.1.0
##= NIGHTLY, UPGRADE_FROM, VULNDB  the steps of "make nightly" (all), the revision that test/upgrade begins at, a copy of the vulnerability database
