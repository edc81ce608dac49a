"""Models of pictures, sound and series of numbers, from transformers."""

from __future__ import annotations

from typing import Any

import torch

from integration.models._batches import CLASSES, VOCABULARY, images, labels, texts, tokens
from integration.models._cases import Built, case
from integration.models._texts import ENCODER

IMAGE_ENCODER = {**ENCODER, "image_size": 32, "patch_size": 8, "num_labels": CLASSES}


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


def wav2vec2_config() -> Any:
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

    return Wav2Vec2ForSequenceClassification(wav2vec2_config()), {
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
