"""Calls of every function that PyTorch has for its accelerator, each in its own process: which of them end Python.

`python every_function.py` calls all of torch.accelerator, torch.mps and torch.cuda with CUDA answered, on a used and on
an unused device. It prints the functions that ended Python or did not return, with the last call and how it ended; the
exit code is 1 then. A process is a fork of one that has the device and has not used it yet.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import itertools
import os
import pkgutil
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

PATIENCE = 120.0
"""Seconds after which a function does not return."""

Make = Callable[[], Any]


def modules(root: ModuleType) -> Iterator[ModuleType]:
    """A package and all that is in it."""
    yield root
    for found in pkgutil.walk_packages(getattr(root, "__path__", []), f"{root.__name__}."):
        with contextlib.suppress(ImportError):  # wants CUDA's own libraries
            yield importlib.import_module(found.name)


def public_functions(*roots: ModuleType) -> dict[str, Any]:
    """Functions and classes of these packages by their full names, once each; private ones, too."""
    homes = (*(root.__name__ for root in roots), "torch._C", "anymps.device")
    found: dict[int, tuple[str, Any]] = {}
    for module in itertools.chain.from_iterable(map(modules, roots)):
        for name, value in vars(module).items():
            if (
                callable(value)
                and not name.startswith("__")
                and str(getattr(value, "__module__", "")).startswith(homes)
            ):
                found.setdefault(id(value), (f"{module.__name__}.{name}", value))
    return dict(found.values())


def bindings(*prefixes: str) -> dict[str, Any]:
    """The functions of `torch._C` whose names begin so."""
    import torch

    return {f"torch._C.{name}": getattr(torch._C, name) for name in dir(torch._C) if name.startswith(prefixes)}


def arguments() -> Iterator[tuple[Make, ...]]:
    """What a function is called with: nothing, each of the values, and pairs, threes and fours of a few."""
    import torch

    plain = (0, -1, 1, 10**6, 2**40, 1.5, True, None, "mps", "mps:1", "cpu", "", b"", [], torch.device("mps"))
    values: list[Make] = [lambda value=value: value for value in plain]  # type: ignore[misc]
    values += [
        lambda: torch.zeros(3),
        lambda: torch.zeros(3, device="mps"),
        lambda: torch.zeros(3, device="mps").untyped_storage(),
        lambda: torch.Stream("mps"),
        lambda: torch.Event(device="mps"),
        lambda: torch.mps.Event(),
    ]
    few = [values[0], values[2], values[6], values[8], *values[-5:-1]]
    yield ()
    yield from ((value,) for value in values)
    yield from itertools.product(few, few)
    yield from ((value,) * count for value in few[:4] for count in (3, 4))


def call_all_ways(function: Any, tell: Callable[[str], None]) -> None:
    """Call it with all arguments; enter what is a context, and call the methods of what a class makes."""
    for made in arguments():
        with contextlib.suppress(Exception, SystemExit):
            given = [make() for make in made]
            tell(f"{given!r:.200}")
            result = function(*given)
            if hasattr(result, "__enter__"):
                with result:
                    pass
            if isinstance(function, type):
                call_methods(result, f"{given!r:.200}", tell)


def call_methods(thing: Any, how: str, tell: Callable[[str], None]) -> None:
    """Call the public methods of an object."""
    for name in dir(thing):
        if not name.startswith("_"):
            for given in ((), (0,), (thing,), ("mps",)):
                tell(f"{how}.{name}{given!r:.100}")
                with contextlib.suppress(Exception, SystemExit):
                    getattr(thing, name)(*given)


def use_device() -> None:
    """What a program has done before."""
    import torch

    (torch.ones(8, device="mps") * 2).sum().item()


def in_child(function: Any, used: bool, out: int) -> None:
    """The forked process: nothing is printed, and files are written to a folder that goes."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        faulthandler.disable()  # pytest's writes to another descriptor
        if used:
            use_device()
        call_all_ways(function, lambda text: void(os.write(out, f"{text}\n".encode())))
        os.chdir("/")


def void(_: object) -> None:
    """Nothing of a value."""


def end_of(function: Any, used: bool) -> str | None:
    """How the process of a function ended, if it did not end by itself: the last call, and the signal."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with contextlib.suppress(BaseException):
            in_child(function, used, writing)
        os._exit(0)
    os.close(writing)
    told, silent = _read(reading, time.monotonic() + PATIENCE)
    os.close(reading)
    if silent:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return None
    how = "does not return" if silent else signal.Signals(os.WTERMSIG(status)).name
    return f"{told}: {how}"


def _read(pipe: int, deadline: float) -> tuple[str, bool]:
    told = b""
    while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            return _last_line(told), False
        told = (told + chunk)[-4096:]
    return _last_line(told), True


def _last_line(told: bytes) -> str:
    lines = told.decode(errors="replace").splitlines()
    return lines[-1] if lines else "before the first call"


def run(functions: dict[str, Any]) -> dict[str, str]:
    """The functions that end Python or do not return, by name, with the call and how it ended."""
    ends = {}
    for name, function in functions.items():
        for used in (False, True):
            if (end := end_of(function, used)) is not None:
                ends[f"{name}, {'used' if used else 'unused'} device"] = end
    return ends


def main() -> int:
    """Call all of them: first those of mps, then with `--cuda-as-mps` those of torch.cuda."""
    import torch

    import anymps

    anymps.enable(quiet=True)
    mps = public_functions(torch.accelerator, torch.mps, torch.backends.mps) | bindings("_mps_", "_accelerator_")
    ends = run(mps)
    anymps.enable(quiet=True, cuda_as_mps=True)
    cuda = {name: function for name, function in public_functions(torch.cuda).items() if not is_typed_memory(function)}
    # Of a CUDA build: giving back a lock that nobody took ends Python with plain torch, too.
    cuda |= {name: function for name, function in bindings("_cuda_").items() if not name.endswith("_mutex")}
    ends |= run(cuda)
    print(f"{len(mps) + len(cuda)} functions, of which {len(ends)} end Python")
    print("\n".join(f"{name}: {how}" for name, how in ends.items()))
    return bool(ends)


def is_typed_memory(value: Any) -> bool:
    """Types of tensors and storages: their hundreds of methods are torch's own, not the accelerator's."""
    return isinstance(value, type) and value.__name__.endswith(("Tensor", "Storage", "StorageBase"))


if __name__ == "__main__":
    sys.exit(main())
