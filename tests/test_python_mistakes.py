"""What people get wrong in Python: every mistake is answered in one sentence that says what to do."""

import re

import numpy as np
import polars
import pytest

import pgfl
from pgfl import (
    PGFL,
    ClientData,
    Decaying,
    Federation,
    Graph,
    Logistic,
    OneStep,
    Privacy,
    Result,
    Ridge,
    TestSet,
    synthetic_regression,
)
from pgfl.errors import PgflError, UsageError

FEDERATION = synthetic_regression(servers=4, clients_per_server=4, dimension=3, samples=(4, 6), seed=1)
FIRST, SECOND, THIRD = FEDERATION.cluster_ids
RESULT = pgfl.train(FEDERATION, rounds=2)
ROWS = np.ones((2, 2))
ORDER = "train(federation, algorithm, objective)"
AN_ALGORITHM = f"The second argument of {ORDER} is an algorithm such as PGFL(rho=5.0); got "
AN_OBJECTIVE = (
    f"The third argument of {ORDER} is an objective such as Ridge(lam=0.01), or a mapping from clusters to "
    "objectives; got "
)
A_FEDERATION = f"The first argument of {ORDER} is a federation, or a function that makes one; got "
MAKE_ONE = "; make one with Federation.from_clients, Federation.read or synthetic_regression."
NO_NUMBER = " has a value that is not a number, or rows of unequal length."
PARTICIPANTS = 'algorithm.participants must be "all" or a whole number from 1 up; got '
TESTS = "The tests are a mapping from clusters to TestSet(features, targets); got "


def train(*given, **options):
    return pgfl.train(*given, **{"rounds": 2} | options)


def client(**changes):
    return ClientData(**{"server": "north", "cluster": "adults", "features": ROWS, "targets": [1.0, 2.0]} | changes)


def of_client(**changes):
    return Federation.from_clients({"ann": client(**changes)})


def by_hand(**changes):
    """A federation of two clients at one server, from lists."""
    fields = {
        "features": [[1.0], [2.0]], "targets": [1, 2], "offsets": [0, 1, 2], "client_server": [0, 0],
        "client_cluster": [0, 0], "server_ids": ["north"], "cluster_ids": ["adults"], "graph": Graph.from_edges(1, []),
    }  # fmt: skip
    return Federation(**fields | changes)


