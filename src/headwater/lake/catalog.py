"""The catalog: where tables are found by name. SQLite beside the data, unless `[catalog]` says otherwise.

`[catalog]` of headwater.toml takes pyiceberg's own keys (`uri`, `warehouse`, `type`, `s3.endpoint` ...) and passes them
through; what it leaves out comes from here. The SQLite layout is that of Iceberg's JdbcCatalog, so other engines open
it too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from headwater import config
from headwater.errors import InvalidSetting, OperatorError, TableNotFound
from headwater.lake.durable import make_directories

NAME = "headwater"  # of the catalog in its own database; other engines must use the same
NAMESPACE = "headwater"
FILE_IO = "headwater.lake.durable.DurableFileIO"

T = TypeVar("T")


def open_catalog(properties: Mapping[str, str], directory: str | Path, *, create: bool = True) -> Any:
    """The catalog that `properties` describe; without `uri` and `type`, SQLite under `<directory>/lake`.

    `create=False` is for those who only read: where nothing has landed they are told so, and nothing is made. Safe to
    call in several processes at once.
    """
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    said = {name: str(value) for name, value in properties.items()}
    if "uri" not in said and "type" not in said:
        lake = Path(directory).resolve() / "lake"
        if not create and not (lake / "catalog.db").exists():
            raise TableNotFound(f"nothing has landed under {lake.parent}: headwater run lands streams in tables")
        patiently(lambda: make_directories(lake / "warehouse"), f"making {lake}")
        busy = config.CATALOG_BUSY_SECONDS
        said = {
            "type": "sql",
            # SQLite waits this long for another process's commit; pyiceberg itself sets no timeout.
            "uri": f"sqlite:///{quote(str(lake / 'catalog.db'))}?timeout={busy}",
            "warehouse": _location(lake / "warehouse"),
            **said,
        }
    said = {"py-io-impl": FILE_IO, **said}
    try:
        return patiently(lambda: load_catalog(NAME, **said), "opening the catalog")
    except (ValueError, NotInstalledError) as error:
        raise InvalidSetting(
            f"[catalog] of headwater.toml: {error}: it takes pyiceberg's own keys, such as type, uri and warehouse"
        ) from error


def ensure_namespace(catalog: Any, namespace: str) -> None:
    from pyiceberg.exceptions import NamespaceAlreadyExistsError

    def create() -> None:
        try:
            if not catalog.namespace_exists(namespace):
                catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass  # another process was faster

    patiently(create, f"making the namespace {namespace}")


def load_table(catalog: Any, name: str) -> Any:
    """The table as it is now, or an error that lists those there are."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return patiently(lambda: catalog.load_table(name), f"loading {name}")
    except NoSuchTableError:
        there = ", ".join(table_names(catalog)) or "none yet"
        raise TableNotFound(f"there is no table {name}; there are: {there}") from None


def table_names(catalog: Any) -> list[str]:
    """Full names of all tables, sorted."""

    def listed() -> list[str]:
        return sorted(".".join(name) for space in catalog.list_namespaces() for name in catalog.list_tables(space))

    return patiently(listed, "listing the tables")


def patiently(action: Callable[[], T], what: str) -> T:
    """Runs `action` again while SQLite says that somebody else is writing, up to a deadline.

    SQLite's own timeout does not cover all of it: two readers that both want to write are told at once.
    """
    deadline = time.monotonic() + config.CATALOG_BUSY_SECONDS
    pause = 0.01
    while True:
        try:
            return action()
        except Exception as error:
            if is_out_of_reach(error):
                raise OperatorError(
                    f"{what}: {_first_line(error)}: mend that, or let [catalog] of headwater.toml name another place"
                ) from error
            if not is_busy(error):
                raise
            if time.monotonic() > deadline:
                raise OperatorError(
                    f"{what}: the catalog's database was locked for {config.CATALOG_BUSY_SECONDS} s: {error}. "
                    "Find the process that holds it open in a transaction, and end that"
                ) from error
        time.sleep(pause)
        pause = min(pause * 2, 0.5)


def is_busy(error: BaseException) -> bool:
    """Whether SQLite refused because of another process, so that trying again will help."""
    from sqlalchemy.exc import IntegrityError, OperationalError

    text = str(error)
    if isinstance(error, OperationalError):
        return "locked" in text or "already exists" in text
    return isinstance(error, IntegrityError) and "iceberg_namespace_properties" in text


def is_out_of_reach(error: BaseException) -> bool:
    """Whether the database, the server or the disk below the catalog failed, and trying again will not help."""
    from pyiceberg.exceptions import RESTError
    from sqlalchemy.exc import SQLAlchemyError

    return isinstance(error, OSError | RESTError | SQLAlchemyError) and not is_busy(error)


def _first_line(error: BaseException) -> str:
    """SQLAlchemy adds a link to its manual, and others what was sent."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _location(path: Path) -> str:
    """A URI where the path can be one as it stands (Java engines prefer that); a plain path otherwise."""
    text = str(path)
    return text if any(mark in text for mark in "%?#") else f"file://{text}"
