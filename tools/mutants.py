"""Breaks the code on purpose, one patch at a time, and demands that the test it names goes red.

    tools/mutants.py                 every patch of tests/mutants/
    tools/mutants.py skip-flush ...  these
    tools/mutants.py --short         the three that run inside `make test`
    tools/mutants.py --green         also run each named test unbroken first: it must pass there

A patch opens with `Break:` (what it does), `Test:` (pytest's name of the test that must notice) and, for the three,
`Short: yes`. It is applied to a copy of the tree; the tree itself is never touched.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "tests" / "mutants"
COPIED = ("src", "tests", "tools", "bench", "docs", "pyproject.toml", "README.md", "Makefile")
TEST_SECONDS_MAX = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    breaks: str
    test: str
    short: bool
    patch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    mutant: Mutant
    caught: bool
    said: str
    seconds: float


class BadPatch(Exception):
    """A patch that cannot be used: says which, and what it lacks."""


def read(patch: Path) -> Mutant:
    text = patch.read_text()
    facts = dict(re.findall(r"^(Break|Test|Short): (.+)$", text.partition("\n--- ")[0], re.MULTILINE))
    for fact in ("Break", "Test"):
        if fact not in facts:
            raise BadPatch(f"{patch.name}: no `{fact}:` line before the diff: add one")
    return Mutant(
        name=patch.stem, breaks=facts["Break"], test=facts["Test"], short=facts.get("Short") == "yes", patch=patch
    )


def judge(mutant: Mutant, *, green: bool = False, root: Path = ROOT) -> Verdict:
    """Whether the named test notices the break. Errors of collection or of set-up do not count as noticing."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-mutant-") as scratch:
        copy = Path(scratch)
        for name in COPIED:
            _copy(root / name, copy / name)
        if green and (code := _test(mutant, copy)[0]):
            return _verdict(mutant, False, f"the test is red without the break (pytest ended with {code})", begun)
        applied = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", str(mutant.patch)],
            cwd=copy,
            check=False,
            capture_output=True,
            text=True,
        )
        if applied.returncode:
            return _verdict(mutant, False, f"the patch no longer applies: make it anew\n{applied.stderr}", begun)
        code, output = _test(mutant, copy)
    if code == 1:
        return _verdict(mutant, True, "red, as it must be", begun)
    if code == 0:
        return _verdict(mutant, False, "SURVIVED: the test passes on broken code", begun)
    return _verdict(mutant, False, f"the test did not run (pytest ended with {code})\n{output[-2000:]}", begun)


def _verdict(mutant: Mutant, caught: bool, said: str, begun: float) -> Verdict:
    return Verdict(mutant=mutant, caught=caught, said=said, seconds=time.monotonic() - begun)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy2(source, target)


def _test(mutant: Mutant, copy: Path) -> tuple[int, str]:
    # PYTHONPATH comes before the editable install, so the copy is what runs, in child processes too.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", *mutant.test.split()],
        cwd=copy,
        check=False,
        timeout=TEST_SECONDS_MAX,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--green", action="store_true")
    options = parser.parse_args()
    mutants = [read(patch) for patch in sorted(PATCHES.glob("*.patch"))]
    if unknown := set(options.names) - {one.name for one in mutants}:
        print(f"mutants: there is no {', '.join(sorted(unknown))}: see tests/mutants/", file=sys.stderr)
        return 2
    chosen = [one for one in mutants if (one.name in options.names or not options.names)]
    chosen = [one for one in chosen if one.short or not options.short]
    survivors = 0
    for number, mutant in enumerate(chosen, 1):
        verdict = judge(mutant, green=options.green)
        survivors += not verdict.caught
        mark = "caught" if verdict.caught else "NOT CAUGHT"
        print(
            f"[{number}/{len(chosen)}] {mark:10} {mutant.name}: {mutant.breaks} ({verdict.seconds:.0f} s)", flush=True
        )
        if not verdict.caught:
            print(f"    {mutant.test}: {verdict.said}", flush=True)
    print(f"{len(chosen) - survivors} passed, {survivors} failed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
