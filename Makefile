# `make` says what there is: the texts after ## are its help.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
BENCHTIME ?= 1s

# Every module of the repository, the root's first. What is heavy and only tests
# or benchmarks need is in nested ones.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './bin/*')))

# The race detector, but not within SQLite, which is C translated to Go: it would
# take most of the tests' time.
RACE := -race -gcflags=modernc.org/...=-race=false

# Linking with DWARF, which no test reads, takes twice as long. Many tests mostly wait, for
# timeouts and servers: with four at a time in a package, two processors are not idle meanwhile.
TESTFLAGS := $(RACE) -ldflags=-w -parallel 4

# watermill-nats closes a channel that it may just have sent on: a race of its own.
UNRACED := ./examples/nats

# Pinned, and built from source by the Go that is here: a linter built by an older
# Go refuses to check newer code.
GOLANGCI_LINT_VERSION := v2.15.0
GOLANGCI_LINT := $(CURDIR)/bin/tools/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build the commands into ./bin
	go build -o bin/ ./service/cmd/...

.PHONY: run
run: ## Run the gateway (API, dispatcher and worker in one process)
	go build -o bin/gateway ./service/cmd/gateway
	./bin/gateway run

.PHONY: demo-telemetry
demo-telemetry: ## Run the telemetry example on SQLite, in a temporary folder
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; go run ./examples/telemetry -store "$$dir/telemetry.db"

.PHONY: demo-casework
demo-casework: ## Run the casework example on SQLite, in a temporary folder (a minute)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; go run ./examples/casework -store "$$dir/casework.db"

.PHONY: test
test: ## Run all tests, with the race detector and real servers
	@for module in $(MODULES); do \
		case "$$module" in $(UNRACED)) flags=-ldflags=-w ;; *) flags="$(TESTFLAGS)" ;; esac; \
		(set -x; cd "$$module" && go test $$flags -timeout 15m ./...); \
	done

.PHONY: test-short
test-short: ## Run the tests that need nothing but Go
	go test -short ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check formatting, modules, code and import rules
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted >&2; exit 1; fi
	@for module in $(MODULES); do \
		(set -x; cd "$$module" && go mod tidy -diff && go vet ./... && \
			"$(GOLANGCI_LINT)" run --config "$(CURDIR)/.golangci.yml" ./...); \
	done

$(GOLANGCI_LINT):
	GOBIN="$(dir $@)" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

GOVULNCHECK_VERSION := v1.9.0

.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities of what is used (asks vuln.go.dev)
	@for module in $(MODULES); do \
		(set -x; cd "$$module" && go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...); \
	done

.PHONY: bench
bench: ## Run the benchmarks, BENCHTIME (1s) each, one package at a time
	@{ grep -rlE --include='*_test.go' '^func Benchmark' . || true; } | xargs -r -n 1 dirname | sort -u | \
	while read -r package; do \
		(set -x; cd "$$package" && go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 60m . </dev/null); \
	done

# Flags of the five below: make bench-peers BENCHFLAGS='-only dispatch -json peers.json'
BENCHFLAGS ?=

.PHONY: bench-peers
bench-peers: ## Compare dispatch and append with other libraries (5 minutes)
	cd internal/benchpeers && go run . peers $(BENCHFLAGS)

.PHONY: bench-brokers
bench-brokers: ## Compare the Redis publisher and subscriber with Watermill's (2 minutes)
	cd internal/benchpeers && go run . brokers $(BENCHFLAGS)

.PHONY: bench-backlog
bench-backlog: ## Dispatch from tables of 10 million rows (20 minutes, 26 GB of disk)
	cd internal/benchpeers && go run . backlog $(BENCHFLAGS)

.PHONY: bench-wake
bench-wake: ## Measure the time from commit to broker, and an idle dispatcher (4 minutes)
	cd internal/benchpeers && go run . wake $(BENCHFLAGS)

.PHONY: bench-gateway
bench-gateway: build ## Measure the gateway's intake, beside a bare handler (3 minutes)
	cd internal/benchpeers && go run . gateway $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each; a finding fails
	@{ grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . || true; } | \
	sed -E 's|/[^/]*:func (Fuzz[A-Za-z0-9_]*).*| \1|' | sort | \
	while read -r package target; do \
		(set -x; cd "$$package" && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x . </dev/null); \
	done

.PHONY: soak
soak: ## Run the long forms of the crash, order and soak tests (about an hour)
	WAYBILL_SOAK=1 go test $(RACE) -count 1 -timeout 80m -run 'Soak|Crash|Order|Apply|Plan|Stress|Store$$' ./...
