"""The sentences of a report: verdict, environment, limits. Every form of a report says them alike."""

from __future__ import annotations

from collections.abc import Sequence

from anymps.findings import Finding, Severity, ahead, notes, wait_places
from anymps.record import Recording, RefusalKind
from anymps.report._suite import is_suite, news, session
from anymps.report._text import clean, count, duration, duration_range, path, place, plural

_ABOUT_WAITS = ("MPS2", "MPS102")


def fact(recording: Recording, key: str) -> str:
    """One fact about the run as text, the empty text if it is not known."""
    value = recording.meta.get(key)
    return clean(value) if isinstance(value, str) else ""


def state(recording: Recording, findings: Sequence[Finding]) -> Severity | None:
    """How a report's first line is marked: as the worst finding, or as a note where there was nothing to judge."""
    nothing = unused(recording) or bool(_exception(recording)[0] or _early_end(recording))
    return min((it.severity for it in findings), default=Severity.INFO if nothing else None)


def unused(recording: Recording) -> bool:
    """Whether nothing reached mps in the whole run."""
    return not recording.operators() and not recording.refusals() and recording.memory_story.peak is None


def verdict(recording: Recording, findings: Sequence[Finding]) -> list[str]:
    """Two lines: whether it would run on that Mac, then how much there is to change and where to begin."""
    fresh = news(recording, findings)
    summary = how_many(fresh)
    if len(fresh) < len(findings):
        left = len(findings) - len(fresh)
        summary += f" {plural(left, 'more error')} {'is' if left == 1 else 'are'} expected."
    first = first_to_change(fresh)
    if first is not None:
        price = f", about {duration_range(*first.cost_per_step_ns)} a step" if first.cost_per_step_ns[1] else ""
        summary += f" First to change: {place(first.site, fact(recording, 'directory'))} ({first.id}{price})."
    if is_suite(recording):
        return [session(recording, _mac(recording), used=not unused(recording)), summary]
    no_cuda = next((finding for finding in findings if finding.id == "MPS407"), None)
    runs = _would_it_run(recording)
    if no_cuda is not None:
        where = place(no_cuda.site, fact(recording, "directory"))
        runs = f"{_failed(recording)} on {_mac(recording)}: {where} asks for CUDA."
    elif unused(recording) and not _exception(recording)[0] and not _early_end(recording):
        summary += ' The script has to choose the device: `torch.device("mps")`, or `torch.accelerator`.'
    return [runs, " ".join(filter(None, (summary, waits(recording, findings))))]


def first_to_change(findings: Sequence[Finding]) -> Finding | None:
    """Where to begin: the worst finding with a known place, of several the costliest; None if all are notes."""
    first = min(
        findings,
        key=lambda finding: (finding.severity, not finding.site.known, -finding.cost_per_step_ns[1]),
        default=None,
    )
    return first if first is not None and first.severity is not Severity.INFO else None


def waits(recording: Recording, findings: Sequence[Finding]) -> str:
    """How many waits a step could do without, and what for; the empty text if no finding is about one."""
    if not any(finding.id.startswith(_ABOUT_WAITS) for finding in findings):
        return ""
    hurting = [place for place in wait_places(recording) if place.hurts]
    number = sum(place.per_step for place in hurting)
    if not number:
        return ""
    one = count(number) == "1"
    words, them = f"{count(number)} {'wait' if one else 'waits'} in every step", "it" if one else "them"
    reach = ahead(recording, hurting)
    if reach is not None and reach.whole:
        return f"{words}; without {them} the host could queue whole steps without waiting."
    if reach is None or reach.without <= reach.now:
        return f"{words}."
    return f"{words}; without {them} the host could run {reach.without:,} operators ahead, not {reach.now:,}."


def times(finding: Finding) -> str:
    """How often it happened."""
    if not finding.per_step:
        return f"{finding.count:,}"
    return f"{finding.count:,} in this run, {count(finding.per_step)} a step"


