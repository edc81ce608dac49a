"""Models of pictures, sound and series of numbers, from transformers."""

from __future__ import annotations

import torch

from integration.models._cases import CLASSES, VOCABULARY, Built, case, images, labels, texts
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
def wav2vec2_classifier() -> Built:
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(
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
    batch = {"input_values": torch.randn(2, 800), "labels": labels()}
    return Wav2Vec2ForSequenceClassification(config), batch
