"""Records a step of well-known models, in `benchmarks/times/steps/`: what `fit_times.py` scores.

    python benchmarks/record_steps.py [NAME ...]    # needs transformers, for scVI scvi-tools; seconds a model

The models have random weights and run on shapes alone. `step_tapes.py` says what a file holds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import step_tapes
import torch
import transformers
from step_later import diffusion, gpt, perceptron, update
from step_models import cifar_epoch, cora, resnet18, scvi, vgg16_bn
from step_networks import SMALL, keywords, normed_unet, rotary, small
from step_recording import STEPS, recorded
from torch import nn

import anymps

LOOKS_AT_VALUES = {"scvi-grad-b128-g1200"}  # so shapes alone do not do
LONG, FEW_STEPS = 1.0, 8  # a step of so many seconds here is recorded less often


def training(model: nn.Module, loss_of: Callable[[], torch.Tensor], rate: float = 1e-4) -> Callable[[], None]:
    """A step with Adam, as in the scripts that were timed: `zero_grad`, forward, backward, update."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


def classifier(model: nn.Module, batch: int, size: int, classes: int) -> Callable[[], None]:
    """A training step of an image classifier with a resident batch."""
    model = model.to("mps")
    images = torch.randn(batch, 3, size, size, device="mps")
    labels = torch.randint(0, classes, (batch,), device="mps")
    return training(model, lambda: nn.functional.cross_entropy(model(images), labels))


def bert(batch: int, length: int, train: bool) -> Callable[[], None]:
    """BERT-base with a classifier of two labels."""
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=28996, num_labels=2)).to(
        "mps"
    )
    tokens = torch.randint(0, 28996, (batch, length), device="mps")
    mask = torch.ones(batch, length, dtype=torch.int64, device="mps")
    labels = torch.randint(0, 2, (batch,), device="mps")
    if train:
        return training(model.train(), lambda: model(tokens, attention_mask=mask, labels=labels).loss)
    return inference(model, lambda: model(tokens, attention_mask=mask))


