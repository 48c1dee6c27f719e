# make check is what a change has to pass. make help lists the rest.

GOLANGCI_VERSION = v2.15.0
# Outside of the tree, one folder for each version: a checkout stays clean and the next one finds the tool built.
TOOLS = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/spillway/golangci-lint-$(GOLANGCI_VERSION)
GOLANGCI = $(TOOLS)/golangci-lint

FUZZTIME ?= 3s

# Each module as its users see it: with the versions of its own go.mod. `make work` looks after go.work.
MODULES = $(patsubst %/go.mod,%,$(shell git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod' | sort | sed 's,^,./,'))
export GOWORK = off
each = @set -e; for dir in $(MODULES); do (cd $$dir; set -x; $(1)); done

CHECKS = fmt vet lint build work tidy-check test bench-once

.PHONY: check checks help tools $(CHECKS) tidy fuzz bench prove soak demo

## check: everything below up to bench-once
check: $(CHECKS)

checks:
	@echo $(CHECKS)

help:
	@sed -n 's/^## //p' Makefile

## tools: builds the linter, once for each version of it
tools: $(GOLANGCI)

$(GOLANGCI):
	GOBIN=$(TOOLS) GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

## fmt: fails and shows what gofmt would change
fmt:
	@out=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs -r gofmt -d); [ -z "$$out" ] || { echo "$$out"; exit 1; }

## vet: go vet in every module
vet:
	$(call each,go vet ./...)

## lint: golangci-lint in every module; the list of linters is in .golangci.yml
lint: $(GOLANGCI)
	$(call each,$(GOLANGCI) run --config $(CURDIR)/.golangci.yml ./...)

## build: every package and command of every module, examples included
build:
	$(call each,go build ./...)

## work: every module is in go.work and builds with the versions they agree on
work:
	GOWORK= go build $(addsuffix /...,$(MODULES))

## tidy-check: fails and shows what go mod tidy would change in any module
tidy-check:
	$(call each,go mod tidy -diff)

## tidy: go mod tidy in every module
tidy:
	$(call each,go mod tidy)

## test: all tests with the race detector
test:
	$(call each,go test -race -count=1 ./...)

## bench-once: the tests that the race detector hides something from, such as allocations, without it, and every benchmark once
bench-once: MODULES = . ./benchmarks ./observe/otelobserve
bench-once:
	$(call each,tests=$$(for d in $$(go list -f '{{.Dir}}' ./...); do ls $$d/*race_off_test.go 2>/dev/null; done | xargs -r dirname | sort -u); \
		[ -z "$$tests" ] || go test -count=1 -short $$tests; go test -short -run '^$$' -bench . -benchtime 1x ./...)

## fuzz: every fuzz target for FUZZTIME (3s) each
fuzz:
	$(call each,$(CURDIR)/.ci/fuzz $(FUZZTIME))

## bench: the comparison with other libraries, about 40 minutes; writes docs/benchmarks.md. QUICK=1: a short run that only tries the harness
bench:
	COMMAND='make bench$(if $(QUICK), QUICK=$(QUICK))' benchmarks/run.sh
ifndef QUICK
	cp benchmarks/out/benchmarks.md docs/benchmarks.md
endif

## prove: every fault in every mode on real processes, about 6 minutes; writes "Measured under faults" into docs/guarantees.md
prove:
	go test -count=1 -timeout 30m -run 'TestFaults|TestTheMeter' ./internal/prove -v -prove

## soak: one process with all modes under full load for MINUTES (20); 10 or more write docs/soak.md
soak:
	go test -count=1 -timeout 0 -run TestSoak ./internal/prove -v -soak $(or $(MINUTES),20)

## demo: three servers to try with curl
demo:
	go run ./cmd/spillway demo
