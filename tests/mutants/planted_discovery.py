"""Planted bugs in what is learned about clusters: sketches, their charges, the rest of the budget, learned weights."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FURTHER = "tests/privacy/test_discovery.py::test_no_replaced_record_moves_a_sketch_further_than_delta"
WORLDS = "tests/privacy/test_discovery.py::test_one_record_changes_nothing_but_releases_and_those_by_what_is_charged"
NEWCOMER = "tests/privacy/test_discovery.py::test_a_new_client_pays_for_the_choice_of_its_cluster"
CHOICE = "tests/privacy/test_discovery.py::test_the_budget_holds_with_a_late_choice"
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
        "Sketches._release",
        "clip_rows(rows(client), clip)",
        "rows(client)",
        (FURTHER,),
    ),
    Mutant(
        "sketch-clipped-mean",
        "the mean of gradients is clipped, not each of them",
        "One record of many moves the mean by far more than 2b/D.",
        "Sketches._release",
        "clip_rows(rows(client), clip).mean(axis=0)",
        "clip_rows(rows(client).mean(axis=0, keepdims=True), clip)[0]",
        (FURTHER,),
    ),
    Mutant(
        "sketch-uncharged",
        "a sketch is released without a charge",
        "The account states less than was lost.",
        "Sketches._release",
        "self._account.charge(clients, phi)",
        "",
        (FURTHER, BUDGET),
    ),
    Mutant(
        "sketch-less-clean-mean",
        "the clean mean of all sketches is subtracted before the noise",
        "Every client's sketch tells of every other client's records, and nobody is charged for it.",
        "Sketches._release",
        "np.array([clip_rows(rows(client), clip).mean(axis=0) for client in clients.tolist()])",
        "(lambda made: made - made.mean(axis=0))"
        "(np.array([clip_rows(rows(client), clip).mean(axis=0) for client in clients.tolist()]))",
        (WORLDS,),
    ),
    Mutant(
        "sketch-without-noise",
        "the clean sketches are clustered",
        "Which cluster a client is in tells of its records.",
        "Sketches._release",
        "np.hstack([self.points, released])",
        "np.hstack([self.points, clean])",
        (WORLDS,),
    ),
    Mutant(
        "discovery-forgotten",
        "the training after discovery starts with an empty account",
        "The stated ε leaves out what finding clusters has cost.",
        "Discovery.charge",
        "self.due[run.order]",
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
        "choice-uncharged",
        "a late choice is not in the account of the training that goes on",
        "The stated ε leaves out what the choice has cost.",
        "Discovery.after_choice",
        "due = np.full(federation.size, choice.phi)",
        "due = np.zeros(federation.size)",
        (CHOICE,),
    ),
    Mutant(
        "choice-not-reserved",
        "the training is calibrated as if no late choice had to be paid",
        "Its noise is too little for what is left, and the cap ends it early.",
        "Discovery.reserved",
        "self.choice.phi if self.choice else 0.0",
        "0.0",
        (CHOICE,),
    ),
    Mutant(
        "newcomer-uncharged",
        "a new client chooses its cluster without a charge",
        "Its stated ε leaves out the choice.",
        "found_before",
        "places.labels, places.account.rho",
        "places.labels, 0.0 * places.account.rho",
        (NEWCOMER,),
    ),
    Mutant(
        "choice-of-all-records",
        "losses at a choice are taken at models that the records of all clients have moved",
        "Every client's choice tells of every other client's records, and nobody is charged for it.",
        "Sketches.choose",
        "record_losses(self._objective, models, *self._federation.rows(client)) @ contrasts.T",
        "record_losses("
        "self._objective, models + self._federation.targets.mean(), *self._federation.rows(client)) @ contrasts.T",
        (WORLDS,),
    ),
    Mutant(
        "clean-halves-compared",
        "weights between clusters are learned from two halves of a pair's clean contributions",
        "Where a pair's clients share their noise, only their sum is noised.",
        "Engine._halves",
        "np.asarray(mean)",
        "np.stack([np.asarray(pick(self.state.models, part.index))[part.pair == pair].sum(axis=0) "
        "for pair in range(own.start, own.stop)])",
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
