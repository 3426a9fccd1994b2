# The steps of .ci/run by name, for those who use make; `make` lists them. None of them needs make itself.

.DEFAULT_GOAL := help
.PHONY: help setup test quick format lint licences types contracts docs newest servers ci thorough screenshots

help: ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "%-12s %s\n", $$1, $$2 }'

setup: ## Make .venv with all that development needs, from pinned packages
	.ci/run setup

test: ## Make .venv if needed and run the default tests
	.ci/run test

quick: ## Run the tests of FILES in one process: make quick FILES=tests/unit/test_text.py
	.venv/bin/pytest -n 0 $(FILES)

format: ## Format the code; CI only checks it
	.venv/bin/ruff format .

lint: ## Check the format and lint
	.ci/run format lint

types: ## Check types
	.ci/run types

contracts: ## Check which module imports which
	.ci/run contracts

licences: ## List the licences of the pinned packages; fail on one that is not allowed
	.ci/run licences

docs: ## Build the documentation; a broken link fails
	.ci/run docs

newest: ## Run the unit tests and the public contract on Python 3.13
	.ci/run newest

servers: ## Run the quick tests on servers (tests/README.md names the variables)
	.ci/run servers

ci: ## Run all that has to hold before a change lands
	.ci/run

thorough: ## Run every other test, in up to an hour
	.ci/thorough

screenshots: ## Make the documentation's pictures (needs Chromium; those of Neo4j Browser a server)
	.venv/bin/python tests/screenshots.py
