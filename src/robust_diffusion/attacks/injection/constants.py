"""Constants of `auto` for injections."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Schedule of an annealing; temperature and width fall geometrically."""

    per_step: int  # evaluations of the whole graph per gradient step of the attack
    hot: float  # first temperature, in targets
    cold: float  # last temperature
    wide: float  # first width of the energy, in median margins of the clean graph
    narrow: float  # last width
    mutated: float = 0  # share of the proposals that mutate the features of a node

    def at(self, done: float) -> tuple[float, float]:
        """Return temperature and width after a share of the evaluations, in 0..1."""
        heat = self.hot * (self.cold / self.hot) ** done
        return heat, self.wide * (self.narrow / self.wide) ** done


@dataclass(frozen=True)
class AutoConstants:
    """Constants of `AutoInjection`, each with its meaning and what it was chosen on.

    Shares are shares of `num_steps`. "Unstudied" means that no comparison of values is recorded.
    """

    # Which parts run.
    # Most edges per correctly classified target for a cover; GCN and GRAND, Cora, 20 nodes of 4.
    covered: float = 2
    # Most such targets for a cover if ascents run, too, since it tries an edge of every class at
    # each target; for the time of an attack on WordNet, 10,000 targets.
    most_covered: int = 4096
    # Fewest such edges for ascents; APPNP, GPRGNN, RobustGCN, Cora, 5 nodes of 50: the features
    # that these models carry far make ascents better than covers.
    ascended: float = 1 / 5
    # Edges per target (`None` for all), and whether some link new nodes; Beltrami, Cora, 50 nodes
    # of 50: one edge harms more than nine, and four more if it was trained against injected nodes.
    spendings: Sequence[tuple[int | None, bool]] = (
        (None, False),
        (None, True),
        (4, False),
        (1, False),
    )
    # Share of a node's edges that lead to other new nodes; share unstudied, links found useful on
    # Beltrami, Cora, 5 nodes of 50.
    linked: float = 1 / 4
    # Those of them at which features are searched without gradients; Beltrami, Cora, 50 nodes of
    # 50, as if it hid its gradient.
    searched: Sequence[tuple[int | None, bool]] = ((None, False), (1, False))

    # How long ascents continue.
    # Share of the steps of each rung, and parts that take them per form of the model; shortened to
    # keep Beltrami, Cora, 50 nodes of 50, within its time.
    rungs: Sequence[tuple[float, int]] = ((1 / 24, 16), (1 / 16, 6), (1 / 8, 4), (1 / 8, 3))
    # Largest accuracy, in 0..1, by which a part may trail the best and continue; unstudied.
    behind: float = 0.1
    # Share of the steps per final round, and most final rounds; for the same time as `rungs`.
    last_share: float = 1 / 4
    most_rounds: int = 16
    # Final rounds in a row without a gain after which the attack ends; unstudied.
    idle_rounds: int = 3
    # Largest loss of accuracy in a round, in 0..1, that is no gain: less than one of 1,000 targets,
    # so the many targets of a large graph do not keep the attack going one by one; unstudied.
    least_gain: float = 0.001
    # Accuracy, in 0..1, below which only the best part continues, and no chain of exchanges goes on
    # from the best graph; unstudied.
    enough: float = 0.01

    # Search without gradients.
    search_share: float = 1 / 8  # mutations; for the same time as `rungs`
    mutation: float = 0.3  # largest share of a node's features that a mutation mirrors; unstudied
    crossed: float = 0.2  # share of nodes that take half of another's features; unstudied

    # Cover.
    # Radius of the region credited to an edge; how far a node reaches through three layers.
    hops: int = 2
    most_ends: int = 40  # most edges tried in one pass, few compared to Cora's; unstudied
    class_share: float = 1 / 6  # fit of the features of each class; unstudied
    fit_share: float = 1 / 4  # fit of all nodes together; unstudied
    exchange_share: float = 1 / 3  # most exchanges of ends; unstudied
    group: int = 2  # nodes that reselect their ends at a time; unstudied
    exchange_patience: int = 16  # exchanges in a row without a gain that end them; unstudied
    refit_share: float = 1 / 12  # fit after each exchange or move of edges; unstudied

    # Exchange of single edges.
    # With a propagation in C++, from scratch; GPRGNN and APPNP, Citeseer with words, 5 nodes of 50
    # and 50 of 4 (experiments/results/exchange.md, as are the others below).
    fast: Schedule = Schedule(100, 0.05, 0.005, 1.0, 0.1)
    # From the best graph, and from random edges; chains of one model end up to five points apart.
    chains: int = 4
    cooler: Schedule = Schedule(100, 0.02, 0.005, 0.3, 0.1)
    # Starts in which some nodes oppose the others: their shares, and divisors of all degrees; found
    # on GPRGNN, Cora, 50 nodes of 50.
    opposing: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5)
    thinned: Sequence[int] = (1, 2, 4)
    # Chains from either order of the most harmful pair of classes; GPRGNN, Citeseer with words, 50
    # nodes of 50, and Cora, model seeds that no result reports.
    opposed: int = 2
    # Fewest edges per correctly classified target for such starts, and most of random ones; GPRGNN
    # and APPNP, Citeseer with words, 50 nodes of 20 and of 50.
    ample: float = 4
    # By forward passes, from the best graph; RobustGCN, Citeseer with words, where a guide by
    # gradients gains nothing and a width of 0.5 more than 0.2.
    slow: Schedule = Schedule(10, 0.02, 0.005, 0.5, 0.1)
    # The same for models whose gradient is of no use; found on a GCN that rounds its logits.
    blind: Schedule = Schedule(15, 0.05, 0.005, 1.0, 0.1, 0.4)
    # Most chains that go on from the best, as long as each gains.
    most_exchanges: int = 4
    # Largest loss of accuracy, in 0..1, after which no chain of twice as many passes follows if
    # there is a gradient; RobustGCN, Citeseer with words, where each of three chains gains more.
    longer_gain: float = 0.01
    refresh: int = 150  # evaluations between gradients that guide proposals; unstudied
    guided: float = 0.6  # share of proposals drawn by them
    # Shares of the kinds of proposals, summed: another vector, a new end, an edge less; the others
    # give an edge to another node.
    revectored: float = 0.1
    moved: float = 0.65
    removed: float = 0.72
    replaced: float = 0.85  # share of new ends that replace one though there is room; unstudied
    transferred: float = 0.6  # share of gifts that get nothing back; unstudied
    anywhere: float = 0.5  # share of new ends that are drawn from all targets; unstudied
    nearby: float = 0.3  # median margins at which an end is preferred; unstudied
    tries: int = 6  # draws of such an end; unstudied
    directions: int = 400  # random ones of the dictionary; unstudied
    sizes: Sequence[float] = (0.3, 0.15, 0.075, 0.0375)  # of the steps that fit it; unstudied
    fits: int = 20  # steps of each size; unstudied

    # Edges that move.
    moves_per_round: int = 4  # unstudied
    # Whether edges at correctly classified targets stay, and whether gradients estimate gains;
    # APPNP, GPRGNN, RobustGCN, Cora, 1 node of 50 and 50 of 4: no kind is best for all.
    moves: Sequence[tuple[bool, bool]] = (
        (True, True),
        (False, False),
        (False, True),
        (True, False),
    )
    # Share of the correctly classified targets that get no new edge, by tries since the last gain;
    # unstudied.
    left_out: Sequence[float] = (0.0, 0.3, 0.6, 0.15, 0.45, 0.8)
    # Share of the targets by which a move may be worse and the search still continues from it;
    # unstudied.
    near: float = 0.01
    move_patience: int = 3  # tries without a gain after which the best returns; unstudied
    most_trimmed: int = 8  # most edges a misclassified target loses in one move; unstudied
    most_passes: int = 10  # most passes that try one more edge at each target; unstudied
    # Most possible edges for which the gradient is computed; memory, not a study.
    most_slopes: int = 2**20
    # Worth of a unit of tanh margin, relative to 1 for a misclassified target; unstudied.
    nearer: float = 0.1


AUTO = AutoConstants()
