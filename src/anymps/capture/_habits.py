"""Facts that no operator shows: how batches are loaded, which optimizer steps, which precision, what is timed.

Each is a mark on the tape, `anymps::<what> {"fact": value}`, written when a loader's iterator, a scaler or the like is
made, or once a line: nothing here runs for every operator. `docs/architecture/recording-file.md` lists the marks.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import multiprocessing.queues
import os
import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils.data._utils.worker import _worker_loop
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

from anymps.capture._clocks import watch_clocks
from anymps.capture._compiling import CompileWatch
from anymps.capture._core import Core, Finish, Undo, note_facts, stand_in
from anymps.capture._memory_growth import MemoryGrowth
from anymps.capture._origins import user_frames
from anymps.capture._precision import Precision
from anymps.capture._transfer_sources import find_birth, find_data_set, find_name
from anymps.device.cuda import on_use
from anymps.source import is_main_guard, statements_around, tree_of_frame

_MAX_LOOKED = 200  # objects of a data set looked at for what cannot go to a worker
_MOST_ITEMS = 20  # of a container
_BAR = re.compile(r"[/\\](?:site|dist)-packages[/\\](?:tqdm|rich)[/\\]")
_SPAWNING = ("", "spawn", "forkserver")  # empty is the system's default, which is spawn on a Mac
_OPTIONS = ("fused", "foreach", "capturable", "differentiable", "eps")
_STAYS = 3  # a tensor copied in parts for so many steps is a data set, not a batch


@dataclass
class _DataSet:
    """A tensor of the CPU of which a line copied a part, and the steps since then."""

    tensor: weakref.ref[torch.Tensor]
    site: int
    name: str
    steps: int = 0


class Habits:
    """Installs the hooks that note what a script does, and removes them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._made: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._loaders: weakref.WeakKeyDictionary[DataLoader[Any], int] = weakref.WeakKeyDictionary()
        self._memory_growth = MemoryGrowth(core.is_internal)
        self._compiling = CompileWatch(core)
        self._precision = Precision(core, self._note_once)
        self._data_sets: list[_DataSet] = []
        self._counted_optimizer: weakref.ref[torch.optim.Optimizer] | None = None  # the optimizer whose steps count
        self._noted_lines: set[tuple[str, int]] = set()

    def install(self) -> list[Undo]:
        """Start to watch; what is returned ends it."""
        undo: list[Undo] = []
        self._replace(undo, DataLoader, "__init__", self._loader_made)
        self._replace(undo, _BaseDataLoaderIter, "__init__", self._loader)
        self._replace(undo, multiprocessing.process.BaseProcess, "start", self._process)
        self._replace(undo, multiprocessing.queues.Queue, "put", self._put)
        self._replace(undo, torch.optim.Optimizer, "__init__", self._optimizer)
        for owner, name, watched in self._precision.watched():
            self._replace(undo, owner, name, watched)
        self._replace(undo, torch, "compile", self._compile)
        self._replace(undo, torch.cuda, "_lazy_init", self._cuda)
        on_use(self._cuda_answered)
        undo += [lambda: on_use(None), self._watch_settings(torch.backends.mps)]
        return [*undo, self._compiling.start(), *watch_clocks(self._core)]

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        if self._counted_optimizer is None:
            self._counted_optimizer = weakref.ref(optimizer)
        if self._counted_optimizer() is optimizer:
            self._data_sets_that_stay()
            for grown in self._memory_growth.step():
                site = self._core.site(grown.file, grown.line, grown.function, "")
                note_facts(self._core, "keeps", site, 0, {"name": grown.name, "graph": grown.graph})
        if optimizer in self._optimizers:
            return
        self._optimizers.add(optimizer)
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        on_mps = [weight for weight in weights if weight.device.type == "mps"]
        kind = type(optimizer)
        facts = {
            "name": kind.__name__,
            "torch": kind.__module__.startswith("torch.optim."),
            "tensors": len(weights),
            "on_mps": len(on_mps),
            "dtypes": sorted({str(weight.dtype).removeprefix("torch.") for weight in on_mps}),
        } | {
            name: sorted({repr(group[name]) for group in optimizer.param_groups if name in group}) for name in _OPTIONS
        }
        note_facts(self._core, "optimizer", self._core.current_site(), self._made.get(optimizer, 0), facts)

    def copied(self, tensor: torch.Tensor, site: int, again: bool) -> None:
        """A CPU tensor was copied to mps at a line for the first time, or unchanged for the third step."""
        if again:
            name, kept = find_name(tensor, self._core.is_internal)
            note_facts(self._core, "constant", site, 0, {"name": name, "kept": kept, "bytes": tensor.nbytes})
            return
        birth = find_birth(tensor, self._core.is_internal)
        if birth is not None:
            origin = self._core.site(birth.file, birth.line, birth.function, "")
            facts = {"expression": birth.expression, "generator": birth.generator, "number": tensor.dim() == 0}
            note_facts(self._core, "born", site, origin, facts)
        elif (found := find_data_set(tensor, self._core.is_internal)) is not None:
            name, whole, outlives = found
            if outlives:
                note_facts(self._core, "data_set", site, 0, {"name": name, "bytes": whole.nbytes})
            else:
                self._data_sets.append(_DataSet(weakref.ref(whole), site, name))

    def _data_sets_that_stay(self) -> None:
        """Note the data sets of lines that copied a part a few steps ago, and that are still there: no batches."""
        for known in [*self._data_sets]:
            known.steps += 1
            whole = known.tensor()
            if whole is None or known.steps == _STAYS:
                self._data_sets.remove(known)
            if whole is not None and known.steps == _STAYS:
                note_facts(self._core, "data_set", known.site, 0, {"name": known.name, "bytes": whole.nbytes})

    def _loader_made(self, loader: Any, *_: Any, **__: Any) -> None:
        self._loaders[loader] = self._core.current_site()

    def _loader(self, _: Any, loader: Any, *rest: Any, **named: Any) -> None:
        workers = loader.num_workers
        facts: dict[str, object] = {
            "workers": workers,
            "pin_memory": bool(loader.pin_memory),
            "persistent": bool(loader.persistent_workers),
        }
        if workers:
            context = loader.multiprocessing_context
            method = str(context.get_start_method()) if context is not None else _chosen_start_method()
            facts |= {"start_method": method, "guarded": _is_guarded()}
            given = _of(loader, "collate_fn", "worker_init_fn", "dataset")
            facts |= {"unpicklable": _unpicklable(given)} if method in _SPAWNING else {}
            facts |= {"on_mps": _on_mps(given)}
        # Before the workers start, which may fail.
        note_facts(self._core, "loader", self._site_around_bars(), self._loaders.get(loader, 0), facts)

    def _process(self, process: Any) -> None:
        site = self._core.current_site()
        # A loader's workers are its own matter; those that a pool starts again later have no line of the program's.
        if site and process._target is not _worker_loop:
            method = str(process._start_method or _chosen_start_method())
            facts: dict[str, object] = {"start_method": method, "guarded": _is_guarded()}
            unpicklable = _unpicklable(_of(process, "_target", "_args")) if method in _SPAWNING else ""
            note_facts(self._core, "process", site, 0, facts | {"unpicklable": unpicklable.lstrip("_")})

    def _put(self, _: Any, *given: Any, **named: Any) -> None:
        # A thread of the queue's sends it later, and prints what torch says to that: here is the line.
        if _on_mps(named | dict(enumerate(given))):
            self._note_once("sent")

    def _optimizer(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self._made[optimizer] = self._core.current_site()

    def _watch_settings(self, backend: ModuleType) -> Undo:
        """Note each attribute that a program gives a module of torch which has none of that name."""
        plain, known, note = type(backend), frozenset(vars(backend)), self._note_once

        class Watched(plain):  # type: ignore[misc, valid-type]
            def __setattr__(self, name: str, value: object) -> None:
                if name not in known:
                    note("backend_attribute", name=name)
                super().__setattr__(name, value)

        backend.__class__ = Watched
        return lambda: ModuleType.__setattr__(backend, "__class__", plain)

    def _compile(self, *given: Any, **named: Any) -> None:
        backend, mode = named.get("backend", "inductor"), named.get("mode")
        model = given[0] if given else named.get("model")
        owner = getattr(model, "__self__", model)  # of a method
        parts = owner.modules() if isinstance(owner, torch.nn.Module) else ()
        self._note_once(
            "compile",
            backend=backend if isinstance(backend, str) else "",
            mode=mode or "",
            layer_norm=any(isinstance(part, torch.nn.LayerNorm) for part in parts),
        )

    def _cuda(self, *_: Any, **__: Any) -> Finish:
        def asked(error: BaseException | None) -> None:
            if isinstance(error, AssertionError):  # built without
                self._note_once("cuda")

        return asked

    def _cuda_answered(self, refused: str, passed: bool) -> None:
        if passed:
            self._note("passed_over", sentence=refused)
        elif refused:
            self._note("cuda_refused", sentence=refused)
        else:
            self._note_once("cuda_answered")

    def _replace(self, undo: list[Undo], owner: Any, name: str, watched: Callable[..., Finish | None]) -> None:
        """Tell `watched` of each call, with its arguments; what it gives is called when the call is through."""
        undo.append(stand_in(owner, name, self._core.watch_calls(getattr(owner, name), watched)))

    def _site_around_bars(self) -> int:
        """The line of a loop, not that of a progress bar which the loop goes through: `for x in tqdm(loader)`."""
        frames = user_frames(self._core.is_internal)
        first = next(frames, None)
        if first is None or not _BAR.search(first.f_code.co_filename):
            return int(self._core.current_site())
        around = next((frame for frame in frames if not _BAR.search(frame.f_code.co_filename)), first)
        return int(self._core.site(around.f_code.co_filename, around.f_lineno, around.f_code.co_name, ""))

    def _note(self, what: str, **facts: object) -> None:
        note_facts(self._core, what, self._core.current_site(), 0, facts)

    def _note_once(self, what: str, other: int = 0, site: int | None = None, /, **facts: object) -> None:
        """Once a line: the running one, or `site`."""
        site = self._core.current_site() if site is None else site
        if (what, site) not in self._noted_lines:
            self._noted_lines.add((what, site))
            note_facts(self._core, what, site, other, facts)


@functools.cache
def _chosen_start_method() -> str:
    """The start method that the program asked for; empty where it leaves it to the system.

    Asked once: the first workers of a process settle it, and later the system's choice looks like the program's.
    """
    return torch.multiprocessing.get_start_method(allow_none=True) or ""


def _is_guarded() -> bool | None:
    """Whether the script's own line that runs now lies under `if __name__ == "__main__"`; None if that cannot be told.

    A worker that is spawned imports the script again, and runs whatever has no such guard. It does not import the
    `__main__` of a package (multiprocessing/spawn.py, _fixup_main_from_name).
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if (
            frame.f_code.co_name == "<module>"
            and frame.f_globals.get("__name__") == "__main__"
            and os.path.isfile(file)
        ):
            if str(getattr(frame.f_globals.get("__spec__"), "name", "")).endswith(".__main__"):
                return None
            tree = tree_of_frame(frame)
            return None if tree is None else any(map(is_main_guard, statements_around(tree, frame.f_lineno)[:1]))
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _first_of(given: Mapping[Any, Any], is_meant: Callable[[Any], bool], is_closed: Callable[[Any], bool]) -> str:
    """The path to the first thing that is meant among those that another process is given, and in what they hold.

    Breadth first, each thing once, and not within what is closed; empty where there is none.
    """
    queue = deque((str(name), thing) for name, thing in given.items())
    seen: set[int] = set()
    while queue and len(seen) < _MAX_LOOKED:
        path, value = queue.popleft()
        if value is None or id(value) in seen:
            continue
        seen.add(id(value))
        if is_meant(value):
            return path
        if not is_closed(value):
            queue += ((f"{path}{way}", held) for way, held in _held_by(value))
    return ""


def _held_by(value: Any) -> Iterator[tuple[str, Any]]:
    """What a thing holds, each with the way to it."""
    if isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{number}]", item) for number, item in enumerate(value[:_MOST_ITEMS]))
    elif isinstance(value, dict):
        yield from ((f"[{name!r}]", item) for name, item in list(value.items())[:_MOST_ITEMS])
    elif not isinstance(value, (torch.Tensor, type, ModuleType, FunctionType)):
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())


def _of(owner: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in names}


def _unpicklable(given: Mapping[Any, Any]) -> str:
    """What cannot be pickled, as it has no name to import it by: lambdas, local functions, objects of local classes."""
    return _first_of(given, _is_nameless, lambda value: not _pickles_as_usual(value))


def _is_nameless(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return "<" in value.__qualname__
    return "<locals>" in type(value).__qualname__ and _pickles_as_usual(value)


def _on_mps(given: Mapping[Any, Any]) -> str:
    """What lies on mps: tensors, wherever they are held."""
    return _first_of(
        given,
        lambda value: isinstance(value, torch.Tensor) and value.device.type == "mps",
        lambda value: isinstance(value, torch.nn.Module),
    )


def _pickles_as_usual(value: object) -> bool:
    """Whether an object is pickled by what it holds."""
    kind = type(value)
    usual = getattr(object, "__getstate__", None)
    return kind is functools.partial or (
        kind.__reduce__ is object.__reduce__
        and kind.__reduce_ex__ is object.__reduce_ex__
        and getattr(kind, "__getstate__", usual) is usual
    )