MISTAKES = {
    # train: what is trained, by what, on what
    "an algorithm where the federation goes": (
        lambda: train(PGFL(), FEDERATION),
        A_FEDERATION + "a PGFL, which comes second.",
    ),
    "an array for a federation": (lambda: train(ROWS), A_FEDERATION + "an array" + MAKE_ONE),
    "a table for a federation": (lambda: train(polars.DataFrame({"y": [1]})), A_FEDERATION + "a DataFrame" + MAKE_ONE),
    "the class of federations": (lambda: train(Federation), A_FEDERATION + "the class Federation" + MAKE_ONE),
    "a path for a federation": (lambda: train("clients.csv"), A_FEDERATION + "the text 'clients.csv'" + MAKE_ONE),
    "a function without a run": (
        lambda: train(lambda: FEDERATION),
        "A function that makes federations takes the number of the run; write `lambda run: …` or `def make(run)`.",
    ),
    "a function that makes something else": (
        lambda: train(lambda run: [FEDERATION]),
        "The function that makes federations returned a list; return a Federation.",
    ),
    "objective and algorithm swapped": (
        lambda: train(FEDERATION, Ridge(), PGFL()),
        AN_ALGORITHM + "a Ridge, which comes third.",
    ),
    "the federation second": (lambda: train(FEDERATION, FEDERATION), AN_ALGORITHM + "a Federation, which comes first."),
    "an algorithm's class": (lambda: train(FEDERATION, OneStep), AN_ALGORITHM + "the class OneStep; write OneStep()."),
    "an algorithm's name": (lambda: train(FEDERATION, "pgfl"), AN_ALGORITHM + "the text 'pgfl'."),
    "rounds where the algorithm goes": (lambda: train(FEDERATION, 30), AN_ALGORITHM + "30."),
    "an algorithm where the objective goes": (
        lambda: train(FEDERATION, None, PGFL()),
        AN_OBJECTIVE + "a PGFL, which comes second.",
    ),
    "an objective's class": (
        lambda: train(FEDERATION, PGFL(), Ridge),
        AN_OBJECTIVE + "the class Ridge; write Ridge().",
    ),
    "an objective's name": (lambda: train(FEDERATION, PGFL(), "ridge"), AN_OBJECTIVE + "the text 'ridge'."),
    "a list of objectives": (lambda: train(FEDERATION, PGFL(), [Ridge()]), AN_OBJECTIVE + "a list."),
    "a mapping to classes": (
        lambda: train(FEDERATION, PGFL(), dict.fromkeys(FEDERATION.cluster_ids, Logistic)),
        AN_OBJECTIVE + "the class Logistic; write Logistic().",
    ),
    "a mapping without clusters": (lambda: train(FEDERATION, PGFL(), {}), AN_OBJECTIVE + "a mapping without clusters."),
    "a cluster without an objective": (
        lambda: train(FEDERATION, PGFL(), {FIRST: Ridge(), SECOND: Ridge()}),
        "No objective is given for cluster cluster-2; add one, or give one objective for all clusters.",
    ),
    "an objective without a cluster": (
        lambda: train(FEDERATION, PGFL(), {FIRST: Ridge(), SECOND: Ridge(), THIRD: Ridge(), "cluster-3": Ridge()}),
        "An objective is given for cluster cluster-3, which the federation does not have (did you mean cluster-2?); "
        "leave it out.",
    ),
    # train: options
    "too many by position": (
        lambda: train(FEDERATION, PGFL(), Ridge(), 30),
        "train takes 3 arguments by position; name the others, as in train(federation, PGFL(), Ridge(), rounds=30).",
    ),
    "a misspelt option": (
        lambda: train(FEDERATION, round=30),
        "train has no argument round (did you mean rounds?); call it as in train(federation, PGFL(), Ridge(), "
        "rounds=30).",
    ),
    "no arguments": (
        lambda: train(),
        "train lacks federation; call it as in train(federation, PGFL(), Ridge(), rounds=30).",
    ),
    "a federation twice": (
        lambda: train(FEDERATION, federation=FEDERATION),
        "train is given federation twice; call it as in train(federation, PGFL(), Ridge(), rounds=30).",
    ),
    "epsilon for privacy": (
        lambda: train(FEDERATION, privacy=2.5),
        "privacy takes a Privacy; got 2.5: write privacy=Privacy(epsilon=2.5, max_releases=50).",
    ),
    "a switch for privacy": (
        lambda: train(FEDERATION, privacy=True),
        "privacy takes a Privacy; got true: write privacy=Privacy(epsilon=4.0, max_releases=50).",
    ),
    "a dict for privacy": (
        lambda: train(FEDERATION, privacy={"epsilon": 4.0}),
        "privacy takes a Privacy; got a dict: write privacy=Privacy(epsilon=4.0, max_releases=50).",
    ),
    "rounds with a fraction": (lambda: train(FEDERATION, rounds=10.0), "rounds takes a whole number; got 10.0."),
    "rounds as text": (lambda: train(FEDERATION, rounds="10"), "rounds takes a whole number; got the text '10'."),
    "no rounds": (lambda: train(FEDERATION, rounds=0), "rounds must be at least 1; got 0."),
    "a generator for a seed": (
        lambda: train(FEDERATION, seed=np.random.default_rng()),
        "seed takes a whole number; got a Generator.",
    ),
    "a negative seed": (lambda: train(FEDERATION, seed=-1), "seed must be 0 or more, and below 2⁶³; got -1."),
    "a share of participants": (lambda: train(FEDERATION, participants=0.5), PARTICIPANTS + "0.5."),
    "a word for participants": (lambda: train(FEDERATION, participants="some"), PARTICIPANTS + "the text 'some'."),
    "one metric as text": (
        lambda: train(FEDERATION, metrics="nmsd"),
        'metrics takes several names; write metrics=["nmsd"].',
    ),
    "a number for metrics": (
        lambda: train(FEDERATION, metrics=3),
        'metrics takes names such as ["nmsd", "objective"]; got 3.',
    ),
    "a misspelt engine": (
        lambda: train(FEDERATION, engine="nunba"),
        "Unknown engine the text 'nunba' (did you mean numba?); choose auto, numpy, numba, jax or debug.",
    ),
    "a module for an engine": (
        lambda: train(FEDERATION, engine=np),
        "Unknown engine a module; choose auto, numpy, numba, jax or debug.",
    ),
    "half precision": (
        lambda: train(FEDERATION, dtype="float16"),
        "dtype takes numpy.float64 or numpy.float32; got the text 'float16'.",
    ),
    "an unknown dtype": (
        lambda: train(FEDERATION, dtype="double precision"),
        "dtype takes numpy.float64 or numpy.float32; got the text 'double precision'.",
    ),
    "threads as text": (lambda: train(FEDERATION, threads="2"), "threads takes a whole number; got the text '2'."),
    "a folder for checkpoints": (
        lambda: train(FEDERATION, checkpoints="here"),
        "checkpoints takes a Checkpoints; got the text 'here': write checkpoints=Checkpoints(folder, fingerprint, "
        "every=10), from pgfl.simulate.checkpoint.",
    ),
    "a switch for progress": (
        lambda: train(FEDERATION, progress=True),
        "progress takes a function of the rounds done, the rounds in all and the news, or False for no bar in "
        "notebooks; got true.",
    ),
    # privacy and algorithms
    "epsilon by position": (
        lambda: Privacy(4.0),
        "Privacy takes no arguments by position; name them, as in Privacy(epsilon=4.0, max_releases=50).",
    ),
    "a misspelt epsilon": (
        lambda: Privacy(epsilonn=4.0),
        "Privacy has no argument epsilonn (did you mean epsilon?); call it as in Privacy(epsilon=4.0, "
        "max_releases=50).",
    ),
    "epsilon as text": (lambda: Privacy(epsilon="4"), "`privacy.epsilon` must be a number; got the text '4'."),
    "tau as text": (lambda: PGFL(tau="0.1"), "algorithm.tau must lie in [0, 1); got the text '0.1'."),
    "no tau": (lambda: PGFL(tau=None), "algorithm.tau must lie in [0, 1); got None."),
    "a decay as text": (lambda: Decaying(0.4, "1"), "algorithm.tau.decay must lie in (0, 1]; got 1."),
    # federations
    "a list of clients": (
        lambda: Federation.from_clients([client()]),
        "Federation.from_clients takes a mapping from client ids to ClientData; got a list: use Federation.read for a "
        "table.",
    ),
    "a table of clients": (
        lambda: Federation.from_clients(polars.DataFrame({"client": ["ann"]})),
        "Federation.from_clients takes a mapping from client ids to ClientData; got a DataFrame: use Federation.read "
        "for a table.",
    ),
    "a tuple for a client": (
        lambda: Federation.from_clients({"ann": ("north", "adults", ROWS, [1.0, 2.0])}),
        "Client ann is a tuple; write ClientData(server, cluster, features, targets) instead.",
    ),
    "a number for an id": (
        lambda: Federation.from_clients({1: client()}),
        "Client 1 has the id 1; ids are text, such as 'north'.",
    ),
    "no server": (lambda: of_client(server=None), "Client ann has the server None; ids are text, such as 'north'."),
    "a client without targets": (
        lambda: ClientData("north", "adults", ROWS),
        'ClientData lacks targets; call it as in ClientData("north", "adults", features, targets).',
    ),
    "words among features": (lambda: of_client(features=[["a", "b"]]), "Client ann" + NO_NUMBER),
    "rows of unequal length": (lambda: of_client(features=[[1.0], [1.0, 2.0]]), "Client ann" + NO_NUMBER),
    "complex features": (lambda: of_client(features=ROWS + 1j), "Client ann" + NO_NUMBER),
    "dates among features": (
        lambda: of_client(features=np.array([["2026-01-01"]], dtype="datetime64[D]")),
        "Client ann" + NO_NUMBER,
    ),
    "edges as text": (
        lambda: Federation.from_clients({"ann": client()}, edges="ns"),
        'The edges are a list of pairs, such as [("north", "south")]; got the text \'ns\'.',
    ),
    "an edge of three": (
        lambda: Federation.from_clients({"ann": client()}, edges=[("north", "south", 1.0)]),
        'Each edge is a pair of server ids, such as ("north", "south"); got a list of 3.',
    ),
    "numbers with fractions for servers": (
        lambda: by_hand(client_server=[0.0, 0.0]),
        "The field client_server of a federation takes whole numbers, such as [0, 0, 1]; got a list.",
    ),
    "one id as text": (
        lambda: by_hand(server_ids="north"),
        "The field server_ids of a federation is a list of ids, such as [\"north\"]; got the text 'north'.",
    ),
    "edges for a graph": (
        lambda: by_hand(graph=[]),
        "The graph of a federation is a Graph; got a list: see Graph.from_edges.",
    ),
    "words among all features": (lambda: by_hand(features=[["a"], ["b"]]), "The field features" + NO_NUMBER),
    "a list of test sets": (lambda: by_hand(tests=[TestSet([[1.0]], [1.0])]), TESTS + "a list."),
    "a pair for a test set": (lambda: by_hand(tests={"adults": ([[1.0]], [1.0])}), TESTS + "a dict."),
    "words in a test set": (lambda: TestSet([["a"]], [1.0]), "A test set" + NO_NUMBER),
    "one row for a test set": (
        lambda: TestSet([1.0, 2.0], [1.0]),
        "A test set needs a table of features and one target per row, as in TestSet(rows, labels).",
    ),
    # results
    "words to predict from": (
        lambda: RESULT.predict([["a", "b", "c"]], cluster=FIRST),
        "The array holds a value that is not a number; correct it, or pass a table.",
    ),
    "rows that are too short": (
        lambda: RESULT.predict([[1.0, 2.0]], cluster=FIRST),
        "The model takes 3 features per row; got 2.",
    ),
    "one row that is too short": (
        lambda: RESULT.predict([1.0, 2.0], cluster=FIRST),
        "The model takes 3 features per row; got 2.",
    ),
    "a cube to predict from": (
        lambda: RESULT.predict(np.ones((1, 2, 3)), cluster=FIRST),
        "The rows to predict must be a table with at least one row and one column.",
    ),
    "a misspelt name of the model": (
        lambda: RESULT.predict(np.ones((1, 3)), clutser=FIRST),
        "predict has no argument clutser (did you mean cluster?); call it as in "
        'result.predict(rows, cluster="adults").',
    ),
    "a cluster by position": (
        lambda: RESULT.predict([[1.0, 2.0, 3.0]], FIRST),
        'result.predict takes 1 argument by position; name the others, as in result.predict(rows, cluster="adults").',
    ),
    "a prediction by nobody": (
        lambda: RESULT.predict([[1.0, 2.0, 3.0]]),
        "Name the model that predicts: client=, cluster=, or server= together with cluster=.",
    ),
    "an unknown client": (
        lambda: RESULT.client("client-99"),
        "There is no client 'client-99' (did you mean client-09?).",
    ),
    "a client by number": (lambda: RESULT.client(3), "A client is named by its id; got 3: the first is 'client-00'."),
    "several clients": (
        lambda: RESULT.client(["client-01"]),
        "A client is named by its id; got a list: the first is 'client-00'.",
    ),
    "a run as text": (lambda: RESULT.cluster(FIRST, run="0"), "There is no run '0'; the runs are 0 to 0."),
    "a folder without a result": (
        lambda: Result.load("nowhere"),
        "nowhere holds no finished result; give the folder of a run that has ended.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_in_one_sentence(name):
    call, sentence = MISTAKES[name]
    with pytest.raises(PgflError) as answer:
        call()
    assert str(answer.value) == sentence
    assert len(re.findall(r"[.!?](?=\s+[A-Z]|$)", sentence)) == 1 and sentence.endswith(".")


def test_a_wrong_call_is_a_type_error_too():
    assert issubclass(UsageError, TypeError)


# --- what is no mistake -----------------------------------------------------------------------------------------------


def test_tables_lists_and_series_are_taken_as_arrays():
    table = polars.DataFrame({"a": [1.0, 0.0], "b": [0, 1]})
    expected = of_client(features=[[1.0, 0.0], [0.0, 1.0]], targets=[1.0, 2.0])
    for features, targets in [
        (table, polars.Series([1.0, 2.0])),
        (table.to_numpy().tolist(), [[1], [2]]),
        (table.to_numpy().astype(np.float32), np.array([[1.0], [2.0]])),
    ]:
        made = of_client(features=features, targets=targets)
        np.testing.assert_array_equal(made.features, expected.features, strict=True)
        np.testing.assert_array_equal(made.targets, expected.targets, strict=True)


def test_a_federation_of_lists_trains():
    federation = by_hand(tests={"adults": TestSet([[1], [-1]], [[1], [0]])}, truth=[[1.0]], names=["ann", "bob"])
    result = train(federation, PGFL(), Ridge(), rounds=np.int64(3), participants=np.int64(1), dtype="float64")
    assert result.client_ids == ("ann", "bob") and result.curve("r2").shape == (1, 4)


def test_arrays_are_not_copied():
    features = np.ones((2, 1), dtype=np.float32)
    assert by_hand(features=features).features is features
    assert TestSet(features, np.ones(2)).features is features
