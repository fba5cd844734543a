"""Plans for transformer models that are trained with tensor, pipeline and data parallelism."""
