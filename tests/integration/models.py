"""Models that nobody here wrote, tiny and with random weights, each with a batch: what the integration tests train.

Every dropout is 0, because the random streams of mps and of the CPU differ on purpose (torch 2.13, c10/metal/random.h).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Batch = dict[str, Any]
Built = tuple[nn.Module, Batch]

VOCABULARY = 99
CLASSES = 3
OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
}


@dataclass(frozen=True)
class Case:
    """A model to train: `package` is what it needs beside torch (empty: nothing), `build` gives it and a batch."""

    name: str
    package: str
    build: Callable[[], Built]

    def __call__(self) -> Built:
        """The model, in training mode on the CPU, and the keyword arguments of its forward; the same at every call."""
        torch.manual_seed(0)
        model, batch = self.build()
        return model.train(), batch


@dataclass(frozen=True)
class Lacking:
    """A model that needs an operator without an MPS kernel before the torch release `native_since` (None: in all)."""

    case: Case
    operator: str
    native_since: tuple[int, int] | None


CASES: dict[str, Case] = {}
LACKING: dict[str, Lacking] = {}


def case(package: str = "") -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Registers a builder in `CASES` under its own name."""

    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        CASES[build.__name__] = Case(build.__name__, package, build)
        return build

    return register


def lacking(
    operator: str, native_since: tuple[int, int] | None = None, package: str = ""
) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
    """Registers a builder in `LACKING` under its own name."""

    def register(build: Callable[[], Built]) -> Callable[[], Built]:
        LACKING[build.__name__] = Lacking(Case(build.__name__, package, build), operator, native_since)
        return build

    return register


# --- how they are trained ---


def to_device(value: Any, device: str) -> Any:
    """`value` with every tensor in it moved, through lists and dictionaries."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    return value


def on_device(built: Built, device: str) -> Built:
    """A copy of the model and of the batch on `device`; the ones given stay as they are."""
    model, batch = built
    return copy.deepcopy(model).to(device), to_device(batch, device)


def loss_of(output: Any) -> Tensor:
    """The loss that the model computed, else the mean square of the first result."""
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    return floats_of(output)[0].square().mean()


def floats_of(output: Any) -> list[Tensor]:
    """The floating-point tensors of a model's output, in order, through nested tuples."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    values = output.to_tuple() if hasattr(output, "to_tuple") else output
    return [tensor for value in values if value is not None for tensor in floats_of(value)] if _nested(values) else []


def _nested(values: Any) -> bool:
    return isinstance(values, (tuple, list))


def train(built: Built, device: str, optimizer: str, steps: int = 3) -> tuple[list[float], nn.Module]:
    """The losses of `steps` steps on `device`, each before its step, and the trained copy of the model."""
    model, batch = on_device(built, device)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = loss_of(model(**batch))
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses, model


# --- batches ---


def tokens(*shape: int) -> Tensor:
    """Token numbers, int64, none of them a special one."""
    return torch.randint(3, VOCABULARY, shape)


def labels(count: int = 2, classes: int = CLASSES) -> Tensor:
    """Class numbers, int64 of shape (count,)."""
    return torch.randint(classes, (count,))


def images(size: int = 32, channels: int = 3) -> Tensor:
    """Two square pictures, float32 of shape (2, channels, size, size)."""
    return torch.randn(2, channels, size, size)


def texts() -> Batch:
    """Two texts of 12 tokens, the second padded from the ninth on, to be predicted token by token."""
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def masked_texts() -> Batch:
    """The same, every third token to be guessed."""
    batch = texts()
    wanted = torch.full_like(batch["labels"], -100)
    wanted[:, ::3] = batch["labels"][:, ::3]
    return {**batch, "labels": wanted}


# --- transformers: encoders ---

ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TEXT_ENCODER = {**ENCODER, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
IMAGE_ENCODER = {**ENCODER, "image_size": 32, "patch_size": 8, "num_labels": CLASSES}


@case("transformers")
def bert() -> Built:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**TEXT_ENCODER)), masked_texts()


@case("transformers")
def distilbert_classifier() -> Built:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        num_labels=CLASSES,
    )
    return DistilBertForSequenceClassification(config), {**texts(), "labels": labels()}


@case("transformers")
def deberta_classifier() -> Built:
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    config = DebertaV2Config(**TEXT_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], num_labels=CLASSES)
    return DebertaV2ForSequenceClassification(config), {**texts(), "labels": labels()}


# --- transformers: decoders, and both ---

DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@case("transformers")
def gpt2() -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config), texts()


@case("transformers")
def llama() -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**DECODER)), texts()


