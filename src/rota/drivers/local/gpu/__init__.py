"""The GPUs of this machine: what they do over time, how they are shared, and what keeps shares and limits."""
