"""Rota's own policy: levels of attained service, and what is known beyond them."""
