"""Fine-tune a tiny Llama with QLoRA: weights in 4 bits by bitsandbytes, LoRA adapters by PEFT, on random weights.

    anymps run --mac "M3 Pro 18GB" examples/qlora_tiny.py
    anymps plan examples/qlora_tiny.py

Good practice on MPS shown here: the checkpoint is quantised while it is loaded, layer by layer; only the adapters have
gradients and optimizer state; batches are cut out of the text on the device; the loss is read at the end alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from pydoc_data.topics import topics
from tempfile import TemporaryDirectory
from typing import Any

import torch

SEED = 0
CONTEXT = 128  # tokens a window; a token is a byte
BATCH = 4  # windows a step
STEPS = 20  # optimizer steps
RANK = 16  # of the adapters
LEARNING_RATE = 5e-3  # AdamW's step size
SIZES = {  # of the model: 4 blocks, 3.2 million weights
    "vocab_size": 256,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
NEEDED = "transformers peft accelerate bitsandbytes"


def devices() -> list[str]:
    """Name the devices of this machine, best first."""
    there = {"mps": torch.backends.mps.is_available(), "cuda": torch.cuda.is_available(), "cpu": True}
    return [name for name, available in there.items() if available]


def load(checkpoint: Path, device: str) -> Any:
    """The checkpoint in 4 bits on the device; embeddings, norms and lm_head stay in bfloat16."""
    from transformers import BitsAndBytesConfig, LlamaForCausalLM

    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,  # the scales are quantised too
        bnb_4bit_compute_dtype=torch.bfloat16,  # each weight is made in it, for one product; M1 and M2 emulate it
    )
    return LlamaForCausalLM.from_pretrained(
        checkpoint,
        dtype=torch.bfloat16,
        device_map={"": device},
        quantization_config=four_bits,
        attn_implementation="eager",  # in half precision, causal attention of torch 2.13 and 2.14 has a bug on MPS
    )


def loss_of(model: Any, windows: torch.Tensor) -> torch.Tensor:
    """Mean nats a byte for guessing each next byte of windows [batch, CONTEXT]; a 0-dim device tensor."""
    mask = torch.ones_like(windows)  # without one, transformers reads positions back in each step
    loss: torch.Tensor = model(input_ids=windows, attention_mask=mask, labels=windows, use_cache=False).loss
    return loss


def main(argv: Sequence[str] | None = None) -> int:
    """Train the adapters, save them, and load them onto the base again."""
    parser = argparse.ArgumentParser(description="Fine-tune a tiny Llama with QLoRA.")
    parser.add_argument("--device", choices=devices(), default=devices()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(argv)
    try:
        import accelerate  # noqa: F401
        import bitsandbytes  # noqa: F401
        from peft import LoraConfig, PeftModel, get_peft_model
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        sys.stderr.write(f"qlora_tiny: {error}; pip install {NEEDED}\n")
        return 2
    torch.manual_seed(SEED)

    # Host only: the text as bytes, and where every window begins. Drawn here, they are the same for every device.
    text = torch.frombuffer(bytearray("\n".join(topics[name] for name in sorted(topics)).encode()), dtype=torch.uint8)
    starts = torch.randint(len(text) - CONTEXT, (options.steps + 1, BATCH, 1)).to(options.device)
    text = text.long().to(options.device)
    span = torch.arange(CONTEXT, device=options.device)
    held_out = text[starts[-1] + span]

    with TemporaryDirectory() as folder:
        base, adapters = Path(folder, "base"), Path(folder, "adapters")
        LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16).save_pretrained(base)  # in place of a download

        lora = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(load(base, options.device), lora).train()
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE, fused=True)
        with torch.no_grad():
            before = loss_of(model, held_out)
        for start in starts[:-1]:
            loss = loss_of(model, text[start + span])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

        model.save_pretrained(adapters)
        loaded = PeftModel.from_pretrained(load(base, options.device), adapters)
        with torch.no_grad():
            after, again = loss_of(model.eval(), held_out), loss_of(loaded.eval(), held_out)
        size = sum(file.stat().st_size for file in adapters.iterdir())

    count = sum(weight.numel() for weight in trained)
    print(f"{options.device}: {count:,} weights trained in float32, the others kept in 4 bits or bfloat16")
    print(f"held-out loss {before.item():.3f} nats a byte before, {after.item():.3f} after {options.steps} steps")
    print(f"adapters: {size / 1e6:.1f} MB saved; loaded again, the loss is {again.item():.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
