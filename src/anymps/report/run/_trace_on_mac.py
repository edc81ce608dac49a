"""The typical step of a trace once more, in the time of the recording's Mac: what its host and GPU would do when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from anymps.forecast import Forecast, bound_words, try_forecast
from anymps.record import Recording

_PROCESS: Final = 2
_HOST, _DEVICE = 1, 2


def events_on_mac(recording: Recording, zero: int) -> Iterator[str]:
    """Events of two tracks of a process of their own, from the start of the typical step on; none without a prediction.

    `zero` is the trace's own start, in ns of the recording's clock.
    """
    found = try_forecast(recording)
    if found is None or found.no_time:
        return
    start = next(step.start_ns for step in recording.steps() if step.step == found.step) - zero
    yield _name("process_name", "", f"the typical step (number {found.step}) on an {found.mac.name}, predicted")
    for track, name in ((_HOST, "host"), (_DEVICE, "GPU")):
        yield _name("thread_name", f'"tid":{track},', name)
    for busy in found.time.host_track:
        yield _slice(_what(found, busy.happening, bound_words(busy.what)), start, busy.start, busy.end, _HOST)
    for busy in found.time.device_track:
        words: dict[str, object] = {
            "name": _operator(found, busy.happening),
            "args": {"bound by": bound_words(busy.what)},
        }
        yield _slice(words, start, busy.start, busy.end, _DEVICE)


def _what(found: Forecast, happening: int, what: str) -> dict[str, object]:
    operator = _operator(found, happening)
    return {"name": what, **({"args": {"operator": operator}} if operator else {})}


def _operator(found: Forecast, happening: int) -> str:
    call = found.happenings[happening].call
    return call.operator if call is not None else ""


def _slice(words: dict[str, object], zero: int, start: float, end: float, track: int) -> str:
    """A slice, its times in seconds from the step's start."""
    since, length = zero / 1e3 + 1e6 * start, 1e6 * (end - start)
    return json.dumps(
        {**words, "cat": "on the Mac", "ph": "X", "ts": round(since, 3), "dur": round(length, 3), "pid": _PROCESS}
        | {"tid": track},
        separators=(",", ":"),
    )


def _name(kind: str, track: str, name: str) -> str:
    return f'{{"name":"{kind}","ph":"M","pid":{_PROCESS},{track}"args":{{"name":{json.dumps(name)}}}}}'
