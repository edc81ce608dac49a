"""Code whose frames are never the user's: torch, anymps, the standard library, and what torch itself writes."""

from __future__ import annotations

import getpass
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_GRAPH_CODE = "<eval_with_key>"  # the Python of a torch.fx graph, such as Dynamo's: torch/fx/graph_module.py

# Who times there is worth knowing, and the text of a doctest has no other file.
_THEIR_OWN = {"doctest", "timeit"}


def internal_folders() -> list[str]:
    """Folders and files whose frames are never the user's: `copy.deepcopy(model)` is where the user calls it.

    So is `logging.info("loss %s", loss)`, though the library formats the text.
    """
    import torch
    import typing_extensions

    here = Path(__file__).resolve().parent.parent
    folders = [str(Path(torch.__file__).parent) + os.sep, str(here) + os.sep, *written_by_torch()]
    folders += _start_of_a_child()
    return [*folders, typing_extensions.__file__, *_standard_library()]  # what torch deprecates runs in that file


def written_by_torch() -> tuple[str, str]:
    """How the names of files begin whose Python torch writes at run time: a compiled model's, a graph's."""
    return _compiled_code() + os.sep, _GRAPH_CODE


def _start_of_a_child() -> tuple[str, ...]:
    """The code that `multiprocessing` gives a new Python with `-c`: all of that process is called from there."""
    words = getattr(sys, "orig_argv", [])
    started = "--multiprocessing-fork" in words or any("multiprocessing.forkserver" in word for word in words)
    return ("<string>",) if started else ()


def _compiled_code() -> str:
    """Where Inductor keeps the Python that it writes: a compiled model runs where the user calls it.

    As `cache_dir` of torch/_inductor/runtime/cache_dir_utils.py (torch 2.11 to 2.15), whose import takes long.
    """
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named is not None:
        return os.path.abspath(named)
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    return os.path.join(tempfile.gettempdir(), "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def _standard_library() -> Iterator[str]:
    """Its modules, one by one: what is installed lies in the same folder."""
    library = os.path.dirname(os.__file__)
    for name in sorted(sys.stdlib_module_names - _THEIR_OWN):
        path = os.path.join(library, name)
        if os.path.isfile(f"{path}.py"):
            yield f"{path}.py"
        elif os.path.isdir(path):
            yield path + os.sep