def tiny_bert() -> Callable[[], None]:
    """Two layers of width 128 over 16 sentences of 128 tokens, AdamW."""
    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).to("mps").train()
    tokens = torch.randint(0, 30522, (16, 128), device="mps")
    mask = torch.ones(16, 128, dtype=torch.int64, device="mps")
    labels = torch.randint(0, 3, (16,), device="mps")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(tokens, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()

    return step


def mistral_model() -> nn.Module:
    """Mistral-7B in half precision."""
    with torch.device("mps"):
        torch.set_default_dtype(torch.float16)
        model = transformers.MistralForCausalLM(transformers.MistralConfig(max_position_embeddings=32768))
        torch.set_default_dtype(torch.float32)
    return model


def mistral(length: int) -> Callable[[], None]:
    """The forward pass of Mistral-7B over one prompt."""
    model, tokens = mistral_model(), torch.randint(0, 32000, (1, length), device="mps")
    return inference(model, lambda: model(tokens, use_cache=False))


def mistral_token(length: int) -> Callable[[], None]:
    """One more token of Mistral-7B behind so many whose keys and values are kept, in the third step."""
    model, token = mistral_model(), torch.randint(0, 32000, (1, 1), device="mps")
    kept = transformers.DynamicCache()
    for layer in range(model.config.num_hidden_layers):
        kept.update(*(torch.zeros(1, 8, length - 2, 128, dtype=torch.float16, device="mps") for _ in range(2)), layer)
    return inference(model, lambda: model(token, past_key_values=kept, use_cache=True))


def minimind(batch: int, length: int, heads: int, inner: int, half: bool = False) -> Callable[[], None]:
    """Forward and backward of MiniMind, a Llama of eight layers 512 wide with 6400 words: an eighth of its optimizer
    step, which comes once in eight batches, is left out."""
    config = transformers.LlamaConfig(
        vocab_size=6400, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=heads,
        intermediate_size=inner, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to("mps").train()
    tokens = torch.randint(0, 6400, (batch, length), device="mps")

    def step() -> None:
        with torch.autocast("mps", torch.bfloat16, enabled=half):
            loss = model(tokens, labels=tokens).loss / 8
        loss.backward()

    return step


def inference(model: nn.Module, call: Callable[[], object]) -> Callable[[], None]:
    """A forward pass without gradients."""
    model.eval()

    def step() -> None:
        with torch.no_grad():
            call()

    return step


def gru(
    length: int, batch: int, given: int, width: int, layers: int = 1, both_ways: bool = False
) -> Callable[[], None]:
    """A GRU over sequences without gradients."""
    model = nn.GRU(given, width, num_layers=layers, bidirectional=both_ways).to("mps")
    sequences = torch.randn(length, batch, given, device="mps")
    return inference(model, lambda: model(sequences))


def forward(model: nn.Module, *given: torch.Tensor) -> Callable[[], None]:
    """A forward pass that keeps what a backward needs."""
    model = model.to("mps")
    moved = [tensor.to("mps") for tensor in given]

    def step() -> None:
        model(*moved)

    return step


def image(model: nn.Module) -> Callable[[], None]:
    """One image of 224 x 224 through a classifier."""
    model = model.to("mps")
    picture = torch.randn(1, 3, 224, 224, device="mps")
    return inference(model, lambda: model(picture))


MODELS: dict[str, Callable[[], Callable[[], None]]] = {
    "vgg16_bn-train-b32": lambda: classifier(vgg16_bn(10), 32, 224, 10),
    "resnet18-train-b64-224": lambda: classifier(resnet18(10), 64, 224, 10),
    "resnet18-train-b64-32": lambda: classifier(resnet18(10), 64, 32, 10),
    "resnet18-infer-b1-224": lambda: image(resnet18(1000)),
    **{f"cifar_resnet-train-b256-d{depth}": partial(cifar_epoch, depth, train=True) for depth in (20, 44, 110)},
    **{f"cifar_resnet-infer-b256-d{depth}": partial(cifar_epoch, depth, train=False) for depth in (20, 44, 110)},
    "bert_base-train-b64-s128": lambda: bert(64, 128, True),
    "bert_base-train-b16-s512": lambda: bert(16, 512, True),
    "bert_base-infer-b64-s128": lambda: bert(64, 128, False),
    "bert_base-infer-b16-s512": lambda: bert(16, 512, False),
    "bert_tiny-train-b16-s128": tiny_bert,
    "gru-infer-t16-b8-w64": lambda: gru(16, 8, 64, 64),
    "gru-infer-t64-b16-w128": lambda: gru(64, 16, 128, 128),
    "gru-infer-t64-b16-w128-l2_both_ways": lambda: gru(64, 16, 128, 128, 2, both_ways=True),
    "gru-infer-t128-b8-w256-l2": lambda: gru(128, 8, 256, 256, 2),
    "gru-forward-t128-b1-w256-both_ways": lambda: forward(
        nn.GRU(384, 256, batch_first=True, bidirectional=True), torch.randn(1, 128, 384)
    ),
    "gru_cell-forward-b32-w128": lambda: forward(nn.GRUCell(128, 128), torch.randn(32, 128), torch.randn(32, 128)),
    "gcn-train-cora": cora,
    "scvi-grad-b128-g1200": lambda: scvi(128, 1200),
    "minimind-grad-b32-s512": lambda: minimind(32, 512, 2, 1408),
    "minimind-grad-b16-s512": lambda: minimind(16, 512, 4, 1664),
    "minimind-grad-b16-s512-bf16": lambda: minimind(16, 512, 4, 1664, half=True),
    "mistral_7b-infer-s128": lambda: mistral(128),
    "mistral_7b-infer-s256": lambda: mistral(256),
    "mistral_7b-infer-s512": lambda: mistral(512),
    "mistral_7b-infer-s871": lambda: mistral(871),
    "mistral_7b-infer-s1-after990": lambda: mistral_token(990),
    **{f"small_{name}-train-b32": partial(small, name) for name in SMALL},
    "kwt-train-b256-w64": lambda: keywords(64, 1, train=True),
    "kwt-train-b256-w128": lambda: keywords(128, 2, train=True),
    "kwt-infer-b256-w64": lambda: keywords(64, 1, train=False),
    "kwt-infer-b256-w128": lambda: keywords(128, 2, train=False),
    "rotary-train-b4-s384": rotary,
    "diffusion-train-b128-32": diffusion,
    "gpt_of_letters-train-b12-s64": gpt,
    **{f"perceptron-train-b{batch}": partial(perceptron, batch) for batch in (256, 512, 4096)},
    **{f"sgd-update-n500-{n}-m{m}": partial(update, n, m / 10) for n, m in ((1024, 0), (1024, 9), (1048576, 9))},
    "normed_unet-train-b32-64": normed_unet,
}


def main() -> None:
    """Record every model, or those that are named."""
    names = sys.argv[1:] or [name for name in MODELS if name not in LOOKS_AT_VALUES]
    values = set(names) <= LOOKS_AT_VALUES
    assert values or not set(names) & LOOKS_AT_VALUES, f"record {', '.join(LOOKS_AT_VALUES)} in a run of its own"
    anymps.enable("M3 Ultra 512GB", substrate="host" if values else "shape")
    step_tapes.TAPES.mkdir(parents=True, exist_ok=True)
    for name in names:
        step = MODELS[name]()
        began = time.monotonic()
        step()
        few = time.monotonic() - began > LONG
        step_tapes.write(name, recorded(step, FEW_STEPS if few else STEPS))


if __name__ == "__main__":
    main()
