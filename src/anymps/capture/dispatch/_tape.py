"""The tape in Python, for a device without the native core: entries, signatures, steps, phases as recorder/tape.cpp."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from time import perf_counter_ns  # bound before the clocks of a script are watched
from typing import Any

import torch

from anymps.capture.dispatch._sites import Sites
from anymps.record import Direction, Fate, Flag, Phase, RoundKind, Wait
from anymps.record.format import ENTRY, RoundRow, SignatureRow, StepRow

_FORWARD_SLOTS = 1 << 17  # as the native tape: how many autograd nodes back a module and line are remembered
_MOST_SEQUENCE = (1 << 63) - 1
_MOST_KNOWN = 1 << 18  # call positions a thread
_MOST_SIGNATURES = 1 << 17  # beyond this, calls of one operator are no longer told apart by sizes
_NAMED = 4  # tensors of such a call

_Forward = tuple[int, int, int, int]
_NOTHING: _Forward = (-1, 0, 0, 0)
Entry = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a packed entry in their order."""

graph_task: Callable[[], int] = torch._C._current_graph_task_id  # -1: no backward runs on this thread
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
_WAIT, _DIRECTION, _FLAGS, _REFUSAL = 10, 11, 12, 13
_HOST_COPIES = (int(Direction.CPU_TO_MPS), int(Direction.MPS_TO_CPU))
# As plain numbers: an operation on members of an enumeration takes longer than all the rest of an entry.
_AUTOGRAD_THREAD = int(Flag.AUTOGRAD_THREAD)
_MOST_ROUNDS = 1 << 20  # between two drains
_KEPT_FLAGS = int(Flag.HAZARD | Flag.UNSAFE_COPY | Flag.PAIR)


