"""Sessions in tasks over WebSockets: the right to open one, and the way of its bytes."""
