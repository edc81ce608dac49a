"""Plant a classic MPS mistake in an example's source text, and say on which line a finding is due.

The examples are the model of good practice; tests of the findings need the same scripts with one thing wrong. A plant
is a few exact replacements in the example's text, so that no second copy of an example has to be kept in step.

    planted = plant("wait")
    path.write_text(planted.source)     # run it with QUICK[planted.example] to keep it short
    planted.line                        # 1-based line of path where the finding belongs

Every planted script still runs on the CPU: that is what makes these mistakes last until somebody has a Mac.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = ("char_gpt", "digits_cnn", "issue_classifier")

#: Arguments for a short run. A planted issue_classifier lies elsewhere than its data, hence --data.
QUICK = {
    "char_gpt": ["--steps", "20"],
    "digits_cnn": ["--epochs", "1"],
    "qlora_tiny": [],
    "issue_classifier": ["--epochs", "10", "--data", str(FOLDER / "data" / "issues.csv")],
}


@dataclass(frozen=True)
class Planted:
    """An example with a mistake in it.

    `line` is where the finding is due, `origin` the earlier line that made the tensor at fault (None for `fallback` and
    `wait`, whose cause is the line itself); both count from 1.
    """

    example: str
    source: str
    line: int
    origin: int | None


@dataclass(frozen=True)
class _Plant:
    """Exact replacements (anchor, new text), and the lines, without indentation, that the finding will name."""

    example: str
    edits: tuple[tuple[str, str], ...]
    finding: str
    origin: str | None = None


_NUMPY = ("\nimport torch\n", "\nimport numpy as np\nimport torch\n")

_PLANTS: dict[str, _Plant] = {
    # An operator with a CPU kernel and none for MPS up to torch 2.14 (native_functions.yaml of the wheels).
    "fallback": _Plant(
        "issue_classifier",
        edits=(
            (
                "        mask = (tokens != PADDING).float().unsqueeze(-1)\n",
                "        padding = torch.zeros((), device=tokens.device)\n"
                "        mask = torch.heaviside(tokens.float(), padding).unsqueeze(-1)\n",
            ),
        ),
        finding="mask = torch.heaviside(tokens.float(), padding).unsqueeze(-1)",
    ),
    # NumPy's default dtype on its way to the device: a TypeError on MPS (torch 2.7 to 2.15, EmptyTensor.cpp).
    "float64": _Plant(
        "digits_cnn",
        edits=(
            _NUMPY,
            (
                "    training, held_out = load_data()\n",
                "    training, held_out = load_data()\n"
                "    class_weights = torch.from_numpy(np.linspace(1.0, 2.0, CLASSES))\n",
            ),
            (
                "    model = Net().to(device)",
                "    class_weights = class_weights.to(device)\n    model = Net().to(device)",
            ),
            (
                "            loss = F.cross_entropy(model(images), targets)\n",
                "            losses = F.cross_entropy(model(images), targets, reduction='none')\n"
                "            loss = (losses * class_weights[targets]).mean()\n",
            ),
        ),
        finding="class_weights = class_weights.to(device)",
        origin="class_weights = torch.from_numpy(np.linspace(1.0, 2.0, CLASSES))",
    ),
    # A tensor made without device=, mixed into work on the device: a RuntimeError on MPS (TensorIterator.cpp).
    "mismatch": _Plant(
        "issue_classifier",
        edits=(
            (
                "        mask = (tokens != PADDING).float().unsqueeze(-1)\n",
                "        fading = torch.linspace(1.0, 0.5, MAX_TOKENS).unsqueeze(-1)\n"
                "        mask = (tokens != PADDING).float().unsqueeze(-1)\n",
            ),
            ("self.embedding(tokens) * mask\n", "self.embedding(tokens) * mask * fading\n"),
        ),
        finding="vectors = self.embedding(tokens) * mask * fading",
        origin="fading = torch.linspace(1.0, 0.5, MAX_TOKENS).unsqueeze(-1)",
    ),
    # Reading the loss as a number makes the host wait for all queued work, each step (torch 2.13, Scalar.mm).
    "wait": _Plant(
        "issue_classifier",
        edits=(("running += loss.detach()\n", "running += loss.item()\n"),),
        finding="running += loss.item()",
    ),
}
MISTAKES = tuple(_PLANTS)


def plant(mistake: str, source: str | None = None) -> Planted:
    """Insert a mistake (one of MISTAKES) into its example.

    `source` is the example's text, read from its file when not given. Raises KeyError for an unknown name, and
    AssertionError when an anchor is not found exactly once, that is when the example changed under its plant.
    """
    recipe = _PLANTS[mistake]
    text = (FOLDER / f"{recipe.example}.py").read_text(encoding="utf-8") if source is None else source
    for anchor, replacement in recipe.edits:
        found = text.count(anchor)
        assert found == 1, f"{recipe.example}, {mistake}: anchor found {found} times instead of once: {anchor!r}"
        text = text.replace(anchor, replacement)
    origin = None if recipe.origin is None else _line_of(text, recipe.origin)
    return Planted(recipe.example, text, _line_of(text, recipe.finding), origin)


def _line_of(text: str, wanted: str) -> int:
    """Number, from 1, of the one line that reads `wanted`, indentation aside."""
    numbers = [number for number, line in enumerate(text.splitlines(), start=1) if line.strip() == wanted]
    assert len(numbers) == 1, f"line found {len(numbers)} times instead of once: {wanted!r}"
    return numbers[0]
