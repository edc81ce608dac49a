"""Where a script's processes leave their recordings, and how these are joined with the script's own."""

from __future__ import annotations

import json
import os
import shutil
import site
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from anymps._errors import RecordingError
from anymps._numbers import whole
from anymps.cleanup import hold, remove_leftover

if TYPE_CHECKING:
    from anymps.record import Recording

CHILDREN_VARIABLE: Final = "ANYMPS_CHILDREN"
"""The folder in which processes started by a recorded script leave their parts. Without it nothing of ours happens."""

RANK_VARIABLE: Final = "ANYMPS_CHILD_RANK"
"""The rank that a parent has: a process that finds it unchanged is a worker of that rank."""

MAIN: Final = "main process"

_GRACE_S: Final = 3.0
"""How long a process may take to end after the script has: most are about to."""

_RANK: Final = "-rank"  # before the number, in the name of a part

_LAUNCHERS: Final = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError")
"""Exceptions that only say that another process failed: of torchrun, `mp.spawn` and `subprocess`."""

_PREFIX: Final = "anymps-parts-"
_HELD: Final = "held"  # by the process that joins the parts
_SETTINGS: Final = "settings.json"  # not in a folder that stays on purpose
_HOOK_FILE: Final = "anymps_children.pth"

# For an installation without the hook's file, such as a checkout on PYTHONPATH: the same by the one other door that
# Python has. It steps aside for the machine's own `sitecustomize`.
_HOOK: Final = """\
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _here]
_this = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _this
if os.environ.get("ANYMPS_CHILDREN"):
    try:
        from anymps.children import begin
    except ImportError:
        pass
    else:
        begin()
"""


@dataclass(frozen=True)
class ChildSettings:
    """What a child needs to know beyond what the environment says of the parent's device.

    `prepare` is what each process calls first of all, `module:function` and a text for it; empty: nothing. `sources`
    names, by file of the program, the one whose text is run in its place. Without `device` nothing is switched on or
    recorded.
    """

    mac: str | None = None
    source: str | None = None
    steps: tuple[int, int] | None = None
    arguments: bool = True
    prepare: tuple[str, str] | None = None
    device: bool = True
    sources: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str) -> ChildSettings | None:
        """What the parent has written; None where its folder is gone, or where it is of another release."""
        try:
            read: dict[str, Any] = json.loads(Path(folder, _SETTINGS).read_text(encoding="utf-8"))
            given: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in read.items()}
            return cls(**given)
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class Joined:
    """One recording of all processes, None where there is only the script's own; and what went wrong, a line each."""

    recording: Recording | None
    lines: tuple[str, ...] = ()


class ChildParts:
    """The parts of the processes that this one starts, from `open` until `close`; or those in a `folder`."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held = ExitStack()
        self._before: dict[str, str | None] = {}

    def open(self, settings: ChildSettings) -> None:
        """Have every Python that is started from now on come with the device, and leave its part.

        Raises RecordingError if there is no place for parts.
        """
        try:
            _remove_leftovers()
            self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            text = json.dumps(asdict(settings))
            (self.folder / _HELD).touch()
            self._held = hold(self.folder / _HELD)
            (self.folder / _SETTINGS).write_text(text, encoding="utf-8")
            self._set(CHILDREN_VARIABLE, str(self.folder))
            self._set(RANK_VARIABLE, os.environ.get("RANK", ""))
            if not _hook_is_installed():
                hook = self.folder / "hook"
                hook.mkdir()
                (hook / "sitecustomize.py").write_text(_HOOK, encoding="utf-8")
                paths = [str(hook), *filter(None, [os.environ.get("PYTHONPATH")])]
                self._set("PYTHONPATH", os.pathsep.join(paths))
        except OSError as error:
            self.close()
            raise RecordingError(f"cannot create a temporary folder: {error.strerror}") from None

    def leave_alone(self) -> None:
        """Have processes that are started from now on come without the device, until `close`."""
        if CHILDREN_VARIABLE in os.environ:
            self._before[CHILDREN_VARIABLE] = os.environ.pop(CHILDREN_VARIABLE)

    def _set(self, name: str, value: str) -> None:
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def wait(self) -> None:
        """Wait for what Python itself waits for when it ends, and shortly for the others."""
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is not None:
            for process in multiprocessing.active_children():
                if not process.daemon:
                    process.join()
        until = time.monotonic() + _GRACE_S
        while self.folder is not None and time.monotonic() < until and any(map(_runs, _running(self.folder))):
            time.sleep(0.05)

    def join(self, own: Recording, path: Path | None) -> Joined:
        """One recording of `own` and of all parts in which anything ran on mps, in place of `own` at `path`.

        `path` None makes it in memory. A part that cannot be read stays where it is, and a line says so. Where nothing
        can be joined, all parts stay and `own` is as it was.
        """
        if self.folder is None:
            return Joined(None)
        from anymps.record import remove_recording

        lines: list[str] = []
        with ExitStack() as stack:
            parts = []
            found = sorted(_left_in(self.folder), key=_order)
            written = {file: _last_written(file) for file in found}
            for file in found:
                part = self._opened(file, lines)
                if part is not None and _is_worth(stack.enter_context(part)):
                    parts.append((file, part))
            joined = None
            named = list(_named(parts))
            if named:
                lines += [
                    f"{name} was killed; the recording holds what it did until then"
                    for (name, part), (file, _) in zip(named, parts, strict=True)
                    if file.suffix == ".part" and not part.complete and not _runs(file)
                ]
                by_end = sorted(zip(parts, named, strict=True), key=lambda it: written[it[0][0]])
                try:
                    joined = _join(own, named, path, [it for _, it in by_end])
                except RecordingError as error:
                    lines.append(f"the recordings of child processes are missing: {error}. They are in {self.folder}")
        for file in found if joined is not None or not named else ():
            if _is_of(file, lines):
                continue
            with suppress(OSError):
                remove_recording(file)
        return Joined(joined, tuple(lines))

    def _opened(self, file: Path, lines: list[str]) -> Recording | None:
        from anymps.record import Recording

        try:
            part = Recording.open(file)
        except RecordingError as error:
            lines.append(f"the recording of a child process is missing: {error}")
            return None
        if _runs(file):
            ident = _process_of(file)
            lines.append(f"child process {ident} is still running: the rest of its recording is only in {file}")
        return part

    def close(self) -> Path | None:
        """Leave the environment as it was, and take the folder away; the folder if parts that were not joined stay."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        folder, self.folder = self.folder, None
        left = folder is not None and bool(_left_in(folder))
        if folder is not None:
            (folder / _SETTINGS).unlink(missing_ok=True)
            if not left:
                shutil.rmtree(folder, ignore_errors=True)
        self._held.close()
        return folder if left else None


