"""Sweeps on a live manager: their trials as jobs, decisions that are durable first, and what users see of them."""
