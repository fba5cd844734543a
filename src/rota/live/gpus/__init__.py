"""The GPUs of a manager's machine: the jobs on them, what they do over time, and rules about idle ones."""