def cost(finding: Finding) -> str:
    """What it costs on a Mac, the empty text if it stops the run instead."""
    if finding.cost_per_step_ns[1]:
        return f"about {duration_range(*finding.cost_per_step_ns)} a step on a Mac"
    return f"about {duration_range(*finding.cost_ns)} in this run on a Mac" if finding.cost_ns[1] else ""


def environment(recording: Recording) -> list[tuple[str, str]]:
    """What the recording was made with, as pairs of name and value; what is not known is left out."""
    meta = recording.meta
    virtual, fallback, arguments = meta.get("virtual"), meta.get("fallback"), meta.get("arguments")
    device = "real" if virtual is False else "virtual: computed on this machine by the rules of MPS"
    words = [path(fact(recording, "script"), fact(recording, "directory"))]
    if isinstance(arguments, list):
        words += [clean(str(argument)) for argument in arguments]
    recorded = f"{plural(recording.entry_count, 'call')}, {plural(recording.complete_steps, 'complete step')}"
    facts = [
        ("Mac", fact(recording, "mac_details") or fact(recording, "mac")),
        ("device", device if isinstance(virtual, bool) else ""),
        ("fallback", _fallback_words(fallback) if isinstance(fallback, bool) else ""),
        ("torch", fact(recording, "torch_version")),
        ("Python", fact(recording, "python_version")),
        ("platform", fact(recording, "platform")),
        ("anymps", fact(recording, "anymps_version")),
        ("variables", _variables(meta.get("environment"))),
        ("session" if is_suite(recording) else "script", " ".join(word for word in words if word)),
        ("recorded", ", ".join(part for part in (fact(recording, "started"), recorded) if part)),
    ]
    return [(name, value) for name, value in facts if value]


def limits(recording: Recording) -> list[str]:
    """What the reader must not conclude from this report; one sentence each."""
    sentences = []
    if recording.meta.get("virtual") is not False:
        sentences.append(
            "Times are of this machine, not of a Mac. Costs are ranges from public measurements on Macs, and leave out "
            "what draining a long queue costs."
        )
    if recording.meta.get("source") == "dispatch mode":
        sentences.append("Recorded by a dispatch mode: a time is what the host spent in a call, not what the GPU took.")
        if recording.meta.get("virtual") is False:
            sentences.append(_device_time(recording))
    if recording.parts:
        names = ", ".join(clean(part.name) for part in recording.parts)
        sentences.append(
            f"Joined from {plural(len(recording.parts), 'worker')} ({names}), "
            "processes that ran side by side and stand here one after the other: times and memory are of one at a time."
        )
    if not recording.complete:
        cut = ", ".join(clean(part.name) for part in recording.parts if not part.complete)
        which = f"The recording of {cut}" if cut else "The recording"
        sentences.append(f"{which} stops in the middle of the run: all this is true up to there.")
    if recording.dropped:
        sentences.append(
            f"The detail of {plural(recording.dropped, 'plain call')} was not kept: counts by line and operator hold "
            "all calls, the step table only the steps with full detail."
        )
    return sentences + notes(recording)


def _device_time(recording: Recording) -> str:
    """How long host and device were at work on a real Mac, as far as anything has measured it."""
    waiting = duration(sum(place.duration_ns for place in recording.waits()))
    waited = f"The host spent {waiting or 'no time'} in calls that wait for the device."
    spans = [noted.occurrence for noted in recording.noted("device_time")]
    if not spans:
        return (
            f"{waited} How long the device worked is not measured: ask events (`torch.mps.Event(enable_timing=True)`) "
            "around a part of the loop, or see `torch.mps.profiler` in Instruments."
        )
    number = plural(sum(it.count for it in spans), "time")
    return (
        f"{waited} The device took {duration(sum(it.duration_ns for it in spans))} between events that the script "
        f"measured {number}; how long it worked beside these is not measured."
    )


