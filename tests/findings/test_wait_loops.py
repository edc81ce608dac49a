"""MPS207: waits in loops that take no training step, told from those of a few metrics and of training itself."""

from __future__ import annotations

import pytest

from anymps.findings import Finding, Severity, Story, find
from anymps.record import Fate, Phase, Recording, RecordingBuilder, Wait
from anymps.report import report_pieces
from processes import ENABLE, run_with_torch

SCRIPT, LIBRARY = "evaluate.py", "/venv/lib/python3.11/site-packages/timm/utils.py"


class Run:
    """A recording in the making, in which each call takes a microsecond."""

    def __init__(self) -> None:
        self.builder = RecordingBuilder(meta={"torch_version": "2.13.0", "virtual": True})
        self.time = 0

    def call(
        self, operator: str, line: int, source: str, wait: Wait = Wait.NONE, file: str = SCRIPT, moved: int = 0,
        fate: Fate = Fate.NATIVE,
    ) -> None:  # fmt: skip
        """One operator at a line."""
        site = self.builder.site(file, line, "main", source)
        self.time += 1000
        self.builder.entry(
            operator,
            start_ns=self.time,
            duration_ns=900,
            phase=Phase.FORWARD,
            site=site,
            wait=wait,
            moved_bytes=moved,
            fate=fate,
        )

    def rounds(
        self, number: int, source: str = "total += loss.item()", wait: Wait = Wait.ITEM, *, work: int = 1,
        line: int = 12, file: str = SCRIPT,
    ) -> Run:  # fmt: skip
        """Rounds of a loop: `work` operators, then a wait."""
        operator, moved = ("aten::copy_", 256) if wait is Wait.COPY_TO_CPU else ("aten::_local_scalar_dense", 4)
        for _ in range(number):
            for _ in range(work):
                self.call("aten::linear", 11, "out = model(x)", file=file)
            self.call(operator, line, source, wait, file, moved)
        return self

    def trained(self, steps: int) -> Run:
        """Training steps without a wait."""
        for _ in range(steps):
            self.call("aten::linear", 5, "loss = model(x).sum()")
            self.builder.end_step(self.time + 1000)
        return self

    def close(self) -> Recording:
        """The finished recording."""
        return self.builder.close()


def looping(run: Run) -> list[Finding]:
    """Its findings of MPS207."""
    return [finding for finding in find(run.close()) if finding.id == "MPS207"]


def test_inference() -> None:
    """Ten rounds are a loop, with the advice for the line; its cost is that of the run."""
    (finding,) = looping(Run().rounds(10))
    assert (finding.severity, finding.site.line, finding.count, finding.per_step) == (Severity.INFO, 12, 10, 0.0)
    assert finding.what == "`.item()` made the host wait 10 times, in a loop without a training step."
    assert finding.fix == (
        "Add up on the device, `total = total + loss.detach()`, and read `total` every 10 steps or after the loop."
    )
    assert finding.cost_ns == (10 * 100_000, 10 * 450_000)


def test_reads_of_tensors_that_are_there() -> None:
    """Each costs its time with an empty queue as well, unlike a copy that has nothing to wait for."""
    (finding,) = looping(Run().trained(4).rounds(40, "gains = torch.tensor(gains)", work=0).trained(4))
    assert finding.what == (
        "`torch.tensor` read the tensors that it was given, one by one, 40 times, in a loop without a training step."
    )


@pytest.mark.parametrize(("rounds", "expected"), [(10, 1), (9, 0)])
def test_validation_between_steps(rounds: int, expected: int) -> None:
    """Two epochs with a validation after each: ten rounds in each are a loop, nine are not."""
    run = Run().trained(4).rounds(rounds).trained(4).rounds(rounds)
    assert len(looping(run)) == expected


def test_other_reads() -> None:
    """The advice is that of the rules about training steps."""
    (finding,) = looping(Run().rounds(12, "send(out.cpu(), y.cpu())", Wait.COPY_TO_CPU))
    assert finding.fix == (
        "Keep results on the device, `.detach()`, and read them together every 10 steps or after the loop."
    )


def test_results_that_an_inference_prints() -> None:
    """They are what it is for: none is to be left out, as the log of a training is."""
    run = Run()
    run.builder = RecordingBuilder(meta={"torch_version": "2.13.0", "virtual": True, "loop": "inference"})
    (finding,) = looping(run.rounds(12, "print(out.argmax(-1).item())"))
    assert finding.fix == (
        "Keep results on the device, and print those of several rounds together: one wait, not one each."
    )


@pytest.mark.parametrize(
    "run",
    [
        Run().rounds(9),
        Run().rounds(40, "saved.append(weight.cpu())", Wait.COPY_TO_CPU, work=0),
        Run().rounds(40, file=LIBRARY),
        Run().rounds(40, "torch.mps.synchronize()", Wait.SYNCHRONIZE),
        Run().rounds(40, "x = x.to(device)", Wait.COPY_TO_MPS),
        Run().rounds(1).trained(1).rounds(1).trained(1).rounds(20),
    ],
    ids=["few", "nothing queued", "a package's", "timing", "moving", "few between steps"],
)
def test_what_is_no_loop(run: Run) -> None:
    """A few metrics, weights that are saved, packages, clocks, the data's way, a read now and then."""
    assert looping(run) == []


