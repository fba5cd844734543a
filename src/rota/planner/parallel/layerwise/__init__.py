"""The planner `galvatron-like`: a way of being parallel for each layer, chosen by dynamic programming under memory.

After Miao et al., VLDB 2023 (Galvatron). Times are in milliseconds and sizes in mebibytes, as its profiles have them.
"""
