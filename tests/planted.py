"""Plant one classic MPS mistake in an example's source text, and say on which line a finding is due.

The examples are the model of good practice; tests of the findings need the same scripts with one thing wrong. A plant
is a few exact replacements in the example's text, so that no second copy of an example has to be kept in step.

    planted = plant("digits_cnn", "wait")
    path.write_text(planted.source)     # run it with QUICK["digits_cnn"] to keep it short
    planted.line                        # 1-based line of path where the finding belongs

Every planted script still runs on the CPU: that is what makes these mistakes last until somebody has a Mac.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "examples"
EXAMPLES = ("char_gpt", "digits_cnn", "issue_classifier")
MISTAKES = ("fallback", "float64", "mismatch", "wait")

#: Arguments for a short run. A planted issue_classifier lies elsewhere than its data, hence --data.
QUICK = {
    "char_gpt": ["--steps", "20"],
    "digits_cnn": ["--epochs", "1"],
    "issue_classifier": ["--epochs", "10", "--data", str(FOLDER / "data" / "issues.csv")],
}


@dataclass(frozen=True)
class Planted:
    """An example with a mistake in it.

    `line` is where the finding is due, `origin` the earlier line that made the tensor at fault (None for `fallback` and
    `wait`, whose cause is the line itself); both count from 1.
    """

    source: str
    line: int
    origin: int | None


@dataclass(frozen=True)
class _Plant:
    """Exact replacements (anchor, new text), and the lines, without indentation, that the finding will name."""

    edits: tuple[tuple[str, str], ...]
    finding: str
    origin: str | None = None


_NUMPY = ("\nimport torch\n", "\nimport numpy as np\nimport torch\n")

# Reading the loss as a number makes the host wait for all queued work, each step (torch 2.13, Scalar.mm).
_WAIT = _Plant(
    edits=(("running += loss.detach()\n", "running += loss.item()\n"),),
    finding="running += loss.item()",
)

_PLANTS: dict[tuple[str, str], _Plant] = {
    ("char_gpt", "wait"): _WAIT,
    ("digits_cnn", "wait"): _WAIT,
    ("issue_classifier", "wait"): _WAIT,
    # Operators with a CPU kernel and none for MPS up to torch 2.14 (native_functions.yaml of the wheels): take, whose
    # gradient needs put_, another one; and heaviside, used here where no gradient passes through it.
    ("char_gpt", "fallback"): _Plant(
        edits=(
            (
                "    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())\n",
                "    targets = windows[:, 1:].flatten()\n"
                "    rows = torch.arange(len(targets), device=targets.device)\n"
                "    chosen = torch.take(logits.log_softmax(dim=-1), rows * logits.shape[-1] + targets)\n"
                "    return -chosen.mean()\n",
            ),
        ),
        finding="chosen = torch.take(logits.log_softmax(dim=-1), rows * logits.shape[-1] + targets)",
    ),
    ("digits_cnn", "fallback"): _Plant(
        edits=(
            (
                "        x = F.max_pool2d(F.relu(self.conv_2(x)), 2)  # [n, 32, 2, 2]\n",
                "        x = self.conv_2(x)\n"
                "        x = x * torch.heaviside(x.detach(), torch.zeros((), device=x.device))  # a home-made ReLU\n"
                "        x = F.max_pool2d(x, 2)\n",
            ),
        ),
        finding="x = x * torch.heaviside(x.detach(), torch.zeros((), device=x.device))  # a home-made ReLU",
    ),
    ("issue_classifier", "fallback"): _Plant(
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
    ("char_gpt", "float64"): _Plant(
        edits=(
            _NUMPY,
            (
                "    # To the device: everything, once. A batch",
                "    ramp = torch.from_numpy(np.linspace(0.1, 1.0, max(options.steps, 1)))\n"
                "\n"
                "    # To the device: everything, once. A batch",
            ),
            (
                "    span = torch.arange(CONTEXT + 1, device=device)\n",
                "    span = torch.arange(CONTEXT + 1, device=device)\n    ramp = ramp.to(device)\n",
            ),
            (
                "        loss = loss_of(model, training[starts[step - 1] + span])\n",
                "        loss = loss_of(model, training[starts[step - 1] + span]) * ramp[step - 1]\n",
            ),
        ),
        finding="ramp = ramp.to(device)",
        origin="ramp = torch.from_numpy(np.linspace(0.1, 1.0, max(options.steps, 1)))",
    ),
    ("digits_cnn", "float64"): _Plant(
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
    ("issue_classifier", "float64"): _Plant(
        edits=(
            _NUMPY,
            (
                "    # To the device: everything, once.\n",
                "    pos_weight = torch.from_numpy(1 / np.mean([labels for _, labels in training], axis=0) - 1)\n"
                "\n"
                "    # To the device: everything, once.\n",
            ),
            (
                "    model = Classifier(",
                "    pos_weight = pos_weight.to(device)\n    model = Classifier(",
            ),
            ("targets[batch])\n", "targets[batch], pos_weight=pos_weight)\n"),
        ),
        finding="pos_weight = pos_weight.to(device)",
        origin="pos_weight = torch.from_numpy(1 / np.mean([labels for _, labels in training], axis=0) - 1)",
    ),
    # A tensor made without device=, mixed into work on the device: a RuntimeError on MPS (TensorIterator.cpp).
    ("char_gpt", "mismatch"): _Plant(
        edits=(
            (
                "        split = self.qkv(",
                "        mask = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)\n        split = self.qkv(",
            ),
            ("(scores + self.mask)", "(scores + mask)"),
        ),
        finding="attention = (scores + mask).softmax(dim=-1)",
        origin="mask = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)",
    ),
    ("digits_cnn", "mismatch"): _Plant(
        edits=(
            (
                "        for images, targets in batches:\n",
                "        for images, targets in batches:\n            noise = torch.randn(BATCH, 1, 8, 8) * 0.05\n",
            ),
            (
                "            loss = F.cross_entropy(model(images), targets)\n",
                "            loss = F.cross_entropy(model(images + noise), targets)\n",
            ),
        ),
        finding="loss = F.cross_entropy(model(images + noise), targets)",
        origin="noise = torch.randn(BATCH, 1, 8, 8) * 0.05",
    ),
    ("issue_classifier", "mismatch"): _Plant(
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
}


def plant(example: str, mistake: str, source: str | None = None) -> Planted:
    """Insert a mistake (one of MISTAKES) into an example (one of EXAMPLES).

    `source` is the example's text, read from its file when not given. Raises KeyError for an unknown name, and
    AssertionError when an anchor is not found exactly once, that is when the example changed under its plant.
    """
    recipe = _PLANTS[example, mistake]
    text = (FOLDER / f"{example}.py").read_text(encoding="utf-8") if source is None else source
    for anchor, replacement in recipe.edits:
        found = text.count(anchor)
        assert found == 1, f"{example}, {mistake}: anchor found {found} times instead of once: {anchor!r}"
        text = text.replace(anchor, replacement)
    origin = None if recipe.origin is None else _line_of(text, recipe.origin)
    return Planted(text, _line_of(text, recipe.finding), origin)


def _line_of(text: str, wanted: str) -> int:
    """Number, from 1, of the one line that reads `wanted`, indentation aside."""
    numbers = [number for number, line in enumerate(text.splitlines(), start=1) if line.strip() == wanted]
    assert len(numbers) == 1, f"line found {len(numbers)} times instead of once: {wanted!r}"
    return numbers[0]
