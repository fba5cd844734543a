"""Policy families (ordering, rounds, selection, elastic, colocation, network, learned) and the solvers they share."""
