"""Small worlds for tests of the filters: a few nodes in zones, a few pods with labels."""

from __future__ import annotations

from hypothesis import strategies as st

from rota.drivers.kubernetes.filters.facts import (
    AffinityTerm,
    HostPort,
    NodeFacts,
    PodFacts,
    PodNeeds,
    SpreadConstraint,
)
from rota.drivers.kubernetes.filters.selectors import LabelRule, Selector
from rota.drivers.kubernetes.filters.world import World

ZONE, HOST = "zone", "host"

selectors = st.one_of(
    st.none(),
    st.builds(
        lambda *rules: Selector(rules),
        st.sampled_from(
            [
                LabelRule("app", "In", ("a",)),
                LabelRule("app", "In", ("a", "b")),
                LabelRule("app", "NotIn", ("a",)),
                LabelRule("tier", "Exists"),
                LabelRule("tier", "DoesNotExist"),
            ]
        ),
    ),
    st.just(Selector()),
)
terms = st.builds(
    AffinityTerm,
    topology_key=st.sampled_from([ZONE, HOST]),
    selector=selectors,
    namespaces=st.sampled_from([(), ("one",), ("one", "two")]),
    namespace_selector=st.sampled_from([None, None, Selector(), Selector((LabelRule("team", "In", ("x",)),))]),
)
spreads = st.builds(
    SpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=st.sampled_from([ZONE, HOST]),
    selector=selectors,
    min_domains=st.integers(1, 3),
)
ports = st.builds(
    HostPort,
    port=st.integers(1, 2),
    protocol=st.sampled_from(["TCP", "UDP"]),
    address=st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2"]),
)


def few(strategy: st.SearchStrategy[object], most: int = 2) -> st.SearchStrategy[tuple[object, ...]]:
    """A tuple of none to a few values."""
    return st.lists(strategy, max_size=most).map(tuple)


needs = st.builds(
    PodNeeds,
    amounts=st.sampled_from([(), (("example.com/nic", 1000),), (("example.com/nic", 2000),)]),
    ports=few(ports),
    affinity=few(terms),
    anti_affinity=few(terms),
    spread=few(spreads),
    volumes=st.just(()),
    claims=st.just(()),
    node_terms=st.just(()),
    tolerates=st.just(()),
)
labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from(["a", "b"]), "tier": st.just("t")})


@st.composite
def pods(draw: st.DrawFn, name: str = "new") -> PodFacts:
    """A pod with any constraints."""
    return PodFacts(
        uid=name,
        namespace=draw(st.sampled_from(["one", "two"])),
        name=name,
        labels=draw(labels),
        needs=draw(needs),
        ending=draw(st.booleans()) if name != "new" else False,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some nodes with pods on them."""
    world = World()
    world.namespaces.update({"one": {"team": "x"}, "two": {}})
    for number in range(draw(st.integers(1, 4))):
        places = {HOST: f"n{number}"}
        if draw(st.integers(0, 4)):
            places[ZONE] = draw(st.sampled_from(["z1", "z2"]))
        world.put_node(NodeFacts(name=f"n{number}", labels=places, amounts={"example.com/nic": 3000}))
    for number in range(draw(st.integers(0, 4))):
        world.put(draw(pods(f"p{number}")), draw(st.sampled_from(sorted(world.nodes))))
    return world
