"""Recordings that can be reused: that of the last `anymps run`, and the first run of the last `anymps fix`."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps._atomic import replace_text, replacing
from anymps._errors import AnympsError
from anymps._settings import variable_of
from anymps._version import __version__
from anymps.commands._judge import Judge
from anymps.commands._last_run import last_recording
from anymps.commands.fix._runs import host_of, told_of
from anymps.commands.isolated import Order, error_of
from anymps.findings import Finding
from anymps.mac import DEFAULT_MAC, parse_mac
from anymps.record import Recording

if TYPE_CHECKING:
    from anymps.fix import Program, Ran

_RECORDING, _FACTS = "fix.anymps", "fix.json"
_VARIABLES = ("ANYMPS_", "PYTORCH_", "PYTHONPATH", "PYTHONHASHSEED", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class KeptRun:
    """The place of a script's run as it stood, in the user's cache, for a program and how it is run."""

    program: Program
    words: tuple[str, ...]
    order: Order

    def load(self) -> tuple[Ran, tuple[Finding, ...]] | None:
        """The run and its findings, if it was of the same script, arguments, options and sources; else None."""
        from anymps.fix import Ran

        try:
            folder = last_recording().parent
            kept = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
            if kept["key"] != self._key() or kept["sources"] != _digests(kept["sources"]):
                return None
            if kept["recording"] != _digest(folder / _RECORDING):
                return None
            with Recording.open(folder / _RECORDING) as opened:
                findings = tuple(Judge(self.program.main.path).judge(opened).findings)
        except (OSError, ValueError, KeyError, AnympsError):
            return None
        ran = kept["ran"]
        for name in ("losses", "printed", "places", "modules"):
            ran[name] = tuple(ran[name])
        ran["host"] = tuple(ran["host"])
        ran["trail"] = tuple((file, line) for file, line in ran["trail"])
        return replace(Ran(**ran), rules=Counter(finding.id for finding in findings), found=frozenset()), findings

    def save(self, recording: Path, ran: Ran) -> None:
        """Keep a run. Where there is no place for it, nothing is kept."""
        facts = {
            "key": self._key(),
            "sources": _digests({str(self.program.main.path.resolve()), *ran.modules}),
            "recording": _digest(recording),
            "ran": {**asdict(replace(ran, reached=None, found=frozenset())), "rules": {}, "found": ()},
        }
        with suppress(OSError, AnympsError):
            folder = last_recording().parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)  # what a script's lines and arguments say is for its user alone
            with recording.open("rb") as file, replacing(folder / _RECORDING, sync=False) as copy:
                shutil.copyfileobj(file, copy)
            replace_text(folder / _FACTS, json.dumps(facts))  # last: it names the digest of the recording

    def _key(self) -> dict[str, Any]:
        from anymps.fix import Ran

        return {
            "words": list(self.words),
            "directory": os.getcwd(),
            "order": {**self.order.asked.device(), "steps": self.order.steps},
            "versions": [__version__, _torch_version()],
            "facts": sorted(row.name for row in fields(Ran)),
            "environment": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(_VARIABLES)},
        }


def last_run(program: Program, words: Sequence[str], order: Order) -> tuple[Ran, tuple[Finding, ...]] | None:
    """What the last `anymps run` recorded, and its findings, if it was of this script, with these arguments, on this
    Mac, and no source has changed since; else None. It tells no losses and no printed numbers.
    """
    from anymps.fix import Ran

    if order.steps is not None or not last_recording().exists():
        return None
    try:
        with Recording.open(last_recording()) as opened:
            if not _is_of(opened, program, words, order):
                return None
            findings = tuple(Judge(program.main.path).judge(opened).findings)
            ending = opened.meta.get("ending")
            seconds = opened.meta.get("wall_seconds")
            ran = Ran(
                error=error_of(ending) if isinstance(ending, dict) else "",
                losses=(),
                printed=(),
                rules=Counter(finding.id for finding in findings),
                told=told_of(opened, findings),
                host=host_of(opened),
                seconds=float(seconds) if isinstance(seconds, (int, float)) else 0.0,
                modules=tuple(sorted({line.file for line in opened.lines() if line.file})),
            )
    except AnympsError:
        return None
    return ran, findings


def _is_of(recording: Recording, program: Program, words: Sequence[str], order: Order) -> bool:
    from anymps.fix import source_files

    meta = recording.meta
    asked = {
        "script": words[0],
        "arguments": list(words[1:]),
        "directory": os.getcwd(),
        "anymps_version": __version__,
        "torch_version": _torch_version(),
    }
    if not recording.complete or "steps" in meta or any(meta.get(name) != value for name, value in asked.items()):
        return False
    if order.asked.fallback is not None and meta.get("fallback") != order.asked.fallback:
        return False
    mac = parse_mac(order.asked.mac or os.environ.get(variable_of("mac")) or DEFAULT_MAC.name)
    if meta.get("virtual") and meta.get("mac") != mac.name:
        return False
    if bool(recording.noted("cuda_answered")) != bool(order.asked.cuda_as_mps):
        return False
    began = datetime.fromisoformat(str(meta.get("started"))).timestamp()
    files = {*map(str, source_files(program)), *(line.file for line in recording.lines() if line.file)}
    return all(os.path.getmtime(file) < began for file in files if os.path.exists(file))


def _digests(files: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    return {file: _digest(Path(file)) for file in sorted(files)}


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _torch_version() -> str:
    """With its build, as torch itself says it, without loading torch."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""
