"""Places as reports name them: short, and never cut inside a word."""

from __future__ import annotations

import pytest

from anymps.findings import Story, find
from anymps.record import Phase, Recording, RecordingBuilder, Site, Wait
from anymps.report import render_terminal
from anymps.report._text import place
from recordings import META

DIRECTORY = "/home/me/project"
LONG = "/opt/python/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py"


@pytest.mark.parametrize(
    ("file", "directory", "name"),
    [
        ("/home/me/project/train.py", DIRECTORY, "train.py:7"),
        ("/home/me/project/a/b/c/d/model.py", DIRECTORY, "a/b/c/d/model.py:7"),
        ("/home/me/other/nanogpt/model.py", DIRECTORY, "../other/nanogpt/model.py:7"),
        ("/srv/other/nanogpt/model.py", DIRECTORY, "nanogpt/model.py:7"),
        ("/home/me/.pyenv/versions/3.11.7/lib/python3.11/logging/__init__.py", DIRECTORY, "logging/__init__.py:7"),
        ("/usr/lib/python3.11/logging/__init__.py", DIRECTORY, "logging/__init__.py:7"),
        ("/opt/python/lib/python3.11/site-packages/timm/layers/drop.py", DIRECTORY, "timm/layers/drop.py:7"),
        (LONG, DIRECTORY, "transformers/.../modeling_llama.py:7"),
        ("<string>", DIRECTORY, "<string>:7"),
        ("", DIRECTORY, "an unknown line"),
        ("/home/me/gpt/mingpt/model.py", "/home/me/gpt/projects/adder", "../../mingpt/model.py:7"),
        ("/home/me/gpt/mingpt/model.py", "/home/me/gpt/a/b/c", "../../../mingpt/model.py:7"),
        ("/home/me/gpt/mingpt/model.py", "/home/me/gpt/a/b/c/d", "mingpt/model.py:7"),
        ("/home/me/gpt/mingpt/model.py", "", "mingpt/model.py:7"),
    ],
)
def test_a_place_is_its_package_and_module(file: str, directory: str, name: str) -> None:
    """Below the directory of the run, or close to it, a path stays whole and can be opened from there."""
    assert place(Site(file, 7), directory) == name


def waiting(*, steps: int) -> Recording:
    """A read in every step, or forty in a run without steps, far away from the script."""
    builder = RecordingBuilder(meta={**META})
    line = builder.site(LONG, 312, "forward", "position = int(cache_position[0].item())")
    for number in range(max(steps, 40)):
        builder.entry("aten::mm", start_ns=number * 1000, duration_ns=100, phase=Phase.FORWARD)
        builder.entry(
            "aten::_local_scalar_dense", start_ns=number * 1000 + 500, duration_ns=100, phase=Phase.LOSS_READ,
            site=line, wait=Wait.ITEM,
        )  # fmt: skip
        if steps:
            builder.end_step((number + 1) * 1000)
    return builder.close()


def test_the_table_of_memory_keeps_its_words_whole() -> None:
    """Where the place is long, its first folders give way, not the words beside it."""
    builder = RecordingBuilder(meta={**META})
    deep = builder.site(f"{DIRECTORY}/segment_anything/modeling/encoders/image_encoder.py", 358, "forward", "x + y")
    builder.allocation(1 << 30, "aten::convolution_backward", site=deep)
    recording = builder.close()
    text = render_terminal(Story.of(recording), [], width=100)
    assert "aten::convolution_backward  .../encoders/image_encoder.py:358" in text


@pytest.mark.parametrize("steps", [0, 40])
def test_a_place_is_not_cut_inside_a_word(steps: int) -> None:
    """The tables of a terminal keep places whole, however narrow it is."""
    recording = waiting(steps=steps)
    text = render_terminal(Story.of(recording), find(recording), width=80)
    assert "transformers/.../modeling_llama.py:312" in text
    assert "the run has no steps to judge it by" in " ".join(text.split()) or steps
