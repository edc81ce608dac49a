"""Random calls on the CPU and on mps: which does mps take that the CPU refuses, and is that right? See `__main__`."""