def not_modelled(recording: Recording) -> list[str]:
    """What the virtual device leaves out altogether; nothing on a real Mac."""
    if recording.meta.get("virtual") is False:
        return []
    return [
        "The order of host and GPU: here an operator is done when its call returns; on a Mac it is queued, and the "
        "host runs ahead until it waits.",
        "Memory that MPSGraph and Metal take for themselves.",
        "Metal shaders of your own (`torch.mps.compile_shader`) and `torch.compile` with its default backend.",
        "Bugs inside Metal, unless they are listed as known ones; the last digits of results.",
    ]


def _variables(environment: object) -> str:
    if not isinstance(environment, dict):
        return ""
    return " ".join(clean(f"{name}={value}") for name, value in sorted(environment.items()))


def _fallback_words(on: bool) -> str:
    return f"{'on' if on else 'off'} (PYTORCH_ENABLE_MPS_FALLBACK)"


def _mac(recording: Recording) -> str:
    return fact(recording, "mac") or "a Mac"


def _failed(recording: Recording) -> str:
    return "Did not run" if recording.meta.get("virtual") is False else "Would not run"


def _would_it_run(recording: Recording) -> str:
    mac, failed = _mac(recording), _failed(recording)
    ran = "Ran" if recording.meta.get("virtual") is False else "Would run"
    refusals = recording.refusals()
    exception, message = _exception(recording)
    if exception:
        raised = [refusal for refusal in refusals if refusal.kind is not RefusalKind.INDEX or refusal.origin.known]
        if raised and raised[-1].error == exception and raised[-1].message in (message or raised[-1].message):
            late = raised[-1].kind is RefusalKind.INDEX
            where = place(raised[-1].origin if late else raised[-1].site, fact(recording, "directory"))
            return f"{failed} on {mac}: {where} raises {exception}."
        before = ", before anything reached mps" if unused(recording) else ", which MPS did not raise"
        return f"The script ended with {exception}{before}."
    early = _early_end(recording)
    if early:
        refused = f"refused {plural(len(refusals), 'call')}" if refusals else "refused nothing"
        return f"{early}; up to there MPS on {mac} {refused}."
    if refusals:
        return f"{ran} on {mac}, but {plural(len(refusals), 'call')} raised and the script went on."
    if unused(recording):
        return f"Nothing ran on mps: this tells nothing about {mac}."
    fallbacks = {fallback.operator for fallback in recording.fallbacks()}
    if fallbacks:
        return f"{ran} on {mac}, with {plural(len(fallbacks), 'operator')} on the CPU."
    return f"{ran} on {mac}."


def _ending(recording: Recording) -> dict[str, object]:
    ending = recording.meta.get("ending")
    return ending if isinstance(ending, dict) else {}


def _interrupted(ending: dict[str, object]) -> bool:
    return str(ending.get("exception", ending.get("error", ""))).partition(":")[0] == "KeyboardInterrupt"


def _exception(recording: Recording) -> tuple[str, str]:
    """Class name and message of the exception that ended the run; empty texts if none did."""
    ending = _ending(recording)
    if _interrupted(ending):
        return "", ""
    if "exception" in ending:
        return clean(str(ending["exception"])), str(ending.get("message", ""))
    name, _, message = str(ending.get("error", "")).partition(": ")  # of a `with anymps.record():` block
    return clean(name), message


def _early_end(recording: Recording) -> str:
    """Why the recording may not hold the whole of the script's work, the empty text if it does."""
    ending = _ending(recording)
    if not recording.complete:
        return "The recording stops in the middle of the run"
    how, status = str(ending.get("how", "")), ending.get("status", 0)
    if _interrupted(ending):
        return "Ctrl-C ended the run"
    if how.startswith("SIG"):
        return f"{clean(how)} ended the run"
    return f"The script ended with status {clean(str(status))}" if status else ""


def how_many(findings: Sequence[Finding]) -> str:
    """How many findings there are, by severity."""
    if not findings:
        return "No findings."
    parts = []
    for severity in Severity:
        number = sum(finding.severity is severity for finding in findings)
        if number:
            word = "note" if severity is Severity.INFO else severity.label
            parts.append(plural(number, word))
    return f"{plural(len(findings), 'finding')}: {', '.join(parts)}."
