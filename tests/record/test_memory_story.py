"""The story of a run's memory: what each buffer was, on hand-made lives and on a real training."""

from __future__ import annotations

from anymps.record import MemoryStory, Phase, Role, Site
from anymps.record._memory import Category, Row, tell
from processes import ENABLE, run_with_torch

MODULES = {0: "", 1: "net.a", 2: "net.b"}
SITES = {
    0: Site("", 0),
    1: Site("train.py", 3, "main", "y = net(x)"),
    2: Site("train.py", 5, "main", "loss.backward()"),
}
OPERATORS = {1: "aten::mm", 2: "aten::zeros"}


def row(
    number: int,
    born: int,
    died: int = 0,
    *,
    size: int = 256,
    requested: int | None = None,
    allocated: int = 0,
    reserved: int = 0,
    signature: int = 1,
    module: int = 1,
    site: int = 1,
    step: int = 0,
    died_step: int = 0,
    phase: Phase = Phase.FORWARD,
    died_phase: Phase = Phase.OTHER,
    role: Role = Role.NONE,
) -> Row:
    """One row of the table `allocations`; its times are its events in microseconds."""
    asked = size if requested is None else requested
    return (
        number, born, died, born * 1000, died * 1000, size, asked, allocated, reserved, signature, module, site, step,
        died_step, int(phase), int(died_phase), int(role),
    )  # fmt: skip


def story_of(*rows: Row) -> MemoryStory:
    """Their story."""
    return tell(rows, max((one[12] for one in rows), default=0), OPERATORS, MODULES, SITES)


def category(**life: object) -> Category:
    """What one buffer was, in a run of four steps."""
    rows = (row(1, 1, **life), row(2, 9, 10, step=3, died_step=3))  # type: ignore[arg-type]
    return story_of(*rows).allocations[0].category


def test_categories_follow_from_a_buffers_life() -> None:
    """Each kind of life is told apart."""
    assert category(role=Role.PARAMETER) is Category.PARAMETERS
    assert category(role=Role.BUFFER) is Category.PARAMETERS
    assert category(phase=Phase.BACKWARD) is Category.GRADIENTS
    assert category(phase=Phase.BACKWARD, died=5, died_phase=Phase.OPTIMIZER) is Category.GRADIENTS
    assert category(phase=Phase.BACKWARD, died=5, died_step=1) is Category.GRADIENTS
    assert category(phase=Phase.BACKWARD, died=5, died_phase=Phase.BACKWARD) is Category.TEMPORARIES
    assert category(phase=Phase.OPTIMIZER) is Category.OPTIMIZER
    assert category(phase=Phase.OPTIMIZER, died=5, died_phase=Phase.OPTIMIZER) is Category.TEMPORARIES
    assert category(phase=Phase.MOVE, died=5, died_step=1) is Category.BATCHES
    assert category(phase=Phase.MOVE, died=5, died_step=2) is Category.HELD
    assert category(phase=Phase.MOVE) is Category.HELD
    assert category(phase=Phase.FORWARD, died=5, died_phase=Phase.BACKWARD) is Category.ACTIVATIONS
    assert category(phase=Phase.FORWARD, died=5, died_phase=Phase.FORWARD) is Category.TEMPORARIES
    assert category(phase=Phase.FORWARD, died=5, died_step=1) is Category.ACTIVATIONS
    assert category(phase=Phase.FORWARD, died=5, died_step=2) is Category.HELD
    assert category(phase=Phase.FORWARD) is Category.HELD


def test_a_model_that_never_ran_is_no_batch() -> None:
    """Without a step nothing tells a model that was moved from its data; the last batch of a training is one."""
    assert story_of(row(1, 1, phase=Phase.MOVE)).allocations[0].category is Category.HELD
    last = story_of(row(1, 1), row(2, 9, step=3, phase=Phase.MOVE)).allocations[1]
    assert last.category is Category.BATCHES


def test_the_batch_of_a_first_step_that_raised() -> None:
    """A run that ended in its first step still holds the batch. Without a module that ran, it was moving a model."""
    moved, weight = row(2, 9, phase=Phase.MOVE), row(1, 1, phase=Phase.MOVE, role=Role.PARAMETER)
    cut_short = tell([weight, moved], 0, OPERATORS, MODULES, SITES, cut_short=True)
    assert [one.category for one in cut_short.allocations] == [Category.PARAMETERS, Category.BATCHES]
    assert story_of(weight, moved).allocations[1].category is Category.HELD
    model = tell([moved], 0, OPERATORS, MODULES, SITES, cut_short=True)
    assert model.allocations[0].category is Category.HELD


def test_a_buffer_from_before_the_recording_has_its_own_category() -> None:
    """Nothing is known of what was there before, except that it was; a parameter is known by its role."""
    story = story_of(row(1, 0), row(2, 0, role=Role.PARAMETER), row(3, 1, allocated=768, reserved=1024))
    assert [one.category for one in story.allocations[:2]] == [Category.BEFORE, Category.PARAMETERS]
    assert story.peak is not None
    assert (story.peak.allocated, story.peak.by_category[Category.BEFORE]) == (768, 256)


def test_what_the_ledger_does_not_know_counts_as_before() -> None:
    """The allocator's own number stands; what no row explains was there before the recording."""
    story = story_of(row(1, 1, allocated=1256, reserved=2048))
    assert story.peak is not None
    assert story.peak.by_category[Category.BEFORE] == 1000
    assert sum(story.peak.by_category.values()) == 1256


