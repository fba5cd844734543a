"""Statistical efficiency: goodput, loss curves, and models fitted to reported progress."""
