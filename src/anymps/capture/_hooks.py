"""Steps, phases and modules without edits: hooks into the optimizer, the data loader and `nn.Module.__call__`."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Iterator
from types import FunctionType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.weak import WeakTensorKeyDictionary

from anymps.capture._core import Assign, Core, Finish, Undo, stand_in
from anymps.capture._habits import Habits
from anymps.capture._looks import Looks
from anymps.capture._part import Part
from anymps.record import Phase, Role, RoundKind, Wait
from anymps.record.loop import Rounds

_BATCH_MARK = "anymps::dataloader"
_ENGINE = "_engine_run_backward"  # what `backward` and `torch.autograd.grad` have in common


class Hooks:
    """Puts the hooks in place and takes them away again. One at a time in a process."""

    def __init__(
        self,
        core: Core,
        assign: Assign,
        rounds: Rounds,
        *,
        habits: bool,
        marks: Core | None,
        part: Part | None,
        looks: Looks | None,
    ) -> None:
        """`core` is the native module or an `ObserverCore`; `assign` says on its ledger what a storage is.
        `rounds` counts the steps of the program's loop.

        Without `habits`, only what belongs to operators is watched: steps, phases, modules. `marks` is the core that
        habits are told to, if it is another one; `part` and `looks` are told of the optimizers' steps.
        """
        self._core = core
        self._assign_storage = assign
        self._rounds = rounds
        self._part = part
        self._looks = looks
        self.habits = Habits(marks or core) if habits else None
        self._undo: list[Undo] = []
        self._former_phase: list[tuple[int, int]] = []  # with the time when the optimizer began
        self._optimizers = OptimizerNumbers()
        self._has_optimizer = False  # that has stepped
        self._numbers: dict[int, int] = {}
        self.new_modules: list[tuple[int, str, str]] = []
        self._count = 0

    def install(self) -> None:
        """Start to watch."""
        if self._part is not None:
            self._optimizers.leave_out_older()
        before = register_optimizer_step_pre_hook(self._before_optimizer)
        after = register_optimizer_step_post_hook(self._after_optimizer)
        self._undo += [before.remove, after.remove]
        self._watch_loader()
        self._watch_backward()
        self._watch_modules()
        if self.habits is not None:
            self._undo += self.habits.install()

    def remove(self) -> None:
        """Leave torch as it was, and no phase on: an optimizer's step may be under way, or have raised."""
        while self._undo:
            self._undo.pop()()
        self._former_phase.clear()
        self._core.set_phase(0)

    def number_of(self, module: torch.nn.Module) -> int:
        """The module's number on the tape; a module seen first is a root, and names all modules inside it."""
        known = self._numbers.get(id(module))
        if known is not None:
            return known
        root = type(module).__name__
        for name, inner in module.named_modules():
            if id(inner) not in self._numbers:
                self._number(inner, f"{root}.{name}" if name else root)
                self._assign(inner)
        return self._numbers[id(module)]

    def _assign(self, module: torch.nn.Module) -> None:
        """Say on the ledger which buffers of memory the module's own parameters and buffers are."""
        number = self._numbers[id(module)]
        for role, tensors in ((Role.PARAMETER, module._parameters), (Role.BUFFER, module._buffers)):
            for tensor in tensors.values():
                self._assign_tensor(tensor, role, number)

    def _assign_tensor(self, tensor: torch.Tensor | None, role: Role, module: int) -> None:
        if tensor is None or tensor.device.type != "mps" or tensor.layout is not torch.strided:
            return
        self._assign_storage(tensor.untyped_storage(), int(role), module)

    def _number(self, module: torch.nn.Module, path: str) -> None:
        self._count += 1
        self._numbers[id(module)] = self._count
        self.new_modules.append((self._count, path, type(module).__name__))
        weakref.finalize(module, self._forget, id(module)).atexit = False

    def _forget(self, address: int) -> None:
        self._numbers.pop(address, None)
        self._core.forget_module(address)

    def _before_optimizer(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self.habits is not None:
            self.habits.optimizer(optimizer)
        self._former_phase.append((self._core.set_phase(int(Phase.OPTIMIZER)), self._core.clock_ns()))
        # What a closure runs is forward and backward, not the optimizer's own: Lightning runs the whole step in one.
        if callable(kwargs.get("closure")):
            return args, kwargs | {"closure": self._outside(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._outside(args[1]), *args[2:]), kwargs
        return None

    def _outside(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure in no phase of its own."""

        def outside(*_: Any, **__: Any) -> Finish:
            former = self._core.set_phase(0)
            return lambda _: self._core.set_phase(former if self._undo else 0)

        outer: Callable[..., Any] = self._core.watch_calls(closure, outside)
        return outer

    def _after_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        phase, start = self._former_phase.pop() if self._former_phase else (0, self._core.clock_ns())
        self._core.set_phase(phase)
        number = self._optimizers.number(optimizer)
        self._has_optimizer = True
        self._look()
        self._core.note_round(int(RoundKind.OPTIMIZER), number, start)
        self._core.end_step()
        self._rounds.step(number)
        if self._part is not None:
            self._part.stepped(self._optimizers.existing)

    def note_call(self, start: int) -> None:
        """A call that began then, and that is a step, whatever it calls, is over."""
        if not self._has_optimizer:
            self._look()
        # An optimizer that it calls has ended a step of its own: this one holds the whole call.
        self._core.note_round(int(RoundKind.CALLED), 0, start)

    def _look(self) -> None:
        """Before a step ends, so that the program's own code between two steps has nothing of it in it."""
        if self._looks is not None:
            self._looks.stepped(self._core.clock_ns)

    def _watch_loader(self) -> None:
        core = self._core
        original = _BaseDataLoaderIter.__next__

        def reading(_: _BaseDataLoaderIter) -> Finish:
            start = core.clock_ns()
            former = core.set_phase(int(Phase.BATCH))

            def read(_: BaseException | None) -> None:
                core.set_phase(former)
                core.mark(_BATCH_MARK, int(Phase.BATCH), start, core.clock_ns(), int(Wait.NONE))
                core.note_round(int(RoundKind.BATCH), 0, start)

            return read

        self._replace(_BaseDataLoaderIter, "__next__", core.watch_calls(original, reading))

    def _watch_backward(self) -> None:
        core = self._core
        original = getattr(torch.autograd, _ENGINE)

        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            start = core.clock_ns()
            result = original(outputs, *args, **kwargs)
            if any(getattr(output, "is_mps", False) for output in outputs):
                core.note_round(int(RoundKind.BACKWARD), 0, start)
            return result

        self._replace(torch.autograd, _ENGINE, run_backward)

    def _watch_modules(self) -> None:
        self._undo += [self._core.forget_modules, self._numbers.clear, self._core.unwatch_modules]
        call = torch.nn.Module.__call__
        if not isinstance(call, FunctionType):  # something else has replaced it
            original = call

            def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
                return original(module, *args, **kwargs)

            self._replace(torch.nn.Module, "__call__", call)
        self._core.watch_modules(call)

    def _replace(self, owner: Any, name: str, replacement: object) -> None:
        self._undo.append(stand_in(owner, name, replacement))


def drain_modules(hooks: Hooks) -> Iterator[tuple[int, str, str]]:
    """The modules numbered since the last call."""
    while hooks.new_modules:
        yield hooks.new_modules.pop(0)


class OptimizerNumbers:
    """A number for each optimizer, by its first parameters: how many there are, and which is first.

    One that is made anew in each round keeps its number, and so does one that is given further groups. Optimizers of
    other parts of the same modules have others.
    """

    def __init__(self) -> None:
        self._by_parameter = WeakTensorKeyDictionary()
        self._without: weakref.WeakKeyDictionary[Optimizer, dict[int, int]] = weakref.WeakKeyDictionary()
        self._older: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._count = 0

    def number(self, optimizer: Optimizer) -> int:
        """The number of an optimizer, from 1 on."""
        parameters = optimizer.param_groups[0]["params"]
        # A wrapper may say that it has another's parameters, which are no tensors then.
        has_one = bool(parameters) and isinstance(parameters[0], torch.Tensor)
        known, key = (self._by_parameter, parameters[0]) if has_one else (self._without, optimizer)
        numbers: dict[int, int] = known.setdefault(key, {})
        if len(parameters) not in numbers:
            self._count += 1
            numbers[len(parameters)] = self._count
        return numbers[len(parameters)]

    def leave_out_older(self) -> None:
        """Have `existing` leave out the optimizers made so far: most are left over from what ran before."""
        self._older.update(_made())

    def existing(self) -> Collection[int]:
        """The numbers of the optimizers that there are in this process, whether they have stepped or not."""
        made = (found for found in _made() if found not in self._older)
        return {self.number(optimizer) for optimizer in made if getattr(optimizer, "param_groups", None)}


def _made() -> list[Optimizer]:
    return [found for found in gc.get_objects() if issubclass(type(found), Optimizer)]  # asks no proxy for its type
