"""Converts a directory of checkpoints, or the shards that an index names, as one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast

from anymps._errors import CheckpointError
from anymps._numbers import read_json
from anymps.checkpoints._file import TORCH_SUFFIXES, To, convert_file
from anymps.checkpoints._names import named_tensors
from anymps.checkpoints._place import Nowhere, new_file
from anymps.checkpoints._read import Checkpoint, ForeignClassError, damaged, format_of, printable, read, reading
from anymps.checkpoints._report import FileReport, Report

INDEX: Final = ".index.json"
_LARGEST_INDEX: Final = 1 << 28  # bytes


def convert_folder(source: Path, to: To | None, folder: Path | None, target: Path | None) -> Report:
    """Convert a directory, or the index file `source` and its shards, into `folder`, which becomes `target`.

    A dry run has neither. Raises CheckpointError for a shard that is missing or does not fit its index, and for what
    `convert_file` refuses.
    """
    return _Folder(source, to, folder, target).convert()


class _Folder:
    def __init__(self, source: Path, to: To | None, folder: Path | None, target: Path | None) -> None:
        self._top = source if source.is_dir() else source.parent
        self._only = None if source.is_dir() else source
        self._to = to
        self._folder = folder
        self._target = target
        self._report = Report()
        self._taken: set[Path] = set()

    def convert(self) -> Report:
        files = [self._only] if self._only else self._files()
        indices = [path for path in files if path.name.endswith(INDEX)]
        sharded: set[Path] = set()
        for index in indices:
            sharded |= self._index(index)
        for path in files:
            if path in sharded or path in indices:
                continue
            if path.suffix in (*TORCH_SUFFIXES, ".safetensors"):
                self._single(path)
            else:
                self._copy(path)
        if not self._report.files:
            reason = f": {self._report.remarks[0]}" if self._report.remarks else ""
            raise CheckpointError(f"{self._top} holds no checkpoint that can be converted{reason}")
        return self._report

    def _files(self) -> list[Path]:
        """All files, in a fixed order. Links to files are followed; links to directories may go in circles."""
        found: list[Path] = []

        def failed(error: OSError) -> None:
            raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}")

        for directory, folders, names in os.walk(self._top, onerror=failed):
            here = Path(directory)
            for name in sorted(folders):
                if (here / name).is_symlink():
                    self._report.remarks.append(f"{here / name} is a link to a directory and was left out")
            folders.sort()
            for name in sorted(names):
                path = here / name
                if path.is_file():
                    found.append(path)
                else:
                    self._report.remarks.append(f"{path} is not a file and was left out")
        return found

    def _index(self, index: Path) -> set[Path]:
        """Convert the shards of an index and write the new one. Returns the shards."""
        document = _read_index(index)
        weights: dict[str, str] = document["weight_map"]
        wanted: dict[str, set[str]] = {}
        for tensor, shard in weights.items():
            wanted.setdefault(shard, set()).add(tensor)
        shards: dict[str, Path] = {}
        for shard in wanted:
            path = index.parent / shard
            if not path.is_file():
                raise CheckpointError(f"{index} names the shard {printable(shard)}, which does not exist")
            shards[shard] = path
        total = 0
        renamed: dict[str, str] = {}
        absent: set[str] = set()
        for shard, path in shards.items():
            new, report = self._convert(read(path), self._to)
            total += sum(report.names.values())
            missing = sorted(wanted[shard] - set(report.names) - report.dropped)
            if missing:
                raise CheckpointError(f"{index} says that {printable(missing[0])} is in {shard}, where it is not")
            renamed[shard] = new.name
            absent |= wanted[shard] & report.dropped
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and "total_size" in metadata:
            metadata["total_size"] = total
        document["weight_map"] = {tensor: renamed[shard] for tensor, shard in weights.items() if tensor not in absent}
        name = index.name
        if any(renamed[shard] != shard for shard in renamed):
            name = f"{_weights_name(name.removesuffix(INDEX)).removesuffix('.safetensors')}.safetensors{INDEX}"
        text = json.dumps(document, indent=2) + "\n"
        with self._open(self._inside(index).with_name(name)) as out:
            out.write(text.encode())
        return set(shards.values())

    def _single(self, path: Path) -> None:
        """Convert a file that no index names; what a trainer keeps beside the weights may hold more than tensors."""
        try:
            format_of(path)
        except CheckpointError as error:
            if path.suffix != ".bin":  # any program's data may be called that
                raise
            self._leave(path, error)
            return
        try:
            file = read(path)
        except ForeignClassError as error:  # the trainer's settings
            self._leave(path, error)
            return
        to = self._to
        if to and file.format != to:
            try:
                named_tensors(file)
            except CheckpointError as error:  # the optimizer's state
                self._report.remarks.append(f"{error}; it stays a file of torch.save")
                to = None
        self._convert(file, to)

    def _convert(self, file: Checkpoint, to: To | None) -> tuple[Path, FileReport]:
        """Convert one file. Returns its new path in the directory, and the report."""
        new = self._inside(file.path)
        if to and file.format != to:
            new = new.with_name(f"{_weights_name(new.stem)}.safetensors")
        with self._open(new) as out:
            report = convert_file(file, out, to, None if self._target is None else self._target / new)
        self._report.files.append(report)
        return new, report

    def _leave(self, path: Path, why: CheckpointError) -> None:
        self._report.remarks.append(f"{why}; it was copied unchanged")
        self._copy(path)

    def _copy(self, path: Path) -> None:
        inside = self._inside(path)
        try:
            with path.open("rb") as file, self._open(inside) as out:
                shutil.copyfileobj(file, out)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be copied: {error.strerror}") from None
        self._report.copied.append(str(inside))
        if path.name == "config.json" and _asks_for_float64(path):
            self._report.remarks.append(
                f'{inside} asks for float64, and from_pretrained would create float64 again: set its dtype to "float32"'
            )

    def _inside(self, path: Path) -> Path:
        return path.relative_to(self._top)

    @contextmanager
    def _open(self, inside: Path) -> Iterator[BinaryIO]:
        """A new file of the directory, by its path in it."""
        if inside in self._taken:
            raise CheckpointError(f"{self._top}: two files would become {inside}: convert them one by one")
        self._taken.add(inside)
        if self._folder is None or self._target is None:
            yield cast(BinaryIO, Nowhere())
            return
        with new_file(self._folder / inside, self._target / inside) as out:
            yield out


def _weights_name(stem: str) -> str:
    """The name that libraries look for in the other format: pytorch_model.bin is model.safetensors."""
    return stem.removesuffix(".bin").replace("pytorch_model", "model", 1)


def _read_index(index: Path) -> dict[str, Any]:
    """An index, checked: names of tensors with names of files beside it. Raises CheckpointError if it is none."""
    with reading(index):
        if index.stat().st_size > _LARGEST_INDEX:
            raise CheckpointError(f"{index} is too large for an index")
        document = read_json(index.read_bytes(), object_pairs_hook=partial(_once, index))
    if not isinstance(document, dict):
        raise damaged(index, "its JSON is not an object")
    weights = document.get("weight_map")
    if not isinstance(weights, dict) or not weights or not all(isinstance(shard, str) for shard in weights.values()):
        raise CheckpointError(f"{index} is not an index of shards: it has no weight_map")
    for shard in weights.values():
        if shard in (".", "..") or PurePosixPath(shard).name != shard or "\\" in shard or "\0" in shard:
            raise CheckpointError(f"{index} names {printable(shard)}, which is not a file next to it")
    return document


def _once(index: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no name may stand twice."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise damaged(index, f"the name {printable(name)} is in it twice")
        seen.add(name)
    return dict(pairs)


def _asks_for_float64(config: Path) -> bool:
    try:
        document = read_json(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and any(
        str(document.get(key)).removeprefix("torch.") in ("float64", "double") for key in ("dtype", "torch_dtype")
    )
