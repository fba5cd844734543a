"""Round policies beside those of Gavel."""
