"""Sessions in tasks over WebSockets: who may open one, and the way of its bytes."""
