"""Sort developer text by what it needs: documentation, a test, a review. Three yes/no answers from one small model.

    anymps run --mac "M3 Pro 18GB" examples/issue_classifier.py
    anymps run --mac "M3 Pro 18GB" examples/issue_classifier.py --data your.csv

Good practice on MPS shown here: the whole data set is padded to one shape and copied to the device once, no step reads
anything back, the loss is summed on the device, and evaluation ends in a single read.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

DATA = Path(__file__).parent / "data" / "issues.csv"
LABELS = ("needs_docs", "needs_test", "needs_review")
SEED = 0
HELD_OUT = 0.2  # share of the rows that training never sees
MIN_ROWS = 50  # rows; with fewer the held-out figures mean nothing
MAX_TOKENS = 24  # tokens a text, padded or cut: MPS keeps a graph a shape (pytorch issue 164299), so there is one shape
MIN_COUNT = 2  # times a word must occur in the training texts to get an embedding of its own
WIDTH = 64  # numbers an embedding
BATCH = 32  # rows a step
EPOCHS = 60  # passes over the training rows
READ_EVERY = 10  # epochs between two reads of the loss; each read makes the host wait for the device
LEARNING_RATE = 3e-3  # AdamW's step size
PADDING, UNKNOWN = 0, 1  # token ids that are not words

Row = tuple[str, list[float]]  # a text and its labels, 0.0 or 1.0 each


def devices() -> list[str]:
    """Name the devices of this machine, best first."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available(), "cpu": True}
    return [name for name, available in there.items() if available]


def read_rows(path: Path) -> list[Row]:
    """Read the texts and their labels; raises ValueError with one line that says what to mend in the file."""
    rows: list[Row] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # -sig: spreadsheets like to write a byte order mark
            reader = csv.DictReader(file)
            missing = [name for name in ("text", *LABELS) if name not in (reader.fieldnames or ())]
            if missing:
                raise ValueError(f"{path}: missing column {', '.join(missing)}; needed: text, {', '.join(LABELS)}")
            for row in reader:
                for name in LABELS:
                    label = row[name] or ""  # None where a line is too short
                    if label not in ("0", "1"):
                        raise ValueError(f"{path}, line {reader.line_num}: {name} is {label!r}, must be 0 or 1")
                rows.append((row["text"] or "", [float(row[name]) for name in LABELS]))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    if len(rows) < MIN_ROWS:
        raise ValueError(f"{path}: {len(rows)} rows, at least {MIN_ROWS} are needed")
    return rows


def words(text: str) -> list[str]:
    """Split a text into lower-case words; names such as test_upload fall into their parts."""
    return re.findall(r"[a-z]+|\d+", text.lower())


def encode(rows: Sequence[Row], vocabulary: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn rows into token ids, [rows, MAX_TOKENS] int64, and labels, [rows, 3] float32; both on the host."""
    tokens = torch.full((len(rows), MAX_TOKENS), PADDING)
    for index, (text, _) in enumerate(rows):
        ids = [vocabulary.get(word, UNKNOWN) for word in words(text)[:MAX_TOKENS]]
        tokens[index, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return tokens, torch.tensor([labels for _, labels in rows])


class Classifier(nn.Module):
    """Mean of the word embeddings, then one logit a label: [rows, MAX_TOKENS] -> [rows, 3]."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, WIDTH)
        self.head = nn.Linear(WIDTH, len(LABELS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = (tokens != PADDING).float().unsqueeze(-1)
        vectors = self.embedding(tokens) * mask
        mean = vectors.sum(dim=1) / mask.sum(dim=1).clamp(min=1)  # an empty text has no words to divide by
        logits: torch.Tensor = self.head(mean)
        return logits


def scores(predicted: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Accuracy and F1 a label, [2, 3], from 0/1 tensors [rows, 3]; stays on the device."""
    hits = (predicted * expected).sum(dim=0)
    f1 = 2 * hits / (predicted + expected).sum(dim=0).clamp(min=1)
    return torch.stack([(predicted == expected).float().mean(dim=0), f1])


def main(argv: Sequence[str] | None = None) -> int:
    """Train, then print held-out accuracy and F1 beside those of always answering the more frequent label."""
    parser = argparse.ArgumentParser(description="Sort developer text by what it needs.")
    parser.add_argument("--data", type=Path, default=DATA, help="CSV with columns text, " + ", ".join(LABELS))
    parser.add_argument("--device", choices=devices(), default=devices()[0])
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    try:
        rows = read_rows(options.data)
    except ValueError as error:
        print(f"issue_classifier: {error}", file=sys.stderr)
        return 2

    # Host only: split, vocabulary, token ids, order of all batches. Drawn here, they are the same for every device.
    torch.manual_seed(SEED)
    rows = [rows[index] for index in torch.randperm(len(rows)).tolist()]
    held_out, training = rows[: int(len(rows) * HELD_OUT)], rows[int(len(rows) * HELD_OUT) :]
    counts = Counter(word for text, _ in training for word in words(text))
    known = sorted(word for word, count in counts.items() if count >= MIN_COUNT)
    vocabulary = {word: index for index, word in enumerate(known, start=UNKNOWN + 1)}
    steps = len(training) // BATCH  # a smaller last batch would be a second shape; its rows come up in other epochs
    shuffled = torch.rand(options.epochs, len(training)).argsort(dim=1)[:, : steps * BATCH]

    # To the device: everything, once.
    tokens, targets = (tensor.to(device) for tensor in encode(training, vocabulary))
    questions, answers = (tensor.to(device) for tensor in encode(held_out, vocabulary))
    batches = shuffled.reshape(options.epochs, steps, BATCH).to(device)
    model = Classifier(len(vocabulary) + UNKNOWN + 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    print(f"{device}: {len(training)} training texts, {len(held_out)} held out, {len(vocabulary)} words")

    running = torch.zeros((), device=device)  # sum of the losses since the last read
    for epoch in range(1, options.epochs + 1):
        for batch in batches[epoch - 1]:
            loss = F.binary_cross_entropy_with_logits(model(tokens[batch]), targets[batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            running += loss.detach()
        if epoch % READ_EVERY == 0:
            print(f"epoch {epoch:3d}  training loss {running.item() / (READ_EVERY * steps):.3f}")
            running.zero_()

    with torch.no_grad():
        predicted = (model(questions) > 0).float()
        majority = (targets.mean(dim=0) > 0.5).float().expand_as(answers)
        table = torch.cat([scores(predicted, answers), scores(majority, answers)]).T.tolist()  # the one read
    print("held out      accuracy    F1   always the more frequent: accuracy    F1")
    for name, figures in zip(LABELS, table, strict=True):
        print("{:12} {:9.3f} {:5.3f} {:36.3f} {:5.3f}".format(name, *figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
