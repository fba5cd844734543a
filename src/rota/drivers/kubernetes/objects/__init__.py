"""Kubernetes objects translated into Rota's types and back."""
