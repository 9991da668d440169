"""The tree is held to STYLE.md, and each rule is held to its own bad example."""

from __future__ import annotations

import pytest

from tests.house.tidy import RULES, Rule, files_of_the_tree


@pytest.fixture(scope="module")
def tree() -> dict[str, str]:
    return files_of_the_tree()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Rule, tree: dict[str, str]) -> None:
    """No file of the tree breaks this rule."""
    complaints = list(rule(tree))
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_sees_its_bad_example(rule: Rule) -> None:
    """Each rule complains about a file that breaks it: a rule that cannot fail holds nothing."""
    assert list(rule(RULES[rule]))
