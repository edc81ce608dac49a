"""A script: trains a tiny Llama with quantised weights on each device of its command line, and prints the losses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.state import AcceleratorState
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from tokenizers import Tokenizer, models, pre_tokenizers
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup, quantize_
from torchao.quantization.qat import QATConfig
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

STEPS = 20
WORDS = ["<pad>", "</s>", "<unk>", *["a", "red", "green", "fox", "dog", "runs", "sleeps", "today"]]
TEXTS = [f"a {hue} {who} {does}" for hue in ("red", "green") for who in ("fox", "dog") for does in ("runs", "sleeps")]
LORA = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def plain() -> Any:
    """The model, the same at each call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def in_four_bits(folder: str, device: str) -> Any:
    """The model of the folder, quantised by bitsandbytes as it is loaded."""
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = LlamaForCausalLM.from_pretrained(
        folder, quantization_config=nf4, device_map={"": device}, dtype=torch.float32
    )
    torch.manual_seed(1)  # the adapters' weights come next
    return model


def tokens(device: str) -> torch.Tensor:
    """Four rows for the loops."""
    return torch.randint(64, (4, 16), generator=torch.Generator().manual_seed(2)).to(device)


def steps(model: Any, rows: torch.Tensor) -> list[float]:
    """The losses of a loop over the weights that are trained."""
    optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=3e-3)
    losses = []
    for _ in range(STEPS):
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def peft(device: str, folder: str) -> list[float]:
    """PEFT's adapters over nf4; the last number is what saving and loading them changes."""
    rows = tokens(device)
    model = get_peft_model(prepare_model_for_kbit_training(in_four_bits(folder, device)), LORA)
    losses = steps(model, rows)
    model.save_pretrained(f"{folder}/adapters")
    again = PeftModel.from_pretrained(in_four_bits(folder, device), f"{folder}/adapters")
    for each in (model, again):
        each.eval()
    with torch.no_grad():
        return [*losses, (again(input_ids=rows).logits - model(input_ids=rows).logits).abs().max().item()]


def trl(trainer: Any, config: Any, columns: dict[str, list[str]], device: str, folder: str) -> list[float]:
    """A trainer of TRL, with adapters over nf4."""
    AcceleratorState._reset_state(True)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = config(
        output_dir=f"{folder}/runs",
        max_steps=STEPS,
        per_device_train_batch_size=2,
        learning_rate=3e-3,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        bf16=False,
        use_cpu=device == "cpu",
    )
    running = trainer(
        in_four_bits(folder, device),
        args=options,
        train_dataset=Dataset.from_dict(columns),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
        ),
        peft_config=LORA,
    )
    running.train()
    return [entry["loss"] for entry in running.state.log_history if "loss" in entry]


def sft(device: str, folder: str) -> list[float]:
    return trl(SFTTrainer, SFTConfig, {"text": TEXTS}, device, folder)


def dpo(device: str, folder: str) -> list[float]:
    pairs = {"prompt": ["a red fox "] * 8, "chosen": ["runs today"] * 8, "rejected": ["sleeps"] * 8}
    return trl(DPOTrainer, DPOConfig, pairs, device, folder)


def torchao(device: str, folder: str) -> list[float]:
    """torchao's QAT; the last two are the loss after the conversion, and what a saved state changes."""
    int4 = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))
    rows, model = tokens(device), plain().to(device)
    quantize_(model, QATConfig(int4, step="prepare"))
    losses = steps(model, rows)
    quantize_(model, QATConfig(int4, step="convert"))
    torch.save(model.state_dict(), f"{folder}/state.pt")
    again = plain().to(device)
    again.load_state_dict(torch.load(f"{folder}/state.pt", weights_only=True), assign=True)
    with torch.no_grad():
        one, other = model(input_ids=rows, labels=rows), again(input_ids=rows)
    return [*losses, one.loss.item(), (one.logits - other.logits).abs().max().item()]


if __name__ == "__main__":
    found: dict[str, dict[str, list[float]]] = {}
    for training in (peft, sft, dpo, torchao):
        for device in sys.argv[1:]:
            with TemporaryDirectory() as folder:
                plain().save_pretrained(folder)
                found.setdefault(training.__name__, {})[device] = training(device, folder)
    Path("losses.json").write_text(json.dumps(found))
