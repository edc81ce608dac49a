"""Encoders and decoders of texts, from transformers."""

from __future__ import annotations

from integration.models._cases import CLASSES, VOCABULARY, Built, case, labels, masked_texts, texts, tokens

ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TEXT_ENCODER = {**ENCODER, "vocab_size": VOCABULARY, "max_position_embeddings": 64}


@case("transformers")
def bert() -> Built:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**TEXT_ENCODER)), masked_texts()


@case("transformers")
def deberta_classifier() -> Built:
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    config = DebertaV2Config(**TEXT_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], num_labels=CLASSES)
    return DebertaV2ForSequenceClassification(config), {**texts(), "labels": labels()}


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