def test_waits_inside_a_package() -> None:
    """No finding, as its loop is not the user's; the table says whose it is instead of only how often."""
    run = Run()
    run.builder = RecordingBuilder(meta={"torch_version": "2.13.0", "virtual": True, "loop": "inference"})
    for _ in range(12):
        run.rounds(1, file=LIBRARY)
        run.builder.end_step(run.time + 1000)
    (place,) = Story.of(run.builder.close()).waits
    assert (place.hurts, place.reason) == (False, "inside the package `timm`, in 12 of 12 steps")


def test_reads_of_the_training_loop() -> None:
    """What waits in every training step is MPS201 alone."""
    run = Run()
    for _ in range(6):
        run.rounds(20).trained(1)
    assert [finding.id for finding in find(run.close())] == ["MPS201"]


def test_one_setting_is_one_finding() -> None:
    """Lines whose waits one setting ends are told together."""
    run = Run()
    for line in (12, 13):
        via = "torch/distributions/distribution.py:__init__"
        for _ in range(10):
            run.call("aten::exp", 11, "scale = log.exp()")
            site = run.builder.site(SCRIPT, line, "main", "policy = Normal(mean, scale)", via)
            run.time += 1000
            run.builder.entry(
                "aten::_local_scalar_dense", start_ns=run.time, duration_ns=900, site=site, wait=Wait.ITEM
            )
    (finding,) = looping(run)
    assert [site.line for site in (finding.site, *finding.related_sites)] == [12, 13]
    assert finding.what == (
        "A distribution checked whether its arguments are valid 20 times, in a loop without a training step, at 2 "
        "lines: this one costs most."
    )


@pytest.mark.parametrize(("rounds", "rule"), [(10, "MPS102"), (9, "MPS103")])
def test_fallbacks(rounds: int, rule: str) -> None:
    """Ten fallbacks without a training step are in a loop, in a package's lines too."""
    run = Run()
    for _ in range(rounds):
        run.call("aten::_linalg_svd.U", 12, "u = svd(x)", Wait.FALLBACK, LIBRARY, 64, Fate.FALLBACK)
    recording = run.close()
    (finding,) = find(recording)
    assert (finding.id, finding.site.line, finding.count) == (rule, 12, rounds)
    if rule == "MPS102":
        assert finding.what == (
            "`aten::_linalg_svd.U` ran on the CPU 10 times in a loop without a training step: 20 device switches."
        )
        text = "".join(report_pieces("html", Story.of(recording), [finding]))
        assert "the findings say how to avoid that: timm/utils.py:12 (MPS102)." in text


def test_in_a_report() -> None:
    """The waits that a finding is about are not among those that belong."""
    recording = Run().rounds(10).rounds(3, "print(x.item())", line=20).close()
    text = "".join(report_pieces("html", Story.of(recording), find(recording)))
    assert (
        "Loops without a training step wait too; the findings say how to avoid that: evaluate.py:12 (MPS207)." in text
    )
    belonging = text.partition('id="waits-belonging"')[2].partition("</table>")[0]
    assert ("evaluate.py:20" in belonging, "evaluate.py:12" in belonging) == (True, False)


def test_two_loops_one_after_the_other() -> None:
    """A wait in each step of the first of two trainings is told, though most are of the second; no step is uneven."""
    script = """
from anymps.findings import Story, find
def train(net, data, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        loss = net(data).sum()
        loss.backward()
        optimizer.step()
        yield loss
with anymps.record() as capture:
    net, data = torch.nn.Linear(4, 4).to("mps"), torch.rand(2, 4, device="mps")
    for loss in train(net, data, 8):
        loss.item()
    for loss in train(torch.nn.Linear(4, 2).to("mps"), net(data).detach(), 30):
        pass
recording = capture.recording
print([(finding.id, finding.what) for finding in find(recording) if finding.id in ("MPS201", "MPS903")])
story = Story.of(recording)
print(*story.notes)
from anymps.report._predicted import predicted_in_short, predicted_sentence
in_full, in_short = "In loop {} of 2, a step would take about", "A step of loop {}: about"
for said, words in ((predicted_sentence, in_full), (predicted_in_short, in_short)):
    print(*(words.format(loop) in said(story) for loop in (1, 2, 3)))
print([place.on_mac_ns is not None for place in story.waits if place.hurts])
"""
    assert run_with_torch(ENABLE + script).lines == [
        "[('MPS201', 'Reading a value made the host wait once a step.')]",
        "The script trains in 2 loops, one after the other. The step table is that of all steps together, and the "
        "Mac's times in it are those of a step of loop 2; `--steps 9` shows the first loop by itself.",
        "True True False",
        "True True False",
        "[True]",
    ]
