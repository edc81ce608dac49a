import sys

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

# Width, MLP, blocks and heads of Llama 3.2 1B and 3B and of Llama 3.1 8B; the smaller ones tie their embeddings.
SIZES = {"1B": (2048, 8192, 16, 32), "3B": (3072, 8192, 28, 24), "8B": (4096, 14336, 32, 32)}
width, mlp, blocks, heads = SIZES[sys.argv[1]]
config = LlamaConfig(
    vocab_size=128256,
    hidden_size=width,
    intermediate_size=mlp,
    num_hidden_layers=blocks,
    num_attention_heads=heads,
    num_key_value_heads=8,
    tie_word_embeddings=width < 4096,
    use_cache=False,
)
model = LlamaForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable()
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).to("mps").train()
trained = [weight for weight in model.parameters() if weight.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-4, fused=True)

for tokens in DataLoader(torch.randint(128256, (64, 512)), batch_size=1):
    tokens = tokens.to("mps")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
