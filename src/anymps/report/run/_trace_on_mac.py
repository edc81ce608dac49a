"""The typical step of a trace once more, in the time of the recording's Mac: what its host and GPU would do when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from anymps.cost import Busy, StepBound
from anymps.findings import Story
from anymps.forecast import Forecast, bound_words

_PROCESS: Final = 2
_HOST, _DEVICE = 1, 2


def events_on_mac(story: Story, zero: int) -> Iterator[str]:
    """Events of two tracks of a process of their own, from the start of the typical step on; none without a prediction.

    `zero` is the trace's own start, in ns of the recording's clock.
    """
    found = story.timed
    if found is None:
        return
    start = next(step.start_ns for step in story.steps if step.step == found.step) - zero
    yield track_name(
        "process_name", _PROCESS, None, f"the typical step (number {found.step + 1}) on an {found.mac.name}, predicted"
    )
    for track, name in ((_HOST, "host"), (_DEVICE, "GPU")):
        yield track_name("thread_name", _PROCESS, track, name)
    yield from _slices(found, found.time.host_track, start, _HOST)
    yield from _slices(found, found.time.device_track, start, _DEVICE)


def _slices(found: Forecast, track: Iterable[Busy], zero: int, number: int) -> Iterator[str]:
    """The slices of a track. There may be two million: what is the same for many of them is written out once."""
    begin, end = zero / 1e3, f',"pid":{_PROCESS},"tid":{number}}}'
    heads: dict[tuple[StepBound, str], str] = {}
    for since, until, what, happening in track:
        call = found.happenings[happening].call
        key = what, call.operator if call is not None else ""
        head = heads.get(key)
        if head is None:
            head = heads[key] = _head(*key, number)
        yield f'{head},"ts":{round(begin + 1e6 * since, 3)},"dur":{round(1e6 * (until - since), 3)}{end}'


def _head(what: StepBound, operator: str, track: int) -> str:
    """How a slice begins: on the host's track it is named by what the host does, on the GPU's by the operator."""
    words: dict[str, object] = {"name": operator, "args": {"bound by": bound_words(what)}}
    if track == _HOST:
        words = {"name": bound_words(what), **({"args": {"operator": operator}} if operator else {})}
    return json.dumps({**words, "cat": "on the Mac", "ph": "X"}, separators=(",", ":")).removesuffix("}")


def track_name(kind: str, process: int, thread: int | None, name: str) -> str:
    """The event that names a process, or a track of one; by `kind`, `process_name` or `thread_name`."""
    track = "" if thread is None else f'"tid":{thread},'
    return f'{{"name":"{kind}","ph":"M","pid":{process},{track}"args":{{"name":{json.dumps(name)}}}}}'