class ThreadState:
    """What a thread is doing."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.phase = 0
        # Where the thread is in the modules' calls. An operator's position is its place (`ordinal`) among those of one
        # call, and a call is known by the line of the outermost one and the places of those within: one module, called
        # twice, has two positions.
        self.module = 0
        self.ordinal = 0
        self.calls = 0
        self.path: Hashable = None
        self.below = 0  # how many operators are being called below autograd
        self.stack: list[tuple[int, int, int, Hashable]] = []
        self.known: dict[Any, tuple[int, int]] = {}
        # The module call that is no other's part and runs now: its number, line and start; and whether anything in it
        # reached the tape.
        self.outermost: tuple[int, int, int] | None = None
        self.wrote = False
        # Rows of buffers that no entry has explained yet, each with the line of its allocation where that is known.
        self.unattributed: list[tuple[list[int], int | None]] = []


class _Threads(threading.local):
    """Holds the state of each thread that asks."""

    state: ThreadState | None = None


class PythonTape:
    """Numbers and collects. Entries wait in a queue, and are packed and counted when they are drained."""

    def __init__(self, sites: Sites) -> None:
        self.on = False
        self.sparse = False  # plain calls are only counted
        self.sites = sites
        self._threads = _Threads()
        self._numbered = count()
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._entries: deque[Entry] = deque()
        self._signatures: dict[Any, int] = {}
        self._sizeless: dict[tuple[int, Fate, str, str], int] = {}  # signatures without sizes
        self._new_signatures: list[SignatureRow] = []
        self._steps: list[StepRow] = []
        self._rounds: list[RoundRow] = []
        self._totals: dict[tuple[int, ...], list[int]] = {}
        # By the sequence number of a node: that, module, line and operator. Graphs that are built inside a backward
        # (the recomputation of a checkpoint) have numbers of another thread, hence the second table.
        self._forward: list[_Forward] = [_NOTHING] * _FORWARD_SLOTS
        self._forward_inside: list[_Forward] = [_NOTHING] * _FORWARD_SLOTS
        self._limit = self._detailed = self._step_start = self._refusals = 0
        self._origin = perf_counter_ns()
        self._backward_step = -1
        self.step = 0

    def start(self, limit: int) -> None:
        """Begin; entries beyond `limit` are only counted, unless they wait, copy or are refused."""
        self._limit = limit
        self._origin = perf_counter_ns()
        self.on = True

    @property
    def here(self) -> ThreadState:
        """The calling thread's state."""
        state = self._threads.state
        if state is None:
            state = self._threads.state = ThreadState(next(self._numbered))
        return state

    def clock_ns(self) -> int:
        """Since the start."""
        return perf_counter_ns() - self._origin

    def operator(self, name: str) -> int:
        """The number of an operator or mark, from 0."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    def write(
        self,
        operator: int,
        fate: Fate,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        start: int,
        *,
        wait: Wait = Wait.NONE,
        direction: Direction = Direction.NONE,
        flags: int = 0,
        moved: int = 0,
        kept: bool = True,
    ) -> Entry:
        """Write one call that has just ended. A call that raised has no inputs and outputs here.

        One that is not `kept` has its place all the same: an allocation, which is a row of the ledger and no entry.
        """
        end = self.clock_ns()
        here = self.here
        matters = wait is not Wait.NONE or fate is not Fate.NATIVE or direction in _HOST_COPIES
        # Sizes and dtypes of the inputs tell the calls of one operator apart; what it gives follows from them.
        kind = (operator, fate, flags, *[(tensor.dtype, tensor.shape, tensor.is_mps) for tensor in inputs or outputs])
        site, sequence = 0, -1
        module = here.module
        if graph_task() != -1:
            phase: int = Phase.BACKWARD
            flags |= _AUTOGRAD_THREAD
            self._backward_step = self.step
        else:
            phase = here.phase or self._natural_phase(wait, direction)
        # A module that runs inside a backward is a checkpoint's: its operators are forward ones with own lines.
        if phase is Phase.BACKWARD and module == 0:
            sequence, module, site = self._forward_of()
            signature = self._intern(kind, operator, fate, inputs, outputs)
            if matters and site == 0:
                site = self.sites.current()
        else:
            following = sequence_number()
            sequence = following - 1
            position = (kind, here.path, here.ordinal)
            here.ordinal += 1
            known = here.known.get(position)
            if known is None:
                signature, site = self._intern(kind, operator, fate, inputs, outputs), self.sites.current()
                if len(here.known) < _MOST_KNOWN:
                    here.known[position] = signature, site
            else:
                signature, site = known
                if matters:
                    site = self.sites.current()
            if following > 0:
                slot = sequence & (_FORWARD_SLOTS - 1)
                table = self._forward_inside if phase is Phase.BACKWARD else self._forward
                if table[slot][0] != sequence:  # the first operator under a node is the node's own
                    table[slot] = (sequence, module, site, operator)
        entry = (
            start, end - start, moved, sequence, signature, module, site, self.step, here.number, phase, wait,
            direction, flags, 0, 0,
        )  # fmt: skip
        here.wrote = True
        if kept:
            self._entries.append(entry)
        return entry

    def mark(self, name: str, phase: int, start: int, end: int, wait: int) -> None:
        """Write an entry of our own."""
        if not self.on:
            return
        kind = Wait(wait)
        self._put(
            name,
            Fate.MARK if kind is Wait.NONE else Fate.WAIT,
            start,
            duration=end - start,
            phase=phase or self._natural_phase(kind, Direction.NONE),
            wait=kind,
            site=self.sites.current(),
        )

    def hazard(self, name: str, site: int = 0) -> int:
        """Write a mark for a known fault of MPS, at the line of the call about to run or another; give the line."""
        here, flags, sequence, module = self.here, Flag.HAZARD, -1, self.here.module
        if graph_task() != -1:
            phase: int = Phase.BACKWARD
            flags |= Flag.AUTOGRAD_THREAD
            if module == 0:  # else a checkpoint's recomputation
                sequence, module, forward = self._forward_of()
                site = site or forward
        else:
            phase = here.phase or self._natural_phase(Wait.NONE, Direction.NONE)
        site = site or self.sites.current()
        now = self.clock_ns()
        self._put(name, Fate.MARK, now, phase=phase, site=site, flags=flags, sequence=sequence, module=module)
        return site

    def unsafe_copy(self, name: str, site: int, copy: int, wait: int) -> None:
        """Write a mark for a copy whose host side was touched too early; `copy` and `wait` are lines too."""
        phase = self._natural_phase(Wait.NONE, Direction.NONE)
        self._put(
            name, Fate.MARK, self.clock_ns(), phase=phase, site=site, flags=Flag.UNSAFE_COPY, sequence=wait << 32 | copy
        )

    def note_pair(self, name: str, site: int, other: int, *, moved: int = 0, duration: int = 0) -> None:
        """Write a mark for something at a line, and another line that belongs to it (0: none).

        `moved` are bytes, `duration` ns, both in the sense of the mark.
        """
        if self.on:
            phase = self.here.phase or self._natural_phase(Wait.NONE, Direction.NONE)
            self._put(
                name, Fate.MARK, self.clock_ns(), phase=phase, site=site, flags=Flag.PAIR, sequence=other, moved=moved,
                duration=duration,
            )  # fmt: skip

    def refuse(self, name: str, fate: Fate, site: int = 0) -> int:
        """Write the entry of a refused call, at the running line unless `site` is given, and give its number."""
        self._refusals += 1
        phase = (
            Phase.BACKWARD if graph_task() != -1 else self.here.phase or self._natural_phase(Wait.NONE, Direction.NONE)
        )
        site = site or self.sites.current()
        self._put(name, fate, self.clock_ns(), phase=phase, site=site, flags=Flag.RAISED, refusal=self._refusals)
        return self._refusals

    def _put(
        self,
        name: str,
        fate: Fate,
        start: int,
        *,
        phase: int,
        site: int,
        duration: int = 0,
        wait: Wait = Wait.NONE,
        flags: Flag | int = 0,
        sequence: int = -1,
        refusal: int = 0,
        module: int | None = None,
        moved: int = 0,
    ) -> None:
        operator = self.operator(name)
        signature = self._intern((operator, fate, "mark"), operator, fate, (), ())
        module = self.here.module if module is None else module
        entry = (
            start, duration, moved, sequence, signature, module, site, self.step, self.here.number, phase, wait, 0,
            flags, refusal, 0,
        )  # fmt: skip
        self.here.wrote = True
        self._entries.append(entry)

    def current_phase(self) -> int:
        """What the calling thread does, for buffers that are freed."""
        if graph_task() != -1:
            return Phase.BACKWARD
        here = self.here
        return here.phase if here.phase or here.module == 0 else Phase.FORWARD

    def set_phase(self, phase: int) -> int:
        """Set the calling thread's phase and give the former one."""
        former, self.here.phase = self.here.phase, phase
        return former

    def end_step(self) -> None:
        """End a training step."""
        if not self.on:
            return
        self.here.ordinal = 0
        now = self.clock_ns()
        self._steps.append((self.step, self._step_start, now))
        self._step_start = now
        self.step += 1

    def note_round(self, kind: int, key: int, start: int) -> None:
        """Note what a loop does once a round, and that it ends now; native/recorder/tape.cpp again."""
        if self.on and len(self._rounds) < _MOST_ROUNDS:
            self._rounds.append((kind, key, self.sites.current(), start, self.clock_ns()))

    def enter_module(self, number: int) -> None:
        """A module's call begins."""
        here = self.here
        if here.module == 0:
            within = self.sites.current()
        else:
            here.calls += 1
            within = hash((here.path, here.calls))
        if not here.stack and not self.sparse and graph_task() == -1:
            here.outermost = (number, within, self.clock_ns())
            here.wrote = False
            self._backward_step = -1  # a new round has begun: what comes now does not follow the former's backward
        here.stack.append((here.module, here.ordinal, here.calls, here.path))
        here.module, here.ordinal, here.calls, here.path = number, 0, 0, hash((within, number))

    def leave_module(self) -> None:
        """The innermost module's call ends."""
        here = self.here
        if here.stack:
            here.module, here.ordinal, here.calls, here.path = here.stack.pop()
        if here.outermost is not None and not here.stack:
            number, site, start = here.outermost
            if here.wrote and self.on:
                self._rounds.append((int(RoundKind.MODULE), number, site, start, self.clock_ns()))
            here.outermost = None

    def drain(self, first: int) -> tuple[Any, ...]:
        """What was written since the last drain, as the native core hands it over."""
        kept = bytearray()
        dropped = 0
        entries = self._entries
        while entries:
            entry = entries.popleft()
            self._count(entry)
            matters = (
                entry[_WAIT] or entry[_REFUSAL] or entry[_DIRECTION] in _HOST_COPIES or entry[_FLAGS] & _KEPT_FLAGS
            )
            if matters or (self._detailed < self._limit and not self.sparse):
                kept += ENTRY.pack(*entry)
                self._detailed += 1
            else:
                dropped += 1
        signatures, self._new_signatures = self._new_signatures, []
        steps, self._steps = self._steps, []
        rounds, self._rounds = self._rounds, []
        return bytes(kept), signatures, steps, self.sites.take_new(), self._names[first:], dropped, rounds

    def totals(self) -> Iterator[tuple[int, ...]]:
        """Sums over everything drained so far."""
        return ((*key, *sums) for key, sums in self._totals.items())

    def _count(self, entry: Entry) -> None:
        _, duration, moved, _, signature, module, site, _, _, phase, wait, direction, _, _, _ = entry
        key = (signature, module, site, phase, wait, direction)
        sums = self._totals.get(key)
        if sums is None:
            sums = self._totals[tuple(map(int, key))] = [0, 0, 0]
        sums[0] += 1
        sums[1] += duration
        sums[2] += moved

    def _natural_phase(self, wait: Wait, direction: Direction) -> Phase:
        """The phase of an operator that no hook has put into one."""
        if self.here.module == 0:
            if direction is Direction.CPU_TO_MPS:
                return Phase.MOVE
            if wait is Wait.ITEM or direction is Direction.MPS_TO_CPU:
                return Phase.LOSS_READ
            if self._backward_step == self.step:
                return Phase.OTHER  # between backward and the optimizer's step: clipping, logging
        return Phase.FORWARD

    def _forward_of(self) -> tuple[int, int, int]:
        """Sequence number, module and line of the forward operator whose backward runs.

        Sequence numbers are a thread's own, and Python is not told whose a node has: of two operators with the same
        number, the one of the node's name is taken. Two threads that both build graphs may take each other's lines.
        """
        node = torch._C._current_autograd_node()
        if node is None:
            return 0, 0, 0
        sequence = node._sequence_nr()
        if sequence > _MOST_SEQUENCE:  # a node that adds up gradients, which is made for no operator
            return -1, 0, 0
        slot = sequence & (_FORWARD_SLOTS - 1)
        outside, inside = self._forward[slot], self._forward_inside[slot]
        found = outside
        if inside[0] == sequence and (outside[0] != sequence or self._is_named(inside, node.name())):
            found = inside
        # A torch.autograd.Function of Python: its backward has lines of its own.
        own = self.sites.current(in_backward=True) if isinstance(node, torch.autograd.function.BackwardCFunction) else 0
        return (sequence, found[1], own or found[2]) if found[0] == sequence else (sequence, 0, own)

    def place(self) -> int:
        """The line of the user's code that runs; in a backward that of the forward operator, or of its own backward."""
        in_backward = graph_task() != -1 and self.here.module == 0
        return (self._forward_of()[2] if in_backward else 0) or self.sites.current()

    def _is_named(self, forward: _Forward, node: str) -> bool:
        """Whether a node, `NativeLayerNormBackward0`, is that of an operator, `aten::native_layer_norm`."""
        base = self._names[forward[3]].partition("::")[2].partition(".")[0]
        return node.lower().partition("backward")[0] == base.replace("_", "")

    def _intern(
        self, kind: Any, operator: int, fate: Fate, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> int:
        known = self._signatures.get(kind)
        if known is None:
            if len(self._signatures) >= _MOST_SIGNATURES:
                return self._intern_without_sizes(operator, fate, inputs[:_NAMED], outputs[:_NAMED])
            known = self._signatures[kind] = len(self._signatures) + len(self._sizeless) + 1
            self._new_signatures.append((known, operator, int(fate), describe(inputs), describe(outputs)))
        return known

    def _intern_without_sizes(
        self, operator: int, fate: Fate, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> int:
        key = (operator, fate, describe(inputs, sizes=False), describe(outputs, sizes=False))
        known = self._sizeless.get(key)
        if known is None:
            known = self._sizeless[key] = len(self._signatures) + len(self._sizeless) + 1
            self._new_signatures.append((known, operator, int(fate), *key[2:]))
        return known


def describe(tensors: Sequence[torch.Tensor], *, sizes: bool = True) -> str:
    """The tensors as a JSON list of texts: `["float32[2, 3]", "int64[] on cpu"]`, without sizes `["float32[...]"]`."""
    texts = []
    for tensor in tensors:
        name = str(tensor.dtype).removeprefix("torch.")
        where = " on cpu" if tensor.device.type == "cpu" else ""
        shape = ", ".join(map(str, tensor.shape)) if sizes else "..."
        texts.append(f"{name}[{shape}]{where}")
    return json.dumps(texts)