@case("transformers")
def qwen3() -> Built:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**DECODER, head_dim=8)), texts()


@case("transformers")
def gemma3() -> Built:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    return Gemma3ForCausalLM(Gemma3TextConfig(**DECODER, head_dim=8, sliding_window=4)), texts()


@case("transformers")
def mixtral() -> Built:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
    return MixtralForCausalLM(config), texts()


@case("transformers")
def mamba() -> Built:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers=2, pad_token_id=0)
    return MambaForCausalLM(config), texts()


@case("transformers")
def t5() -> Built:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config), {**texts(), "labels": tokens(2, 7)}


# --- transformers: pictures and sound ---


@case("transformers")
def vit() -> Built:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(**IMAGE_ENCODER)), {"pixel_values": images(), "labels": labels()}


@case("transformers")
def resnet() -> Built:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32], depths=[1, 1, 1], num_labels=CLASSES)
    return ResNetForImageClassification(config), {"pixel_values": images(), "labels": labels()}


@case("transformers")
def convnext() -> Built:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16, 32], depths=[1, 1, 1], num_stages=3, num_labels=CLASSES)
    return ConvNextForImageClassification(config), {"pixel_values": images(), "labels": labels()}


@case("transformers")
def swin() -> Built:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=CLASSES,
    )
    return SwinForImageClassification(config), {"pixel_values": images(), "labels": labels()}


@case("transformers")
def segformer() -> Built:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=[8, 8, 16, 16],
        num_attention_heads=[1, 1, 2, 2],
        depths=[1, 1, 1, 1],
        decoder_hidden_size=16,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
        num_labels=CLASSES,
    )
    batch = {"pixel_values": images(64), "labels": torch.randint(CLASSES, (2, 64, 64))}
    return SegformerForSemanticSegmentation(config), batch


