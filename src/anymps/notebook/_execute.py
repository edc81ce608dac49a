"""Runs a notebook in a new kernel, cell by cell, as Jupyter does (nbclient)."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any, TextIO

from anymps._errors import UsageError

_BEGIN = "import json, anymps.notebook\nanymps.notebook.begin(get_ipython(), *json.loads({!r}))"
_FINISH = "anymps.notebook.finish({!r})"


def read(path: Path) -> Any:
    """The notebook of a file. Raises UsageError, in one line: it is none, or what reads it is not installed."""
    nbformat = _library("nbformat")
    _library("nbclient")
    _library("ipykernel")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except OSError as error:
        raise UsageError(f"the notebook {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # what nbformat raises depends on what is wrong
        said = " ".join(str(error).split())
        raise UsageError(f"{path} is not a notebook: {said[:200] or type(error).__name__}") from error
    return notebook


def execute(path: Path, device: dict[str, Any], recording: dict[str, Any], out: TextIO, err: TextIO) -> bool:
    """Run all cells in the folder of the notebook, recorded in its kernel; what they print goes to `out` and `err`.

    Gives whether a cell failed; its traceback is on `err`. The file stays as it is. Raises
    UsageError if the notebook cannot be read, the device cannot be had or the kernel dies.
    """
    return asyncio.run(_execute(path, read(path), device, recording, out, err))


async def _execute(
    path: Path, notebook: Any, device: dict[str, Any], recording: dict[str, Any], out: TextIO, err: TextIO
) -> bool:
    nbclient, nbformat = _library("nbclient"), _library("nbformat")
    cells = list(notebook.cells)
    last = len(cells)
    own = nbformat.v4.new_code_cell(_BEGIN.format(json.dumps([device, recording])))
    notebook.cells = [*cells, own]

    class Client(nbclient.NotebookClient):  # type: ignore[misc,name-defined,unused-ignore]
        def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
            _show(msg["msg_type"], msg["content"], out, err, own=cell_index == last)
            return super().output(outs, msg, display_id, cell_index)

    client = Client(
        notebook,
        timeout=None,
        startup_timeout=600,  # a busy machine
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # it warns of its own connection
        resources={"metadata": {"path": str(path.absolute().parent)}},
    )
    failed = False
    try:
        async with client.async_setup_kernel():
            try:
                await client.async_execute_cell(own, last, store_history=False)
            except nbclient.exceptions.CellExecutionError as error:
                raise UsageError(str(error.evalue).removeprefix("anymps: ")) from None
            try:
                for number, cell in enumerate(cells):
                    await client.async_execute_cell(cell, number)
            except nbclient.exceptions.CellExecutionError:
                failed = True
            own.source = _FINISH.format(failed)
            await client.async_execute_cell(own, last, store_history=False)
    except nbclient.exceptions.DeadKernelError:
        raise UsageError(f"the kernel of {path} died; its recording up to there is kept") from None
    return failed


def _show(kind: str, content: Any, out: TextIO, err: TextIO, *, own: bool) -> None:
    """The output of a cell, as text, while it runs; of anymps's own cells only stderr."""
    if kind == "stream" and not (own and content["name"] == "stdout"):
        print(content["text"], end="", file=out if content["name"] == "stdout" else err, flush=True)
    elif kind == "error" and not own:
        print("\n".join(content["traceback"]), file=err, flush=True)
    elif "text/plain" in content.get("data", {}):
        print(content["data"]["text/plain"], file=out, flush=True)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    raise UsageError(f"a notebook needs {name}: {sys.executable} -m pip install 'nbclient>=0.10' 'ipykernel>=6.29'")
