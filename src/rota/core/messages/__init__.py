"""Events that the engine takes in, decisions that it emits, and reasons why jobs wait."""
