"""Models that nobody here wrote, tiny and with random weights, each with a batch: what the integration tests train.

Every dropout is 0, because the random streams of mps and of the CPU differ on purpose (torch 2.13, c10/metal/random.h).
"""

# Each of these registers its models.
from integration.models import _diffusers, _pictures_and_sound, _texts, _torch  # noqa: F401
from integration.models._cases import CASES, OPTIMIZERS, Case, floats_of, loss_of, on_device, tokens, train

__all__ = ["CASES", "OPTIMIZERS", "Case", "floats_of", "loss_of", "on_device", "tokens", "train"]
