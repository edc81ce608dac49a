"""What the tests of checked Metal kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anymps.metal import take_shader_faults


@pytest.fixture
def no_faults_left() -> Iterator[None]:
    """Faults that no test takes are not the next one's."""
    yield
    take_shader_faults()
