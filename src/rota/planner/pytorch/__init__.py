"""Real PyTorch models as graphs of operators (the extra `learn`)."""
