# Every target makes its own environment from nothing in .venv (test-trl: in .venv-trl); only python3 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
TRL := .venv-trl
export OPENBLAS_NUM_THREADS = 1
STAMP := .venv/.ready

.PHONY: demo test pytests test-browser test-all test-trl acceptance fuzz accuracy status lint docs schema snapshots bench clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[test-browser]'
	touch $(STAMP)

demo: $(STAMP)  ## the main job on a real sick run
	@$(BIN)/rlclinic demo

test: $(STAMP)  ## lint, and beside it every test, the measured error rates included
	@$(MAKE) --no-print-directory -j 2 lint pytests

pytests: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal

test-browser: $(STAMP)  ## the report in a real browser (needs chromium; pdftoppm for the printed pages), skips told
	$(BIN)/python -m pytest -rs tests/test_browser.py tests/test_hostile_pages.py tests/test_serve_page.py

test-all: $(STAMP)  ## what the trackers' own packages write, read back (installs about 300 MB)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-all]'
	$(BIN)/python -m pytest -m libraries

$(TRL)/.ready: pyproject.toml
	$(PYTHON) -m venv $(TRL)
	$(TRL)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check torch==2.13.0 trl==1.16.0 \
		transformers==5.24.0 pytest --editable .
	touch $(TRL)/.ready

test-trl: $(TRL)/.ready  ## the callback in real trainings of TRL, in an environment of its own (1.2 GB; two minutes on one core)
	cd tests/trainers && OMP_NUM_THREADS=1 ../../$(TRL)/bin/python -m pytest -q -p no:cacheprovider --confcutdir . $(ARGS)

acceptance: $(STAMP)  ## every row of docs/statistics.md with all its repetitions
	$(BIN)/python -m pytest -n auto -m "slow or long" --full tests/stats tests/test_real_noise.py tests/test_accuracy.py tests/test_baseline.py
	$(BIN)/python -m pytest -n auto --full tests/test_casebook.py tests/test_planted_exploits.py
	$(BIN)/python tools/measure.py --check

fuzz: $(STAMP)  ## 10,000 damaged files of every form (about half an hour on one core)
	$(BIN)/python tests/fuzz.py

accuracy: $(STAMP)  ## measure every check and write docs/accuracy.md (about three minutes of one core)
	$(BIN)/python tools/measure.py

status: $(STAMP)  ## what was asked against what is reached, measured again (ALL=1: every row; hours) -> docs/status.md
	$(BIN)/python tools/status.py $(if $(ALL),--all) $(ROWS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/build_schema.py --check
	$(BIN)/python tools/build_docs.py --check
	$(BIN)/python benchmarks/scoreboard.py --check
	$(BIN)/python tools/status.py --check

docs: $(STAMP)  ## write every generated page
	$(BIN)/python tools/build_docs.py

schema: $(STAMP)
	$(BIN)/python tools/build_schema.py

snapshots: $(STAMP)
	$(BIN)/python -m pytest tests/test_report.py --snapshot-update

bench: $(STAMP)  ## against rivals, in environments of their own (quick modes; FULL=1: everything, an hour or more)
	$(BIN)/python benchmarks/scoreboard.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/diagnose.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/stats.py $(if $(FULL),,--quick)
	$(BIN)/python benchmarks/readers.py --rivals $(if $(FULL),,--repeat 1)
	$(BIN)/python benchmarks/rollouts.py $(if $(FULL),,--size 200)
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/live.py $(if $(FULL),,--quick)

clean:
	rm -rf .venv $(TRL)
