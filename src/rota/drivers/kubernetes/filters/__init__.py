"""What keeps a pod off a node beyond devices, CPUs and memory: one module for each kind of constraint."""
