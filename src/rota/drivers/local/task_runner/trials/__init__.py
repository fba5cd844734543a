"""The supervisor's part in sweeps: it stops a trial at its rung while no manager can decide whether that goes on."""
