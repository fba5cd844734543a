"""The planner `galvatron-like`: a strategy for each layer, chosen by dynamic programming under a memory bound.

After Miao et al., VLDB 2023 (Galvatron). Times are in milliseconds and sizes in mebibytes, as its profiles have them.
"""
