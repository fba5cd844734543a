"""Round policies other than Gavel's."""
