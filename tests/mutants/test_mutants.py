"""Three deliberate breaks are noticed by the tests they name; the tool that says so is tried on a harmless patch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import PATCHES, BadPatch, judge, read

MUTANTS = [read(patch) for patch in sorted(PATCHES.glob("*.patch"))]
HARMLESS = """Break: nothing at all
Test: tests/house/test_tidy.py::test_the_rule_sees_its_bad_example
--- a/README.md
+++ b/README.md
@@ -1,2 +1,3 @@
 # Headwater
+
 
"""  # noqa: W293  an unchanged empty line of a diff is a blank


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.short], ids=lambda one: one.name)
def test_the_break_is_noticed(mutant) -> None:
    """The test that a short mutant names goes red on the broken code."""
    verdict = judge(mutant)
    assert verdict.caught, verdict.said


def test_three_mutants_run_here_and_the_rest_in_make_mutants() -> None:
    """Exactly three mutants are short, and every patch says what it breaks and who must notice."""
    assert len([one for one in MUTANTS if one.short]) == 3
    assert all(one.breaks and one.test for one in MUTANTS)


def test_a_harmless_change_is_reported_as_a_survivor(tmp_path: Path) -> None:
    """A patch that no test notices is not counted as caught."""
    patch = tmp_path / "harmless.patch"
    patch.write_text(HARMLESS)
    verdict = judge(read(patch))
    assert not verdict.caught
    assert "SURVIVED" in verdict.said


def test_a_patch_without_a_named_test_is_refused(tmp_path: Path) -> None:
    """A patch must name the test that is to notice it."""
    patch = tmp_path / "nameless.patch"
    patch.write_text("Break: something\n--- a/x\n+++ b/x\n")
    with pytest.raises(BadPatch, match="Test:"):
        read(patch)
