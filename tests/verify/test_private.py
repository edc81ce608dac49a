"""Nothing private is in a file of answers; the words of torch stay as they are."""

from __future__ import annotations

import platform

import pytest

from anymps.verify import _private
from anymps.verify._private import without_private


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Invalid buffer size: 4.00 TiB", "Invalid buffer size: 4.00 TiB"),
        ("no file /Users/ann/secret project/x.py", "no file .../secret project/x.py"),
        ("in '/home/ann/a/train.py', line 3", "in '.../train.py', line 3"),
        ("/private/var/folders/zz/T/tmp1/x.metal:3: error", ".../x.metal:3: error"),
        ("/opt/x/site-packages/torch/nn/functional.py:3", "torch/nn/functional.py:3"),
        ("object at 0x10f3a2b40", "object at 0x..."),
        ("falls back. (Triggered internally at /Users/runner/work/pytorch/MPSFallback.mm:15.)", "falls back."),
        ("bad\nException raised from f at /Users/r/x.cpp:3 (most recent call first):\nframe #0", "bad"),
        (
            'false INTERNAL ASSERT FAILED at "/__w/pytorch/pytorch/aten/DispatchStub.cpp":226, please report',
            'false INTERNAL ASSERT FAILED at ".../DispatchStub.cpp":226, please report',
        ),
        ("expected a/b of 3/4, input[0] and 1.0/x", "expected a/b of 3/4, input[0] and 1.0/x"),
    ],
)
def test_texts(text: str, left: str) -> None:
    """Paths keep their last part, as far as a blank goes; a place in torch's own source is left out."""
    assert without_private(text) == left


def test_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken out, with and without its domain; values of results are not looked at."""
    monkeypatch.setattr(platform, "node", lambda: "anns-mac.local")
    _private._names.cache_clear()
    try:
        answer = {"text": "on anns-mac.local and anns-mac", "samples": [{"values": "AA/home/x/y0x1234567"}]}
        assert without_private(answer) == {"text": "on ... and ...", "samples": [{"values": "AA/home/x/y0x1234567"}]}
    finally:
        _private._names.cache_clear()