def _remove_leftovers() -> None:
    """Take away the folders of scripts that were killed, once no process records there."""
    for settings in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_SETTINGS}"):
        if not any(map(_runs, _running(settings.parent))):
            remove_leftover(settings.with_name(_HELD), settings.parent)


def running_name(started_ns: int, process: int, rank: str) -> str:
    """The name of a part while its process runs; by it parts are in the order in which they began.

    `rank` is what a launcher has told the process, which may be killed before it can say more; else it is empty.
    """
    return f"{started_ns}-{process}{_mark(rank)}.part"


def finished_name(path: str, rank: str) -> str:
    """The name that a closed part is given; `rank` is empty for a process that is none."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{name.removesuffix('.part').partition(_RANK)[0]}{_mark(rank)}.anymps")


def _mark(rank: str) -> str:
    return f"{_RANK}{rank}" if rank.isdecimal() else ""


def _named(parts: list[tuple[Path, Recording]]) -> Iterator[tuple[str, Recording]]:
    """By their ranks, and those that are none numbered after the main process, which is the first."""
    number = 1
    for file, recording in parts:
        _, mark, rank = file.stem.partition(_RANK)
        number += not mark
        yield f"rank {rank}" if mark else f"process {number}", recording


def _order(file: Path) -> tuple[bool, int, str]:
    """Ranks by their numbers, then the others as they began."""
    _, mark, rank = file.stem.partition(_RANK)
    return (not mark, whole(rank) or 0, file.name)


def _last_written(file: Path) -> int:
    """When, in nanoseconds; 0 if it has just got its last name."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _is_worth(recording: Recording) -> bool:
    return recording.entry_count > 0 or bool(recording.refusals())


def _is_of(file: Path, lines: list[str]) -> bool:
    """Whether one of the lines tells of this file."""
    return any(str(file) in line for line in lines)


def _join(
    own: Recording, parts: list[tuple[str, Recording]], path: Path | None, by_end: list[tuple[str, Recording]]
) -> Recording:
    """All of them; the script's own facts are those of the run. `by_end` are the parts as their processes ended."""
    from anymps.record import join_into

    facts = {**own.meta, **_ending(own, by_end)}
    whole = ("script", "arguments", "directory", "process", "started", "wall_seconds", "ending", "steps", "steps_seen")
    return join_into([(MAIN, own), *parts], path, {key: facts[key] for key in whole if key in facts})


def _ending(own: Recording, parts: list[tuple[str, Recording]]) -> dict[str, object]:
    """How the run ended, where the script's own exception only says that a process failed: as that process did.

    Of several the first counts: those that wait for it at a collective fail because it is gone.
    """
    launcher = own.run.ending
    if launcher.exception not in _LAUNCHERS:
        return {}
    for name, part in parts:
        if part.run.ending.exception not in ("", "KeyboardInterrupt"):
            status = 1 if launcher.status is None else launcher.status
            return {"ending": {**cast("dict[str, object]", part.meta["ending"]), "status": status, "process": name}}
    return {}


def _left_in(folder: Path) -> list[Path]:
    """The parts that lie there; none where the folder is gone, as a script that closes all descriptors gives it up."""
    with suppress(FileNotFoundError):
        return [entry for entry in folder.iterdir() if entry.suffix in (".part", ".anymps")]
    return []


def _running(folder: Path) -> list[Path]:
    return list(folder.glob("*.part"))


def _process_of(file: Path) -> int:
    return int(file.stem.split("-")[1])


def _runs(file: Path) -> bool:
    """Whether the process of this part is still there. One that has ended and was not waited for is not."""
    if file.suffix != ".part":
        return False
    ident = _process_of(file)
    try:
        os.kill(ident, 0)
    except OSError:
        return False
    with suppress(OSError, IndexError):
        return Path(f"/proc/{ident}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _hook_is_installed() -> bool:
    """Whether this Python runs our hook when it starts."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return any(os.path.exists(os.path.join(folder, _HOOK_FILE)) for folder in folders)
