"""The sentences of a report: verdict, environment, limits. All formats use the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from anymps._text import listed
from anymps.findings import Finding, Judgement, Outcome, Severity, Story, is_refusal
from anymps.forecast import Forecast
from anymps.record import Line, LinesByProcess, Meta, Occurrence, Suite
from anymps.report._checked import numbers, own_kernels
from anymps.report._predicted import mac_seconds
from anymps.report._text import clean, count, duration, duration_range, module, path, place, plural, size
from anymps.report.document import Cut

_RARE = 0.5  # times a step: a fraction tells less than how often
_QUEUED_ON_A_CARD = "The time of the GPU: a call here takes as long as the host needs to queue it for the NVIDIA GPU."
_DONE_AT_ONCE = (
    "The order of host and GPU: here an operator is done when its call returns; on a Mac it is queued, and the host "
    "runs ahead until it waits."
)
_MOST_NAMES = 3  # of processes; one more is named, too


def verdict(story: Story, findings: Sequence[Finding]) -> list[str]:
    """Two lines: whether it would run on that Mac, then how much there is to change and where to begin."""
    fresh = news(findings, story.run.suite)
    summary = how_many(fresh)
    if len(fresh) < len(findings):
        left = len(findings) - len(fresh)
        summary += f" {plural(left, 'more error')} {'is' if left == 1 else 'are'} expected."
    first = first_to_change(fresh)
    if first is not None:
        price = f", about {duration_range(*first.cost_per_step_ns)} a step" if first.cost_per_step_ns[1] else ""
        summary += f" Change first: {place_to_change(first, story.run.directory)} ({first.id}{price})."
    run, judged = story.run, story.judge(findings)
    if run.suite is not None:
        return [_session(run, run.suite, clean(run.mac) or "a Mac", unused=story.unused), summary]
    not_begun = _not_begun(run, unused=story.unused)
    if judged.outcome is Outcome.UNUSED and not findings:
        choose = 'The script has to choose the device: `torch.device("mps")`, or `torch.accelerator`.'
        summary += f" {not_begun or choose}"
    fallbacks = len({fallback.operator for fallback in story.fallbacks})
    unused = story.unused and not not_begun
    would = _would_it_run(run, judged, unused=unused, fallbacks=fallbacks)
    return [would, " ".join(filter(None, (summary, waits(story, findings))))]


def first_to_change(findings: Sequence[Finding]) -> Finding | None:
    """Where to begin: the most urgent finding, of several the costliest; None if all are notes."""
    first = min(
        findings,
        key=lambda finding: (*finding.urgency, -finding.cost_per_step_ns[1]),
        default=None,
    )
    return first if first is not None and first.severity is not Severity.INFO else None


def place_to_change(finding: Finding, directory: str) -> str:
    """A finding's line, or the user's that called it where it is one of an installed package."""
    return clean(finding.caller) or place(finding.site, directory)


def waits(story: Story, findings: Sequence[Finding]) -> str:
    """How many waits a step could do without, and what for; the empty text if no finding is about one."""
    number, where = needless_waits(story, findings)
    if not number:
        return ""
    one = count(number) == "1"
    of = f" of {_listed(where)}" if where else ""
    whole = sum(share.waits for share in story.step_table.typical)
    fewest = min((step.waits for step in story.step_sums[1:]), default=number)
    step = "every step" if where or fewest >= number else "a typical step"
    if not where and count(whole) != count(number):
        return f"{count(number)} of a step's {count(whole)} waits {'is' if one else 'are'} needless."
    return f"{count(number)} {'wait' if one else 'waits'} in {step}{of}."


def needless_waits(story: Story, findings: Sequence[Finding]) -> tuple[float, list[str]]:
    """How many waits a step could do without, and the processes whose steps have so many where others have fewer.

    Of several processes these are the steps of those that have most. 0 if no finding is about a wait.
    """
    if not any(finding.rule.about_waits or finding.rule.about_copies for finding in findings):
        return 0, []
    needless = story.needless(findings)
    lines = story.processes
    training = [number for number, steps in lines.steps.items() if steps and number in lines.working]
    if len(story.parts) < 2 or not lines.whole or not training:
        return float(story.in_typical(needless)), []
    waits = dict.fromkeys(sorted(training), 0.0)
    for waiting in needless:
        there = lines.waited.get(waiting.site.file_line, frozenset())
        for number in there & waits.keys():
            waits[number] += lines.per_step_there(waiting.per_step, there)
    # Ranks often share the work unevenly: the step that waits most is the one that all others wait for.
    most = max(waits.values())
    names = [story.parts[number].name for number, those in waits.items() if those == most]
    return most, names if len(names) < len(waits) else []


def times(finding: Finding) -> str:
    """How often it happened."""
    if not finding.per_step:
        return f"{finding.count:,}"
    if finding.per_step <= _RARE:
        return f"{finding.count:,} in this run, about once in {round(1 / finding.per_step):,} steps"
    return f"{finding.count:,} in this run, {count(finding.per_step)} a step"


def seen_in(finding: Finding, processes: LinesByProcess) -> str:
    """In which of several processes it was seen; the empty text if in all of them, or if there is one."""
    if not finding.processes:
        return ""
    of = f"{len(finding.processes):,} of {len(processes.working):,} processes"
    return f"{of}: {_listed(finding.processes)}"


def processes(story: Story) -> str:
    """Which processes of a joined recording ran anything on mps; the empty text for one of a single process."""
    names = [part.name for number, part in enumerate(story.parts) if number in story.processes.working]
    if not names:
        return ""
    return f"{len(names):,} process{'' if len(names) == 1 else 'es'} ran on mps: {_listed(names)}."


def _listed(names: Sequence[str]) -> str:
    shown = [clean(name) for name in names]
    more = len(shown) - _MOST_NAMES
    if more > 1:
        shown[_MOST_NAMES:] = [f"{more:,} more"]
    return listed(shown)


def cost(finding: Finding, step: Forecast | None) -> str:
    """What it costs on a Mac, with its share of the predicted step; the empty text if it stops the run instead."""
    if finding.cost_per_step_ns[1]:
        step_ns = 1e9 * sum(mac_seconds(step).values())
        low, high = (round(min(100 * part / step_ns, 100)) if step_ns else 0 for part in finding.cost_per_step_ns)
        share = f", {f'{low} to ' if low < high else ''}{high} % of it" if high else ""
        return f"about {duration_range(*finding.cost_per_step_ns)} a step on a Mac{share}"
    return f"about {duration_range(*finding.cost_ns)} in this run on a Mac" if finding.cost_ns[1] else ""


def environment(story: Story) -> list[tuple[str, str]]:
    """What the recording was made with, as pairs of name and value; what is not known is left out."""
    run = story.run
    computed = _cards(run) or "on this machine"
    devices = {None: "", False: "real", True: f"virtual: computed {computed} by the rules of MPS"}
    fallbacks = {None: "", False: "off (PYTORCH_ENABLE_MPS_FALLBACK)", True: "on (PYTORCH_ENABLE_MPS_FALLBACK)"}
    words = filter(None, (path(run.script, run.directory), *run.arguments))
    counted = (plural(story.call_count, "call"), plural(story.complete_steps, "complete step") + _part_words(run))
    facts = [
        ("Mac", run.mac_details or run.mac),
        ("device", devices[run.virtual]),
        ("fallback", fallbacks[run.fallback]),
        ("torch", run.torch_version),
        ("Python", run.python_version),
        ("platform", run.platform),
        ("anymps", run.anymps_version),
        ("variables", " ".join(f"{name}={value}" for name, value in sorted(run.environment.items()))),
        ("script" if run.suite is None else "session", " ".join(words)),
        ("recorded", ", ".join(filter(None, (run.started, *counted)))),
    ]
    return [(name, clean(value)) for name, value in facts if value]


def _cards(run: Meta) -> str:
    """Which NVIDIA GPUs have computed, each with its processes where several did; empty if the CPU has."""
    ranks: dict[str, list[str]] = {}
    for part in run.parts:
        ranks.setdefault(clean(part.card), []).append(clean(part.name))
    card = clean(run.card)
    if card or list(ranks) == [""]:
        return f"on {card}" if card else ""
    return "".join(f"on {card or 'the CPU'} ({', '.join(names)}), " for card, names in ranks.items()).removesuffix(", ")


def _part_words(run: Meta) -> str:
    if run.steps is None:
        return ""
    first, last = run.steps
    of = " of each process" if run.parts else "" if run.steps_seen is None else f" of {run.steps_seen}"
    return f" (steps {first}:{last}{of})"


def _not_begun(run: Meta, *, unused: bool) -> str:
    """Why a recording of part of a run is empty: the run ended before that part. The empty text for any other."""
    steps, seen = run.steps, run.steps_seen
    if steps is None or seen is None or seen > steps[0] or run.parts or not unused:
        return ""
    return f"The script made {plural(seen, 'training step')}, and --steps is {steps[0]}:{steps[1]}."


def limits(story: Story, *, brief: bool = False) -> list[str]:
    """What the reader must not conclude from this report; one sentence each; fewer in a `brief` one."""
    sentences = []
    if not story.run.on_mac and not brief:
        sentences.append(_whose_times(story.on_mac))
    if story.run.source == "observer":
        sentences.append(
            "Recorded by an observer of all operators: a time is what the host spent in a call, not what the GPU took."
        )
        if story.run.on_mac:
            sentences.append(_device_time(story.wait_calls, story.device_times))
    made = story.run, story.operators
    sentences += [told.in_full for told in (own_kernels(*made), numbers(*made)) if told is not None]
    if story.parts:
        names = ", ".join(clean(part.name) for part in story.parts)
        sentences.append(
            f"Joined from {len(story.parts)} processes ({names}), "
            "which are shown one after another: times and memory are those of one process at a time."
        )
    if not story.complete:
        cut = ", ".join(clean(part.name) for part in story.parts if not part.complete)
        which = f"The recording of {cut}" if cut else "The recording"
        sentences.append(f"{which} stops in the middle of the run: this report covers the run up to there.")
    if story.dropped:
        sentences.append(
            f"The detail of {plural(story.dropped, 'plain call')} was not kept: counts by line and operator "
            "include all calls, the step table only the steps with full detail."
        )
    if story.sizeless:
        first = ", ".join(f"`{clean(name)}`" for name in story.sizeless[:3])
        more = f" and {len(story.sizeless) - 3} more" if len(story.sizeless) > 3 else ""
        sentences.append(
            f"The run had more sizes than a recording keeps: later calls of {first}{more} are counted by operator and "
            "dtype, not by size."
        )
    for noted in story.packages:
        facts: Mapping[str, Any] = noted.facts
        known = size(facts["bytes"]) if facts["bytes"] else "", place(noted.occurrence.site, story.run.directory)
        sentences.append(
            f"The first call of {clean(facts['name'])} ({', '.join(filter(None, known))}) took "
            f"{duration(1e9 * facts['seconds'])} on this machine: a package's Metal kernels are compiled in it."
        )
    return [*sentences, *story.notes]


def _whose_times(step: Forecast | None) -> str:
    if step is None:
        return (
            "Times are this machine's, not a Mac's. Costs are ranges from public measurements on Macs, without the "
            "cost of draining a long queue."
        )
    return (
        f"Times are this machine's, except those marked as the {step.mac.name}'s, which are predicted. The cost of "
        "waits and launches is what the predicted step would save without them; other costs are ranges from public "
        "measurements. "
        "The program's own code was timed here and is scaled to that Mac's CPU."
    )


def _device_time(waits: Sequence[Occurrence], spans: Sequence[Occurrence]) -> str:
    """How long host and device were at work on a real Mac, as far as anything has measured it."""
    waiting = duration(sum(place.duration_ns for place in waits))
    waited = f"The host spent {waiting or 'no time'} in calls that wait for the device."
    if not spans:
        return (
            f"{waited} How long the device worked was not measured: put events (`torch.mps.Event(enable_timing=True)`) "
            "around a part of the loop, or use `torch.mps.profiler` with Instruments."
        )
    number = plural(sum(span.count for span in spans), "time")
    return (
        f"{waited} The device took {duration(sum(span.duration_ns for span in spans))} between events that the script "
        f"measured {number}; how long it worked at other times was not measured."
    )


def not_modelled(run: Meta) -> list[str]:
    """What the virtual device leaves out altogether; nothing on a real Mac."""
    if run.on_mac:
        return []
    return [
        _QUEUED_ON_A_CARD if _cards(run) else _DONE_AT_ONCE,
        "Memory that MPSGraph and Metal take for themselves.",
        "What Apple's compiler and GPU make of Metal shaders (`torch.mps.compile_shader`, `torch.compile`).",
        "Bugs inside Metal, unless they are listed as known ones; the last digits of results.",
    ]


def _would_it_run(run: Meta, judged: Judgement, *, unused: bool, fallbacks: int) -> str:
    mac, ended, outcome = clean(run.mac) or "a Mac", judged.ending, judged.outcome
    failed, ran = ("Did not run", "Ran") if run.on_mac else ("Would not run", "Would run")
    where = place(judged.site, run.directory)
    exception = clean(ended.exception)
    if outcome is Outcome.RAISES:
        return f"{failed} on {mac}: {where} raises {exception}."
    if outcome is Outcome.NO_CUDA:
        return f"{failed} on {mac}: {where} asks for CUDA."
    if judged.finding is not None and outcome is Outcome.STOPS:
        return f"Would not run on {mac}: {where} stops it ({judged.finding.id})."
    if outcome is Outcome.FAILED:
        at = f" at {where}" if judged.site.known else ""
        subject = f"The script failed, as {clean(ended.process)}" if ended.process else "The script"
        early = ", before anything reached mps" if unused else ""
        return f"{subject} ended with {exception}{at}{early}."
    if outcome is Outcome.CUT:
        refused = f"MPS on {mac} rejected {plural(judged.refused, 'call') if judged.refused else 'nothing'}"
        if unused:
            return f"{clean(ended.early)} before it used mps."
        return f"{clean(ended.early)}; until then {refused}."
    if outcome is Outcome.UNUSED:
        if not unused:
            return f"Nothing was recorded, so this says nothing about {mac}."
        if run.used_by_children:
            return f"Only child processes ran on mps, unrecorded, so this says nothing about {mac}."
        return f"Nothing ran on mps, so this says nothing about {mac}."
    if judged.finding is not None:
        return f"{ran} on {mac}, with wrong results: {where} ({judged.finding.id})."
    if judged.refused:
        return f"{ran} on {mac}, but {plural(judged.refused, 'call')} raised and the script continued."
    some = f", with {plural(fallbacks, 'operator')} on the CPU" if fallbacks else ""
    return f"{ran} on {mac}{some}."


def _session(run: Meta, suite: Suite, mac: str, *, unused: bool) -> str:
    """How the tests ended, on that Mac."""
    tests = plural(suite.tests, "test")
    if not suite.tests:
        return f"No test ran, so this says nothing about {mac}."
    if run.ending.status not in (0, 1):
        return f"The session did not finish: {tests} ran on {mac}."
    if unused:
        return f"None of {tests} used mps, so this says nothing about {mac}."
    if suite.failed:
        return f"{suite.failed:,} of {tests} {'failed' if run.on_mac else 'would fail'} on {mac}."
    words = f"{tests} {'ended' if run.on_mac else 'would end'} as expected on {mac}"
    return f"{words}, {suite.excused:,} of them with a failure." if suite.excused else f"{words}."


def expected(finding: Finding, suite: Suite | None) -> str:
    """Why an error is no news: the manifest, a mark or the test itself expects it. The empty text if it is news."""
    if suite is None or not finding.site.known or not is_refusal(finding):
        return ""
    why = (row.why for row in suite.expected if (row.file, row.line) == finding.site.file_line)
    return next((clean(words) or "expected" for words in why), "")


def news(findings: Sequence[Finding], suite: Suite | None) -> list[Finding]:
    """The findings that nobody expects."""
    return [finding for finding in findings if not expected(finding, suite)]


def how_many(findings: Sequence[Finding]) -> str:
    """How many findings there are, by severity: `1 warning.`, `3 findings: 1 error, 2 notes.`"""
    if not findings:
        return "No findings."
    counts = Counter(finding.severity for finding in findings)
    parts = [plural(counts[severity], severity.word) for severity in Severity if counts[severity]]
    whole = f"{plural(len(findings), 'finding')}: " if len(parts) > 1 else ""
    return f"{whole}{', '.join(parts)}."


def source_cell(line: Line, directory: str) -> Cut:
    """A line's source, and which further lines its kernels of torch.compile compute."""
    places = [
        str(number) if file == line.file else f"{module(file, directory)}:{number}" for file, number in line.fused
    ]
    return Cut(clean(line.source.strip()), f"  [one kernel with {', '.join(places)}]" if places else "")
