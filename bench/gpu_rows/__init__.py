"""The rows of `bench/gpu.py`: suspension, limits, shares and packing on a real GPU."""
