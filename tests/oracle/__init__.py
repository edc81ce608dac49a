"""The device beside PyTorch's own Metal kernels: which operators compute the same bits, and which do not."""
