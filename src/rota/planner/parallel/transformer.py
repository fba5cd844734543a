"""The shape of a GPT-like model: its parameters and the floating-point operations of one training step."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.errors import RotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """A decoder-only transformer with tied input and output embeddings and an MLP of four times the hidden size."""

    hidden: int
    layers: int
    heads: int
    seq: int
    vocab: int

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "seq", "vocab"):
            value = getattr(self, name)
            if value < 1:
                raise RotaError(f"--{name} {value} is below 1; give the model's {name} as a positive number")
        if self.hidden % self.heads:
            raise RotaError(
                f"--heads {self.heads} does not divide --hidden {self.hidden}; each head needs the same size, "
                f"so give a divisor of {self.hidden}"
            )

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: four attention matrices, two of the MLP, biases and two layer norms."""
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the word embedding, which the output layer shares."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, position embedding included (PTD-P, formula for P)."""
        return self.layers * self.layer_parameters + self.embedding_parameters + self.seq * self.hidden

    def step_flops(self, batch: int, *, recompute: bool) -> float:
        """Floating-point operations of one step over `batch` sequences (PTD-P's F, which counts recomputation).

        A layer's matrix products cost one forward, two backward and, when activations are recomputed, one more
        forward; the output layer is never recomputed.
        """
        passes = 4 if recompute else 3
        tokens = batch * self.seq
        layer = 24 * tokens * self.hidden**2 + 4 * tokens * self.seq * self.hidden
        return passes * self.layers * layer + 6.0 * tokens * self.hidden * self.vocab
