"""What a training script imports, and the client that the command line uses. Importing it loads nothing heavy."""
