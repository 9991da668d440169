# Each target does its own set-up. `make` alone lists them.
PY := .venv/bin/python
STAMP := .venv/.headwater-setup
TARGET ?= headwater

.PHONY: help setup demo test check crash mutants interop bench wire reference clean

help:           ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv, install the pinned dependencies and the project

$(STAMP): pyproject.toml constraints.txt
	@tools/setup

demo: $(STAMP)  ## the main job end to end: log, group, Spark, Iceberg, SQL, with kills on the way
	@$(PY) -m headwater demo

test: $(STAMP)  ## every test but the long ones, in under 15 minutes
	@$(PY) tools/run_tests.py

check: $(STAMP) ## ruff, mypy --strict, import contracts, deptry, codespell, the tidy test
	@tools/check

crash: $(STAMP) ## kill -9 and power cuts, the long form (seeds are printed)
	@$(PY) tools/run_tests.py crash

mutants: $(STAMP) ## each deliberate break must turn the test it names red
	@$(PY) tools/mutants.py

interop: $(STAMP) ## real clients against a live broker; TARGET=kafka asks Apache Kafka
	@$(PY) tools/run_tests.py interop --target $(TARGET)

bench: $(STAMP) ## ratios to Apache Kafka, both in one run
	@$(PY) -m bench.start && $(PY) -m bench.broker

wire: $(STAMP)  ## generate src/headwater/wire/messages anew
	@$(PY) -m tools.generate_wire

reference: $(STAMP) ## generate docs/reference anew
	@$(PY) -m tools.generate_reference

golden: $(STAMP) ## cut the golden data directory of a new format version, once
	@$(PY) -m tools.cut_golden

clean:          ## remove what the targets made
	rm -rf .venv .headwater build dist
