"""How notifications are sent, as settings."""
