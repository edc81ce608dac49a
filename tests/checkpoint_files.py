"""Checkpoints that this machine cannot make itself: with devices that it lacks, with hostile pickles, cut to pieces."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch


def rewrite(path: Path, change: Callable[[str, bytes], bytes], names: Callable[[str], str] = lambda name: name) -> None:
    """Write the records of a torch file again, each changed; its checksums are right again."""
    with zipfile.ZipFile(path) as archive:
        records = [(record.filename, archive.read(record)) for record in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records:
            archive.writestr(names(name), change(name, content))


def save_on(device: str, value: object, path: Path) -> None:
    """torch.save, as if the tensors lay on `device`."""
    torch.save(value, path)
    old, new = (struct.pack("<I", len(word)) + word.encode() for word in ("cpu", device))

    def change(name: str, content: bytes) -> bytes:
        return content.replace(b"X" + old, b"X" + new) if name.endswith("data.pkl") else content

    rewrite(path, change)


def save_pickle(content: bytes, path: Path) -> None:
    """A torch file whose structure is this pickle."""
    torch.save({"weight": torch.ones(2, dtype=torch.float64)}, path)
    rewrite(path, lambda name, old: content if name.endswith("data.pkl") else old)


def write_safetensors(path: Path, header: Mapping[str, Any] | bytes, data: bytes = b"") -> None:
    """A safetensors file with this header, whether it makes sense or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Evil:
    """Pickles as a call of `os.system`, which would leave a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, (f"touch {self.mark}",)


def evil_pickle(mark: Path) -> bytes:
    """What `Evil` pickles as."""
    return pickle.dumps({"weight": Evil(mark)}, protocol=2)
