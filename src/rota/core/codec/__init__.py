"""The core's types as plain JSON values and back."""
