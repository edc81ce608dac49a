"""What shaders need of the device that they run on."""

from __future__ import annotations

from typing import Protocol

import torch


class Device(Protocol):
    """The part of the native core that launches of shaders use."""

    def shaders_by_operator(self) -> bool:
        """Whether a launch must go by an operator: something records, or nothing is computed."""

    def note_shader_error(self, kernel: str, message: str) -> None:
        """Has the next wait raise what a kernel wrote into its error buffer."""

    def current_site(self) -> int:
        """The number of the place in the user's code that is running."""

    def note_pair(self, name: str, site: int, other: int, /) -> None:
        """Writes a mark for a line."""

    def begin_margins(self) -> None:
        """Has new buffers allocated with empty memory around them."""

    def begin_launch(self, tensors: list[torch.Tensor], /) -> tuple[list[tuple[int, int, int]], object] | None:
        """Marks the empty memory around the buffers of tensors, for a launch that `end_launch` ends.

        A buffer without any is copied: the first address, the one past the last, and how far away the copy lies.
        Raises RuntimeError in a forked child of a process that has used the device.
        """

    def stray_store(self, addresses: list[int], /) -> tuple[int, int, int, int] | None:
        """What a kernel of PyTorch's stored beside the buffers that begin there: as `end_launch` says it."""

    def end_launch(self, tensors: list[torch.Tensor], begun: object, /) -> tuple[int, int, int, int] | None:
        """What was written beside them since: index, offset of the first byte, how many bytes, bytes of the buffer.

        `begun` is what `begin_launch` returned; what the launch has changed in copies is written into the buffers.
        """
