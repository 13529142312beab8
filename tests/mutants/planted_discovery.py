"""Planted bugs in what is learned about clusters: sketches, their charges, the rest of the budget, learned weights."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FURTHER = "tests/privacy/test_discovery.py::test_no_replaced_record_moves_a_sketch_further_than_delta"
WORLDS = "tests/privacy/test_discovery.py::test_one_record_changes_nothing_but_releases_and_those_by_what_is_charged"
BUDGET = "tests/privacy/test_discovery.py::test_the_budget_holds_with_what_finding_cost"

DISCOVERY: tuple[Mutant, ...] = (
    Mutant(
        "sketch-half-delta",
        "Δ of a sketch is b/D in the place of 2b/D",
        "A record that is replaced by its opposite moves a sketch by twice as much as its noise hides.",
        "sketch_sensitivity",
        "2.0 * clip",
        "clip",
        (FURTHER,),
    ),
    Mutant(
        "sketch-unclipped",
        "gradients along the directions are not clipped",
        "One record moves a sketch without limit.",
        "Sketches._sketch",
        "clip_rows(rows, self._clip)",
        "rows",
        (FURTHER,),
    ),
    Mutant(
        "sketch-clipped-mean",
        "the mean of gradients is clipped, not each of them",
        "One record of many moves the mean by far more than 2b/D.",
        "Sketches._sketch",
        "clip_rows(rows, self._clip).mean(axis=0)",
        "clip_rows(rows.mean(axis=0, keepdims=True), self._clip)[0]",
        (FURTHER,),
    ),
    Mutant(
        "sketch-uncharged",
        "a sketch is released without a charge",
        "The account states less than was lost.",
        "Sketches.release",
        "self._account.charge(everyone, phi)",
        "",
        (FURTHER, BUDGET),
    ),
    Mutant(
        "sketch-less-clean-mean",
        "the clean mean of all sketches is subtracted before the noise",
        "Every client's sketch tells of every other client's records, and nobody is charged for it.",
        "Sketches.release",
        "np.array([self._sketch(client, along) for client in everyone.tolist()])",
        "(lambda made: made - made.mean(axis=0))"
        "(np.array([self._sketch(client, along) for client in everyone.tolist()]))",
        (WORLDS,),
    ),
    Mutant(
        "sketch-without-noise",
        "the clean sketches are clustered",
        "Which cluster a client is in tells of its records.",
        "Sketches.release",
        "np.hstack([self.points, released])",
        "np.hstack([self.points, clean])",
        (WORLDS,),
    ),
    Mutant(
        "discovery-forgotten",
        "the training after discovery starts with an empty account",
        "The stated ε leaves out what finding clusters has cost.",
        "Discovery.charge",
        'self.table["rho"][run.order]',
        "0.0",
        (BUDGET,),
    ),
    Mutant(
        "discovery-budget-twice",
        "the training after discovery is calibrated for the whole budget",
        "Its noise is too little for what is left, and the cap ends it early.",
        "rest_of",
        "total - float(spent.max())",
        "total",
        (BUDGET,),
    ),
    Mutant(
        "clean-halves-compared",
        "weights between clusters are learned from two halves of a pair's clean contributions",
        "Where a pair's clients share their noise, each of them is seen in a half that nobody has noised.",
        "Engine._halves",
        "self.pair_noise is not None",
        "False",
        ("tests/privacy/test_two_worlds_of_pairs.py",),
    ),
    Mutant(
        "clean-models-compared",
        "weights between clusters are learned from clean client models",
        "They are published, and so are models that depend on them.",
        "Engine._contributed",
        "state.models if state.released_models is None else state.released_models",
        "state.models",
        ("tests/privacy/test_leaks.py::test_files_for_others_are_a_function_of_the_releases",),
    ),
)
