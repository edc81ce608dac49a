"""The recording as a trace for ui.perfetto.dev and chrome://tracing: every call on its thread, steps, phases, waits.

The form is the Trace Event Format's JSON object (Google, "Trace Event Format"): times in microseconds. Written event by
event, so that a recording of any length needs little memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from anymps.findings import Finding
from anymps.record import Call, Fate, Flag, Phase, Recording, Wait
from anymps.report._words import environment, verdict

_PROCESS: Final = 1
_STEPS, _PHASES, _THREADS = 1, 2, 10  # numbers of tracks; a thread has two, its calls and its waits
_BLOCK = 2000  # events written at once

# Plain numbers: an operation with a member of an enumeration costs more than all else that is done for a call.
_PAIR, _BACKWARD = int(Flag.PAIR), int(Phase.BACKWARD)
_NOT_AUTOGRADS = int(Flag.PAIR | Flag.UNSAFE_COPY)  # marks whose `sequence` holds lines
_PHASE_WORDS = {int(phase): json.dumps(phase.label) for phase in Phase}
_WAIT_WORDS = {int(wait): json.dumps(wait.label) for wait in Wait}


@dataclass(frozen=True)
class TraceRenderer:
    """Calls by thread and waits beside them; steps, phases and memory; arrows from forward to backward."""

    @property
    def name(self) -> str:
        """`trace`."""
        return "trace"

    def pieces(self, recording: Recording, findings: Sequence[Finding]) -> Iterator[str]:
        """The trace, in blocks of events."""
        facts = {"verdict": " ".join(verdict(recording, findings)), **dict(environment(recording))}
        yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(facts)},"traceEvents":[\n'
        block: list[str] = []
        first = True
        for event in _Events(recording).all():
            block.append(event)
            if len(block) == _BLOCK:
                yield ("" if first else ",\n") + ",\n".join(block)
                first = False
                block.clear()
        yield ("" if first or not block else ",\n") + ",\n".join(block) + "\n]}\n"


@dataclass
class _Run:
    """Calls of one phase that follow each other, on whatever thread."""

    phase: int
    start: int
    end: int


@dataclass
class _Events:
    """The events of one recording; texts that many calls share are put together once."""

    recording: Recording
    _zero: int | None = None
    _signatures: dict[int, tuple[str, str]] = field(default_factory=dict)
    _places: dict[tuple[int, int], str] = field(default_factory=dict)
    _heads: dict[tuple[int, int, int, int, int], tuple[str, str, str, str]] = field(default_factory=dict)
    _threads: set[int] = field(default_factory=set)
    _waiting: set[int] = field(default_factory=set)
    _forward: dict[int, tuple[int, int]] = field(default_factory=dict)
    _newest: int = -1

    def all(self) -> Iterator[str]:
        """Every event: the order does not matter to readers, so names of tracks come last."""
        yield _name("process_name", _PROCESS, None, "anymps")
        run: _Run | None = None
        for call in self.recording.calls():
            if self._zero is None:
                self._zero = min([call.start_ns, *(step.start_ns for step in self.recording.steps()[:1])])
            yield self._call(call)
            if call.flags & _PAIR:
                continue  # takes no time, and no phase
            end = call.start_ns + call.duration_ns
            if run is not None and run.phase == call.phase:
                run.end = max(run.end, end)
                continue
            if run is not None:
                yield self._phase(run, call.start_ns)
            run = _Run(call.phase, call.start_ns, end)
        if run is not None:
            yield self._phase(run, run.end)
        yield from self._steps()
        yield from self._memory()
        yield from self._tracks()

    def _call(self, call: Call) -> str:
        """The call's events: itself, its wait, its arrow. A recording has millions, so little is done for each."""
        key = (call.signature, call.site, call.module, call.phase, call.thread)
        known = self._heads.get(key)
        if known is None:
            name, words = self._signature(call.signature)
            track = _THREADS + 2 * call.thread
            self._threads.add(call.thread)
            head = f'{{"name":{name},"cat":{_PHASE_WORDS[call.phase]},"ph":"X","ts":'
            tail = f',"pid":{_PROCESS},"tid":{track},"args":{{'
            known = self._heads[key] = (head, tail, f'{words}{self._place(call.site, call.module)}"step":', name)
        head, tail, args, name = known
        args = f"{args}{call.step}"
        if call.moved_bytes:
            args += f',"bytes":{call.moved_bytes}'
        times = f'{self._time(call.start_ns)},"dur":{_micro(call.duration_ns)}'
        event = f"{head}{times}{tail}{args}}}}}"
        track = _THREADS + 2 * call.thread
        if call.wait:
            self._waiting.add(call.thread)
            event += (
                f',\n{{"name":{_WAIT_WORDS[call.wait]},"cat":"wait","ph":"X","ts":{times},'
                f'"pid":{_PROCESS},"tid":{track + 1},"args":{{"operator":{name},{args}}}}}'
            )
        if call.sequence >= 0 and not call.flags & _NOT_AUTOGRADS:
            event += self._flow(call, track)
        return event

    def _flow(self, call: Call, track: int) -> str:
        """An arrow from the call that made an autograd node to the first one that its backward runs, or nothing."""
        number = call.sequence
        if call.phase != _BACKWARD:
            # Numbers only grow; a call without a node of its own carries the last one again.
            if number > self._newest:
                self._newest = number
                self._forward[number] = (call.start_ns, track)
            return ""
        start = self._forward.pop(number, None)
        if start is None:
            return ""
        head = f'{{"name":"backward","cat":"autograd","id":{number},"pid":{_PROCESS}'
        return (
            f',\n{head},"ph":"s","tid":{start[1]},"ts":{self._time(start[0])}}}'
            f',\n{head},"ph":"f","bp":"e","tid":{track},"ts":{self._time(call.start_ns)}}}'
        )

    def _phase(self, run: _Run, until: int) -> str:
        end = max(min(run.end, until), run.start)
        return self._slice(_PHASE_WORDS[run.phase], "phase", run.start, end, _PHASES)

    def _steps(self) -> Iterator[str]:
        for step in self.recording.steps():
            if step.end_ns is not None:
                yield self._slice(json.dumps(f"step {step.step}"), "step", step.start_ns, step.end_ns, _STEPS)

    def _memory(self) -> Iterator[str]:
        for sample in self.recording.memory():
            values = f'"allocated":{sample.allocated_bytes},"driver":{sample.driver_bytes}'
            yield (
                f'{{"name":"memory (bytes)","ph":"C","ts":{self._time(sample.time_ns)},"pid":{_PROCESS},'
                f'"args":{{{values}}}}}'
            )

    def _tracks(self) -> Iterator[str]:
        yield from _track(_STEPS, "steps")
        yield from _track(_PHASES, "phases")
        for thread in sorted(self._threads):
            yield from _track(_THREADS + 2 * thread, f"host thread {thread}")
            if thread in self._waiting:
                yield from _track(_THREADS + 2 * thread + 1, f"waits of thread {thread}")

    def _slice(self, name: str, category: str, start: int, end: int, track: int) -> str:
        return (
            f'{{"name":{name},"cat":"{category}","ph":"X","ts":{self._time(start)},"dur":{_micro(end - start)},'
            f'"pid":{_PROCESS},"tid":{track}}}'
        )

    def _signature(self, number: int) -> tuple[str, str]:
        """The operator's name, and what is the same for all calls with one signature; both as JSON."""
        known = self._signatures.get(number)
        if known is None:
            signature = self.recording.signature(number)
            words: dict[str, object] = {}
            if signature.fate is not Fate.NATIVE:
                words["fate"] = signature.fate.label
            if signature.inputs:
                words["inputs"] = ", ".join(signature.inputs)
            if signature.outputs:
                words["outputs"] = ", ".join(signature.outputs)
            known = self._signatures[number] = (json.dumps(signature.operator), _members(words))
        return known

    def _place(self, site: int, module: int) -> str:
        known = self._places.get((site, module))
        if known is None:
            where, path = self.recording.site(site), self.recording.module(module)
            words: dict[str, object] = {}
            if where.known:
                words["line"] = f"{where.file}:{where.line}"
            if path:
                words["module"] = path
            known = self._places[site, module] = _members(words)
        return known

    def _time(self, moment: int) -> str:
        return _micro(moment - (self._zero or 0))


def _micro(nanoseconds: int) -> str:
    if nanoseconds < 0:
        return f"-{_micro(-nanoseconds)}"
    digits = f"{nanoseconds:04d}"
    return f"{digits[:-3]}.{digits[-3:]}"


def _members(words: dict[str, object]) -> str:
    """The members of a JSON object, each with a comma behind it."""
    return "".join(f"{json.dumps(key)}:{json.dumps(value)}," for key, value in words.items())


def _track(number: int, name: str) -> Iterator[str]:
    yield _name("thread_name", _PROCESS, number, name)
    yield (f'{{"name":"thread_sort_index","ph":"M","pid":{_PROCESS},"tid":{number},"args":{{"sort_index":{number}}}}}')


def _name(kind: str, process: int, thread: int | None, name: str) -> str:
    track = "" if thread is None else f'"tid":{thread},'
    return f'{{"name":"{kind}","ph":"M","pid":{process},{track}"args":{{"name":{json.dumps(name)}}}}}'
