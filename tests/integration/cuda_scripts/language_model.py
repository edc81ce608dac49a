"""A small language model whose device is written as text, as many trainers have it."""

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
torch.cuda.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
context = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=kind)
data = torch.randint(0, 64, (4096,))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(64, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        return self.head(self.block(self.tokens(x)))


def get_batch():
    starts = torch.randint(len(data) - 17, (4,))
    x = torch.stack([data[i : i + 16] for i in starts])
    y = torch.stack([data[i + 1 : i + 17] for i in starts])
    if device_type == "cuda":
        x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    else:
        x, y = x.to(device), y.to(device)
    return x, y


model = Model()
model.to(device)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(4):
    x, y = get_batch()
    with context:
        loss = F.cross_entropy(model(x).view(-1, 64), y.view(-1))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
print(torch.cuda.get_device_name(), torch.cuda.max_memory_allocated() > 0)
