"""The example of each rule, run on the virtual device: the rule fires on the one half and not on the other.

What the findings say is in data/rule_findings.txt, which `python -m findings.test_rule_examples` in tests writes anew.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from anymps.findings import RULES, Rule
from anymps.rules import installed_torch
from anymps.rules.faults import all_hazards
from kernel_files import has_kernels, needs_kernels
from processes import run_with_torch

# Runs the named scripts, each recorded by itself, and prints the findings of each as one line of JSON.
RUN = """
import contextlib, json, os, pathlib, sys
import torch, anymps
from anymps.findings import find
anymps.enable({mac!r}, start_method="system")  # a guard guards nothing in one process for all
found = {{}}
before = dict(os.environ)
which = os.environ.get("ANYMPS_CHECK_NUMBERS")
for path in map(pathlib.Path, {paths!r}):
    try:
        numbers = anymps.check_numbers(which) if which else contextlib.nullcontext()
        with anymps.record(script=str(path)) as capture, numbers:
            exec(compile(path.read_text(), str(path), "exec"), {{"__name__": "__main__", "__file__": str(path)}})
    except Exception as error:
        print(path.name, type(error).__name__, error, file=sys.stderr)
    found[path.stem] = [
        [one.id, pathlib.Path(one.site.file).name, one.site.source, one.severity.label, one.count, one.per_step]
        + [one.what, one.fix, [f", {{one.related_as}} {{place.source}}" for place in one.related_sites]]
        for one in find(capture.recording)
    ]
    os.environ.clear()
    os.environ.update(before)  # what a script sets is its own
    torch.multiprocessing.set_start_method(None, force=True)  # Inductor's own processes settle it
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
print("\\n" + json.dumps(found))
"""


WITH_BUGS = "2.13.0"
"""The release whose kernels compute the wrong numbers of the examples."""
EXEMPLIFIED = {identity: rule for identity, rule in RULES.items() if rule.example is not None}


def test_only_known_faults_of_the_backend_have_no_example() -> None:
    """A rule without an example is one of the hazards, whose rows have theirs."""
    assert {hazard.id for hazard in all_hazards()} == RULES.keys() - EXEMPLIFIED.keys()


TEXTS = Path(__file__).parents[1] / "data" / "rule_findings.txt"


def run_examples(directory: Path) -> dict[str, list[list[Any]]]:
    """The findings of every half of every example, by `MPS201.bad`; one process for each Mac and environment."""
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[str]] = {}
    for rule in EXEMPLIFIED.values():
        assert rule.example is not None
        if rule.example.numbers and not has_kernels(WITH_BUGS, installed=WITH_BUGS):
            continue
        for half in ("bad", "good"):
            path = directory / f"{rule.id}_{half}.py"
            path.write_text(f"{rule.example.setup}\n{getattr(rule.example, half)}")
            variables = tuple(rule.example.variables.items())
            groups.setdefault((rule.example.mac, variables), []).append(str(path))
    result: dict[str, list[list[Any]]] = {}
    for (mac, variables), paths in groups.items():
        environment = {"PYTORCH_ENABLE_MPS_FALLBACK": "0", **dict(variables)}
        answer = run_with_torch(RUN.format(mac=mac, paths=paths), environment)
        result |= json.loads(answer.lines[-1])
    return result


def told(rule: Rule, found: dict[str, list[list[Any]]]) -> str:
    """What the findings of a rule on its example say."""
    blocks = [
        f"{identity} {severity}, {count} in all, {per_step:g} a step: {source}{''.join(related)}\n{what}\n{fix}\n"
        for identity, _, source, severity, count, per_step, what, fix, related in found[f"{rule.id}_bad"]
        if identity == rule.id
    ]
    # What other examples left behind is in the memory.
    for size in (r"held more than", r"the allocator kept"):
        blocks = [re.sub(rf"{size} [\d.]+ \w+(, \d+ %)?", f"{size} S", block) for block in blocks]
    # How long this machine took is in the predicted step.
    text = re.sub(r"\d+ % of the predicted (step|time)", r"P % of the predicted \1", "\n".join(blocks))
    text = re.sub(r"[\d.]+ times as long on an (.*) \(.* in place of .*?\)", r"R times as long on an \1 (T)", text)
    return re.sub(r"about \d+ % of a step of [\d.]+ \w+", "about P % of a step of T", text)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Any]]]:
    """All examples, run once."""
    return run_examples(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("rule", EXEMPLIFIED.values(), ids=EXEMPLIFIED)
def test_the_rule_fires_on_its_example_and_not_on_the_better_code(
    found: dict[str, list[list[Any]]], rule: Rule
) -> None:
    """The first half of an example gives the rule's finding, at a line of its own; the second half gives nothing."""
    if not rule.applies(str(installed_torch().version)):
        pytest.skip(f"{rule.id} does not hold for torch {installed_torch().version}")
    assert rule.example is not None
    if rule.example.numbers:
        needs_kernels(WITH_BUGS, installed=WITH_BUGS)
    bad, good = found[f"{rule.id}_bad"], found[f"{rule.id}_good"]
    assert [place for place in bad if place[0] == rule.id], bad
    for _, file, source, *_ in bad:
        assert (file, source in rule.example.bad) == (f"{rule.id}_bad.py", True)
    assert good == []
    if str(installed_torch().version).startswith(WITH_BUGS):
        assert f"\n{told(rule, found)}" in f"\n{TEXTS.read_text(encoding='utf-8')}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        examples = run_examples(Path(place))
    TEXTS.write_text("\n".join(told(rule, examples) for rule in EXEMPLIFIED.values()), encoding="utf-8")