def peaking() -> MemoryStory:
    """Two parameters, two activations and one temporary; the peak is at the fourth event."""
    return story_of(
        row(1, 1, size=1024, requested=1000, role=Role.PARAMETER, allocated=1024, reserved=8192),
        row(2, 2, 7, size=512, module=1, allocated=1536, reserved=8192, died_phase=Phase.BACKWARD),
        row(3, 3, 6, size=768, requested=700, module=2, allocated=2304, reserved=8192, died_phase=Phase.BACKWARD),
        row(4, 4, 5, size=256, site=2, signature=2, allocated=2560, reserved=8192, died_phase=Phase.FORWARD),
    )


def test_the_peak_names_what_was_alive() -> None:
    """The moment of most bytes, its categories, its rounding and its cache."""
    peak = peaking().peak
    assert peak is not None
    assert (peak.event, peak.allocated, peak.reserved, peak.cached, peak.rounding) == (4, 2560, 8192, 5632, 92)
    assert {one.value: size for one, size in peak.by_category.items() if size} == {
        "parameters": 1024,
        "activations": 1280,
        "temporaries": 256,
    }
    assert peak.site == SITES[2]
    assert (peak.step, peak.phase) == (0, Phase.FORWARD)


def test_by_module_and_by_site_are_sorted_by_size() -> None:
    """The largest holder is first; a line counts by category and operator."""
    peak = peaking().peak
    assert peak is not None
    assert [(one.module, one.bytes, one.count) for one in peak.by_module()] == [("net.b", 768, 1), ("net.a", 512, 1)]
    assert [(one.site.line, one.category.value, one.operator, one.bytes, one.count) for one in peak.by_site()] == [
        (3, "activations", "aten::mm", 1280, 2),
        (3, "parameters", "aten::mm", 1024, 1),
        (5, "temporaries", "aten::zeros", 256, 1),
    ]


def test_of_equal_peaks_the_first_counts() -> None:
    """A peak that comes again in each step is shown where it was first reached."""
    story = story_of(row(1, 1, 2, allocated=256, reserved=512), row(2, 3, 4, allocated=256, reserved=512, step=1))
    assert story.peak is not None
    assert story.peak.event == 1


def test_each_step_has_a_peak_and_what_it_left_the_last_one_included() -> None:
    """A buffer counts as left by every step from its birth on to the one before its death."""
    story = story_of(
        row(1, 1, role=Role.PARAMETER, size=1000, allocated=1000, reserved=4096),
        row(2, 2, 3, size=100, allocated=1100, reserved=4096, died_phase=Phase.BACKWARD),
        row(3, 4, 6, size=10, allocated=1010, reserved=4096, died_step=1),
        row(4, 5, size=20, allocated=1030, reserved=8192, step=1, phase=Phase.OPTIMIZER),
        row(5, 7, 8, size=500, allocated=1520, reserved=8192, step=2, died_step=2),
    )
    assert [(one.step, one.peak, one.reserved, one.after) for one in story.steps()] == [
        (0, 1100, 4096, 1010),
        (1, 1030, 8192, 1020),
        (2, 1520, 8192, 1020),
    ]


def test_samples_keep_the_highest_moment_of_each_stretch() -> None:
    """Fewer points than births never hide the peak."""
    rows = [row(n, 2 * n, 2 * n + 1, size=n * 10 if n != 37 else 9999, allocated=n, reserved=64) for n in range(1, 101)]
    samples = story_of(*rows).samples(10)
    assert len(samples) == 10
    assert max(sum(one.by_category) for one in samples) == 9999
    assert [one.at_ns for one in samples] == sorted(one.at_ns for one in samples)
    assert len(story_of(*rows).samples()) == 100


def test_a_run_without_buffers_has_no_peak() -> None:
    """Nothing was allocated: nothing is said."""
    story = story_of()
    assert (story.peak, story.peak_reserved, story.steps(), story.samples()) == (None, 0, (), ())


TRAINING = """
from torch import nn
from anymps.record._memory import Category

def asked(tensors):
    return sum(t.untyped_storage().nbytes() for t in tensors if t.is_mps)

with anymps.record() as capture:
    net = nn.Sequential(nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 10)).to("mps")
    optimizer = torch.optim.AdamW(net.parameters(), fused={fused})
    for step in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(64, 300).to("mps")).square().mean()
        loss.backward()
        optimizer.step()
    exact = {
        Category.PARAMETERS: asked(net.parameters()),
        Category.GRADIENTS: asked(p.grad for p in net.parameters()),
        Category.OPTIMIZER: asked(t for s in optimizer.state.values() for t in s.values()),
    }
story = capture.recording.memory_story
last = story.at(max(max(a.born, a.died or 0) for a in story.allocations))
for category, size in exact.items():
    alive = [one for one in last.alive if one.category is category]
    print(category.value, size > 0, sum(one.requested for one in alive) - size)
    assert last.by_category[category] == sum(one.bytes for one in alive) >= size
"""


def test_a_real_training_is_told_to_the_byte() -> None:
    """Parameters, gradients and optimizer state are exactly those of the module and the optimizer."""
    for fused in (False, True):
        result = run_with_torch(ENABLE + TRAINING.replace("{fused}", str(fused)))
        assert result.lines == ["parameters True 0", "gradients True 0", "optimizer state True 0"]
