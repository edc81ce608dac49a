"""The recording as a trace for ui.perfetto.dev and chrome://tracing: every call on its thread, steps, phases, waits.

The form is the Trace Event Format's JSON object (Google, "Trace Event Format"): times in microseconds. Written event by
event, so that a recording of any length needs little memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from anymps._text import step_name
from anymps.findings import Finding, Story
from anymps.record import Fate, Flag, Phase, Wait
from anymps.report._predicted import phase_words
from anymps.report._words import environment, verdict

_PROCESS: Final = 1
_STEPS, _PHASES, _THREADS = 1, 2, 10  # numbers of tracks; a thread has two, its calls and its waits
_BLOCK = 2000  # events written at once

# Plain numbers: an operation with a member of an enumeration costs more than all else that is done for a call.
_PAIR, _BACKWARD = int(Flag.PAIR), int(Phase.BACKWARD)
_NOT_AUTOGRADS = int(Flag.PAIR | Flag.UNSAFE_COPY)  # marks whose `sequence` holds lines
_POINT = [f".{part:03d}" for part in range(1000)]  # thousandths of a microsecond
_WAIT_WORDS = {int(wait): json.dumps(wait.label) for wait in Wait}

_Brief = tuple[int, int, int, int, int, int, int, int, int]  # of `Recording.calls_in_brief`


def trace_pieces(story: Story, findings: Sequence[Finding], _: str | None = None) -> Iterator[str]:
    """Calls by thread and waits beside them, steps, phases, memory, arrows from forward to backward: block by block."""
    facts = {"verdict": " ".join(verdict(story, findings)), **dict(environment(story))}
    yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(facts)},"traceEvents":[\n'
    separator = ""
    for block in _Events(story).all():
        if block:
            yield separator + ",\n".join(block)
            separator = ",\n"
    yield "\n]}\n"


_Form = tuple[str, bool, int, int, bool, bool]
"""Of calls with one operator, place, phase and thread: their event as a template of times and end, twice if they wait;
whether they wait, phase, track, whether `sequence` is a node of autograd, and whether they take no time."""


@dataclass
class _Events:
    """The events of one recording."""

    story: Story
    _zero: int = 0
    _threads: set[int] = field(default_factory=set)
    _waiting: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._phases = {int(phase): json.dumps(word) for phase, word in phase_words(self.story).items()}

    def all(self) -> Iterator[list[str]]:
        """Every event, in blocks: the order does not matter to readers, so names of tracks come last."""
        yield [_track_name("process_name", None, "anymps")]
        yield from self._calls()
        yield list(chain(self._steps(), self._memory(), self._tracks()))

    def _calls(self) -> Iterator[list[str]]:
        """The calls' events: each itself, its wait, its arrow; and a slice for calls of one phase that follow another.

        A recording has millions, so little is done for each: no function is called, no text made that others share.
        """
        forms: dict[tuple[int, int, int, int], _Form] = {}
        forward: dict[int, tuple[int, int]] = {}  # by node of autograd that no backward has run: time and track
        newest = at = -1
        step_end = ""
        run, run_start, run_end = -1, 0, 0  # calls of one phase, on whatever thread
        events: list[str] = []
        zero, calls = self._from_zero(self.story.calls.in_brief())
        for start, length, signature, site, module, kind, step, moved, node in calls:
            key = (signature, site, module, kind)
            known = forms.get(key)
            if known is None:
                known = forms[key] = self._form_of(signature, site, module, kind)
            form, waits, phase, track, arrows, timeless = known
            if step != at:
                at, step_end = step, f"{step + 1}}}}}"
            since = start - zero
            last = f'{step + 1},"bytes":{moved}}}}}' if moved else step_end
            times = f'{since // 1000}{_POINT[since % 1000]},"dur":{length // 1000}{_POINT[length % 1000]}'
            event = form % ((times, last, times, last) if waits else (times, last))
            if arrows and node >= 0:
                if phase != _BACKWARD:
                    # Numbers only grow; a call without a node of its own carries the last one again.
                    if node > newest:
                        newest = node
                        forward[node] = (since, track)
                elif node in forward:
                    event += _arrow(node, *forward.pop(node), since, track)
            events.append(event)
            if not timeless:
                until = start + length
                if phase == run:
                    if until > run_end:
                        run_end = until
                else:
                    if run >= 0:
                        events.append(self._phase(run, run_start, min(run_end, start)))
                    run, run_start, run_end = phase, start, until
            if len(events) >= _BLOCK:
                yield events
                events = []
        if run >= 0:
            events.append(self._phase(run, run_start, run_end))
        yield events

    def _from_zero(self, calls: Iterator[_Brief]) -> tuple[int, Iterator[_Brief]]:
        """Where the trace begins, with the first call or with the first step, and all calls."""
        first = next(calls, None)
        if first is None:
            return self._zero, calls
        self._zero = min([first[0], *(step.start_ns for step in self.story.steps[:1])])
        return self._zero, chain([first], calls)

    def _form_of(self, signature: int, site: int, module: int, kind: int) -> _Form:
        thread, phase, wait, flags = kind >> 24, kind >> 16 & 0xFF, kind >> 8 & 0xFF, kind & 0xFF
        name, words = (text.replace("%", "%%") for text in self._signature(signature))
        place = self._place(site, module).replace("%", "%%")
        track = _THREADS + 2 * thread
        args = f'{words}{place}"step":%s'
        event = (
            f'{{"name":{name},"cat":{self._phases[phase]},"ph":"X","ts":%s,"pid":{_PROCESS},"tid":{track},'
            f'"args":{{{args}'
        )
        self._threads.add(thread)
        if wait:
            self._waiting.add(thread)
            event += (
                f',\n{{"name":{_WAIT_WORDS[wait]},"cat":"wait","ph":"X","ts":%s,"pid":{_PROCESS},"tid":{track + 1},'
                f'"args":{{"operator":{name},{args}'
            )
        return event, bool(wait), phase, track, not flags & _NOT_AUTOGRADS, bool(flags & _PAIR)

    def _phase(self, phase: int, start: int, end: int) -> str:
        return self._slice(self._phases[phase], "phase", start, max(end, start), _PHASES)

    def _steps(self) -> Iterator[str]:
        for step in self.story.steps:
            if step.end_ns is not None:
                yield self._slice(json.dumps(step_name(step.step)), "step", step.start_ns, step.end_ns, _STEPS)

    def _memory(self) -> Iterator[str]:
        for sample in self.story.memory_samples:
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
        signature = self.story.calls.signature(number)
        words = {
            "fate": signature.fate.label if signature.fate is not Fate.NATIVE else "",
            "inputs": ", ".join(signature.inputs),
            "outputs": ", ".join(signature.outputs),
        }
        return json.dumps(signature.operator), _members(words)

    def _place(self, site: int, module: int) -> str:
        where = self.story.calls.site(site)
        line = f"{where.file}:{where.line}" if where.known else ""
        return _members({"line": line, "module": self.story.calls.module(module)})

    def _time(self, moment: int) -> str:
        return _micro(moment - self._zero)


def _micro(nanoseconds: int) -> str:
    if nanoseconds < 0:
        return f"-{_micro(-nanoseconds)}"
    return f"{nanoseconds // 1000}{_POINT[nanoseconds % 1000]}"


def _arrow(node: int, since: int, track: int, until: int, to: int) -> str:
    """From the call that made a node of autograd, at `since` on `track`, to the first one that its backward runs."""
    head = f',\n{{"name":"backward","cat":"autograd","id":{node},"pid":{_PROCESS}'
    return (
        f'{head},"ph":"s","tid":{track},"ts":{_micro(since)}}}'
        f'{head},"ph":"f","bp":"e","tid":{to},"ts":{_micro(until)}}}'
    )


def _members(words: dict[str, str]) -> str:
    """The members of a JSON object that are not empty, each with a comma behind it."""
    return "".join(f"{json.dumps(key)}:{json.dumps(value)}," for key, value in words.items() if value)


def _track(number: int, name: str) -> Iterator[str]:
    yield _track_name("thread_name", number, name)
    yield (f'{{"name":"thread_sort_index","ph":"M","pid":{_PROCESS},"tid":{number},"args":{{"sort_index":{number}}}}}')


def _track_name(kind: str, thread: int | None, name: str) -> str:
    """The event that names the process, or a track of it; by `kind`, `process_name` or `thread_name`."""
    track = "" if thread is None else f'"tid":{thread},'
    return f'{{"name":"{kind}","ph":"M","pid":{_PROCESS},{track}"args":{{"name":{json.dumps(name)}}}}}'
