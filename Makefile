# Tranche. `make help` lists what there is; README.md explains the first two.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := $(CURDIR)/bin
LIMIT ?= 300
SPEED ?= 120

.PHONY: help demo test dev replay bench billing-check doctor build generate verify lint fmt vulnerabilities setup

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

demo: setup build ## play the whole story on this machine and end with an invoice (STEPS=list prints it)
	@$(BIN)/tranche-dev demo $(if $(STEPS),--steps $(STEPS))

test: ## everything that decides whether a change is good (STAGES="unit devstack" for some)
	@scripts/test $(if $(STAGES),build $(STAGES))

dev: setup build ## run the embedded stack in the foreground; CONTAINERS=1 for real containers
	@$(BIN)/tranche-dev dev $(if $(CONTAINERS),--containers)

replay: setup build ## replay a trace as real API calls: TRACE=dir LIMIT=300 SPEED=120
	@test -n "$(TRACE)" || { echo 'make replay TRACE=dir [LIMIT=300] [SPEED=120]' >&2; exit 2; }
	@$(BIN)/tranche-dev replay --trace '$(TRACE)' --limit $(LIMIT) --speed $(SPEED)

bench: setup build ## the benchmarks, with their peers in the same run (OUT=file for JSON)
	@$(BIN)/tranche-dev bench $(if $(OUT),--out '$(OUT)')

billing-check: ## judge billing by an oracle, permutations, races and at scale (N=1000000 SEED= ORGS=1000 SEGMENTS=5000000)
	@scripts/billing-check $(or $(N),100000) $(or $(SEED),0) $(ORGS) $(SEGMENTS)

doctor: build ## the audit program against the dev stack
	@$(BIN)/tranche-dev doctor

build: ## build every binary into bin/
	@scripts/build

generate: ## regenerate code from SQL, OpenAPI and protobuf
	@scripts/setup generate
	@scripts/generate

verify: ## fail when generated code differs from its source
	@scripts/setup generate
	@scripts/verify

lint: ## golangci-lint (FAST=1: vet and staticcheck)
	@FAST=$(FAST) scripts/lint

vulnerabilities: ## known vulnerabilities (VULNDB=dir of a copy of the database)
	@scripts/vulnerabilities

fmt: ## format all Go code
	@scripts/fmt

setup:
	@scripts/setup