@case("transformers")
def clip() -> Built:
    from transformers import CLIPConfig, CLIPModel

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = CLIPConfig(
        text_config={**shape, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": VOCABULARY - 1},
        vision_config={**shape, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    batch = {**texts(), "pixel_values": images(), "return_loss": True}
    del batch["labels"]
    return CLIPModel(config), batch


@case("transformers")
def whisper() -> Built:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=20,
        max_target_positions=16,
        dropout=0.0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperForConditionalGeneration(config), {"input_features": torch.randn(2, 8, 40), "labels": tokens(2, 7)}


def _wav2vec2_config() -> Any:
    from transformers import Wav2Vec2Config

    return Wav2Vec2Config(
        **ENCODER | {"hidden_dropout": 0.0, "attention_dropout": 0.0},
        vocab_size=12,
        conv_dim=(8, 8, 8),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 2),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.0,
        pad_token_id=0,
        num_labels=CLASSES,
    )


@case("transformers")
def wav2vec2_classifier() -> Built:
    from transformers import Wav2Vec2ForSequenceClassification

    return Wav2Vec2ForSequenceClassification(_wav2vec2_config()), {
        "input_values": torch.randn(2, 800),
        "labels": labels(),
    }


@case("transformers")
def time_series() -> Built:
    from transformers import TimeSeriesTransformerConfig, TimeSeriesTransformerForPrediction

    config = TimeSeriesTransformerConfig(
        prediction_length=4,
        context_length=8,
        lags_sequence=[1, 2],
        num_time_features=1,
        d_model=16,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        encoder_layers=1,
        decoder_layers=1,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    batch = {
        "past_values": torch.rand(2, 10),
        "past_time_features": torch.rand(2, 10, 1),
        "past_observed_mask": torch.ones(2, 10),
        "future_values": torch.rand(2, 4),
        "future_time_features": torch.rand(2, 4, 1),
    }
    return TimeSeriesTransformerForPrediction(config), batch


# --- diffusers ---

UNET = {"sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}


@case("diffusers")
def unet2d_condition() -> Built:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        **UNET,
        cross_attention_dim=16,
        attention_head_dim=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    batch = {
        "sample": images(16, 4),
        "timestep": torch.tensor([3, 700]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
    }
    return model, batch


@case("diffusers")
def unet2d() -> Built:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        **UNET,
        in_channels=3,
        out_channels=3,
        attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return model, {"sample": images(16), "timestep": torch.tensor([3, 700])}


@case("diffusers")
def autoencoder() -> Built:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=4,
        latent_channels=4,
    )
    return model, {"sample": images(16)}


@case("diffusers")
def flux() -> Built:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    )
    batch = {
        "hidden_states": torch.randn(2, 16, 4),
        "encoder_hidden_states": torch.randn(2, 5, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(5, 3),
    }
    return model, batch


# --- torch alone ---


class Tagger(nn.Module):
    """Embeds `ids`, runs a recurrent network over them and names a class for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.recurrent = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, ids: Tensor, classes: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(ids))
        return nn.functional.cross_entropy(self.head(states).flatten(0, 1), classes.flatten(), reduction="none")


@case()
def lstm_tagger() -> Built:
    return Tagger(), {"ids": tokens(2, 9), "classes": torch.randint(CLASSES, (2, 9))}


class Translator(nn.Module):
    """`nn.Transformer` with a causal mask and a padding mask for what the decoder reads."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.transformer(source, target, tgt_mask=causal, memory_key_padding_mask=padding)


@case()
def transformer() -> Built:
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    return Translator(), {"source": torch.randn(2, 6, 16), "target": torch.randn(2, 5, 16), "padding": padding}


class GradientPenalty(nn.Module):
    """The loss of a physics-informed network: derivatives of the output by the input, themselves differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, points: Tensor) -> Tensor:
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            value = self.network(points)
            (first,) = torch.autograd.grad(value.sum(), points, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), points, create_graph=True)
        return second + value


@case()
def gradient_penalty() -> Built:
    return GradientPenalty(), {"points": torch.randn(8, 2)}


class GraphConvolution(nn.Module):
    """Messages along edges, summed and maximised where they arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(5, 8)
        self.update = nn.GRUCell(16, 5)

    def forward(self, nodes: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        sent = self.message(nodes)[sources]
        start = sent.new_zeros(len(nodes), sent.shape[1])
        summed = start.index_add(0, targets, sent)
        largest = start.scatter_reduce(0, targets[:, None].expand_as(sent), sent, "amax", include_self=False)
        return self.update(torch.cat([summed, largest], dim=1), nodes)


@case()
def graph_network() -> Built:
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 0, 2, 0, 2]])
    return GraphConvolution(), {"nodes": torch.randn(5, 5), "sources": edges[0], "targets": edges[1]}


# --- models that need an operator which MPS lacks ---
# Sources of the releases: native_functions.yaml of the wheels, torch 2.13 to 2.15.


@lacking("aten::_ctc_loss", (2, 14), "transformers")
def speech_recognition() -> Built:
    from transformers import Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(_wav2vec2_config()), {
        "input_values": torch.randn(2, 800),
        "labels": torch.randint(1, 12, (2, 4)),
    }


class Applied(nn.Module):
    """A function behind a layer with weights."""

    def __init__(self, layer: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.function = function

    def forward(self, x: Tensor, **others: Tensor) -> Tensor:
        return self.function(self.layer(x), **others)


@lacking("aten::_adaptive_avg_pool3d")
def video_classifier() -> Built:
    layers = (nn.Conv3d(3, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten())
    return Applied(nn.Sequential(*layers, nn.Linear(32, CLASSES)), nn.Identity()), {"x": torch.randn(2, 3, 4, 8, 8)}


@lacking("aten::multi_margin_loss")
def support_vector_machine() -> Built:
    return Applied(nn.Linear(5, CLASSES), nn.functional.multi_margin_loss), {
        "x": torch.randn(4, 5),
        "target": labels(4),
    }


@lacking("aten::_linalg_eigh.eigenvalues", (2, 14))
def spectral_penalty() -> Built:
    return Applied(nn.Linear(5, 5), lambda x: torch.linalg.eigvalsh(x.mT @ x)), {"x": torch.randn(8, 5)}


@lacking("aten::linalg_matrix_exp", (2, 14))
def orthogonal_layer() -> Built:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(5, 5))
    return Applied(layer, torch.tanh), {"x": torch.randn(4, 5)}


@lacking("aten::_upsample_bicubic2d_aa_backward.grad_input", (2, 14))
def super_resolution() -> Built:
    def smaller(x: Tensor) -> Tensor:  # the forward has a kernel, the backward has none
        return nn.functional.interpolate(x, size=(5, 5), mode="bicubic", antialias=True)

    return Applied(nn.Conv2d(3, 3, 3), smaller), {"x": images(12)}


@lacking("aten::_pdist_forward")
def metric_learning() -> Built:
    return Applied(nn.Linear(5, 3), nn.functional.pdist), {"x": torch.randn(6, 5)}


@lacking("aten::fake_quantize_per_tensor_affine_cachemask")
def quantization_aware() -> Built:
    def rounded(x: Tensor) -> Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127)

    return Applied(nn.Linear(5, 3), rounded), {"x": torch.randn(6, 5)}
