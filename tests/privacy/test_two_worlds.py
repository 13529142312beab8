"""Two worlds, one transcript: whatever a site says, one record changes nothing but the noised release, by at most Δ."""

import itertools
import logging
import os
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from pgfl.algorithms.accuracy import Refusal
from pgfl.errors import NetworkError
from pgfl.network.protocol.wire import Kind
from pgfl.privacy.noise import SecureNoise
from tests.privacy.two_worlds import comparing, device
from tests.privacy.two_worlds.branches import FEWEST, REQUIRED, lines
from tests.privacy.two_worlds.comparing import findings
from tests.privacy.two_worlds.frames import frame, opened
from tests.privacy.two_worlds.site import HonestSite, usual_training
from tests.privacy.two_worlds.survey import Survey
from tests.privacy.two_worlds.tables import WIDE, Config, Table
from tests.privacy.two_worlds.worlds import Harness

SEQUENCES = int(os.environ.get("PGFL_TWO_WORLDS", "1200"))
FEW = 60  # of them in `make test`; too few to reach every branch


@pytest.fixture
def harness():
    logging.disable(logging.CRITICAL)
    with Harness() as opened:
        yield opened
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("sequences", [FEW, pytest.param(SEQUENCES, marks=pytest.mark.proof)])
def test_one_record_changes_nothing_but_releases_and_those_by_delta_at_most(harness, sequences):
    survey = Survey()
    for number in range(sequences):
        _, (first, second) = harness.hostile_pair(number)
        survey.add(number, first, second)
    print("\n" + survey.text)
    assert not survey.found, survey.text
    assert sequences == FEW or not survey.missing, survey.text


# attacks that were found by hand --------------------------------------------------------------------------------------

ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, -0.6]])


def settings(objective, *labels, rows=ROWS, **changes):
    tables = tuple(Table(rows[: len(targets)], np.array(targets)) for targets in labels)
    return between(objective, *tables, **changes)


def between(objective, *tables, y_bound=10.0, phi0=0.1, **changes):
    w_norm = 2.0 if objective == "ridge" else None
    return Config(objective, False, 1.0, y_bound, w_norm, phi0, 1.0, 30, tables, **changes)


def judged(harness, config, training, models):
    return findings(*harness.pair(config, lambda: HonestSite(config, training, models)))


@pytest.mark.parametrize("tolerance", [1e-5, None])
@pytest.mark.parametrize("labels", [[5.0, 1.0, 1.0, 1.0], [-5.0, 1.0, 1.0, 1.0], [1.0003, 1.0, 1.0, 1.0]])
def test_a_line_search_that_stops_at_the_centre_tells_nothing(harness, tolerance, labels):
    config = settings("huber", [1.0, 1.0, 1.0, 1.0], labels, y_bound=None)
    training = usual_training(config, rho=1e-200)
    training["objective"] = {"kind": "huber", "lam": 0.0, "kappa": 1e-3}
    if tolerance is not None:
        training["objective"]["tolerance"] = tolerance
    centres = [np.array([0.9995, 0.0]), np.array([1.0, 0.0]), np.array([1.0005, 1.0])]
    assert not judged(harness, config, training, centres)


@pytest.mark.parametrize("seed", [1, 2, 4, 6])
def test_a_huge_label_changes_nothing_but_releases(harness, seed):
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((2, 2)), rng.standard_normal(2)
    config = settings("huber", labels, [1e20, labels[1]], rows=rows, y_bound=None)
    assert not judged(harness, config, usual_training(config, rho=0.1), [None, np.ones(2)])


def test_a_site_that_asks_for_another_task_does_not_learn_which_labels_there_are(harness):
    config = settings("huber", [0.0, 1.0], [0.5, 1.0])
    training = usual_training(config)
    training["objective"]["kind"] = "logistic"
    assert not judged(harness, config, training, [np.ones(2)])


@pytest.mark.parametrize(
    ("objective", "algorithm"),
    [
        *itertools.product(("ridge", "huber", "logistic"), ("pgfl",)),
        *itertools.product(("huber", "logistic"), ("fedavg", "linearised")),
    ],
)
@pytest.mark.parametrize("tolerance", [1e-11, 1e-8])
def test_a_model_on_the_edge_of_a_refusal_tells_nothing_of_a_record(harness, objective, algorithm, tolerance):
    tables = [Table(size * np.ones((1, 2)), np.zeros(1)) for size in (0.0, 1.0)]
    config = between(objective, *tables, limits={**WIDE, "tolerance": tolerance})
    steps = (
        {"client": "gradient"} if algorithm == "linearised" else {"kind": algorithm, "step_size": 0.1, "local_steps": 2}
    )
    training = usual_training(config, **steps)
    longest = device.longest_model(config, training, 3)
    off = np.array([sign * 10.0**-digits for digits in range(2, 16, 2) for sign in (-1, 1)])
    models = [length * np.array([0.6, 0.8]) for length in longest * (1.0 + off)]
    first, second = harness.pair(config, lambda: HonestSite(config, training, models))
    assert not findings(first, second)
    assert lines(first)["released"] >= 7 and lines(first)[f"DECLINE {Refusal.TOO_LONG}"] >= 7


@pytest.mark.parametrize("objective", ["ridge", "huber", "logistic"])
def test_a_fast_solver_that_fails_in_one_world_moves_the_model_by_delta_at_most(harness, objective):
    rows, labels = np.ones((40, 1)), np.ones(40)
    tables = [Table(np.append(rows, [[last]], axis=0), np.append(labels, 1.0)) for last in (1.0, 0.5)]
    config = between(objective, *tables, theme="fallback")
    models = list(np.random.default_rng(1).uniform(-1, 0, (10, 1)))
    first, second = harness.pair(config, lambda: HonestSite(config, usual_training(config, rho=0.5), models))
    assert 0 < first.counts["fallback solve"] < first.counts["solve"] == 20
    assert 0 < second.counts["fallback solve"] < second.counts["solve"] == 20
    assert not findings(first, second)


@pytest.mark.parametrize("w_norm", [0.5, 2.0])
def test_a_model_far_outside_the_ball_of_ridge_tells_no_more_than_delta_of_a_record(harness, w_norm):
    """A linearised step starts from the projected model; from the model itself it would tell ten thousand times Δ."""
    tables = [Table(np.array([[0.5, sign * 3**0.5 / 2]]), np.array([-sign])) for sign in (1.0, -1.0)]
    config = replace(between("ridge", *tables, y_bound=1.0), w_norm=w_norm)
    training = usual_training(config, client="gradient")
    models = [size * np.array([0.0, 1.0]) for size in (1.0, 1e2, 1e4)]
    first, second = harness.pair(config, lambda: HonestSite(config, training, models))
    assert not findings(first, second)
    assert lines(first)["released"] == len(first.draws) >= 6


@pytest.mark.parametrize("client", ["fedavg", "gradient"])
@pytest.mark.parametrize(("size", "answered"), [(1e4, True), (1e7, False), (1e8, False)])
def test_a_model_so_long_that_steps_are_lost_in_its_last_digits_is_not_answered(harness, size, answered, client):
    rows, labels = np.ones((40, 1)), np.zeros(40)
    tables = [Table(np.append(rows, [[last]], axis=0), np.append(labels, 0.0)) for last in (1.0, -1.0)]
    config = between("logistic", *tables, phi0=1e-3)
    model = np.array([float(size)])
    pulls = np.abs(config.gradients(1.0, model)).sum()
    step = float(np.spacing(size) / pulls)
    steps = (
        {"kind": "fedavg", "step_size": step, "local_steps": 1}
        if client == "fedavg"
        else {"client": client, "rho": 1 / step}
    )
    training = usual_training(config, **steps)
    training["objective"]["lam"] = 0.0
    first, second = harness.pair(config, lambda: HonestSite(config, training, [model]))
    assert not findings(first, second)
    assert bool(first.draws) is answered


# leaks that are planted on purpose ------------------------------------------------------------------------------------


def text_carries_data(reply, client):
    if reply is None or opened(reply)[0] is not Kind.DECLINE:
        return reply
    header = opened(reply)[1]
    return frame(Kind.DECLINE, {**header, "reason": f"{header['reason'][:200]} {client.samples.targets[0]!r}"})


def text_is_no_constant(reply, client):
    if reply is None or opened(reply)[0] is not Kind.DECLINE:
        return reply
    header = opened(reply)[1]
    return frame(Kind.DECLINE, {**header, "reason": f"{header['reason']}, for {client.dimension} features"})


def answers_in_one_world(reply, client):
    return reply if client.samples.targets[0] > 0 else None


def says_more_in_one_world(reply, client):
    extra = frame(Kind.HELLO, {"key": "", "signature": "", "releases": 0})
    return extra if reply is None and client.samples.targets[0] > 0 else reply


def answer_or_refusal_depends_on_data(reply, client):
    refusal = frame(Kind.DECLINE, {"round": 1, "reason": "not now", "final": False})
    return refusal if reply is not None and client.samples.targets[0] > 0 else reply


def dual_carries_data(reply, client):
    return _answer_with(reply, lambda model, dual: (model, dual + client.samples.targets[0]))


def data_is_added_after_the_noise(reply, client):
    return _answer_with(reply, lambda model, dual: (model + 1e-9 * client.samples.targets[0], dual))


def last_coordinate_is_clean(reply, client):
    clean = np.append(np.zeros(client.dimension - 1), client.samples.targets[0])
    return _answer_with(reply, lambda model, dual: (np.append(model[:-1], clean[-1:]), dual))


def header_carries_data(reply, client):
    if reply is None or opened(reply)[0] is not Kind.ANSWER:
        return reply
    _, header, numbers = opened(reply)
    return frame(Kind.ANSWER, {**header, "release": int(client.samples.targets[0] > 0)}, numbers)


def exit_carries_data(reply, client):
    if reply is not None:
        raise NetworkError(f"The labels are {client.samples.targets}.")
    return reply


def file_carries_data(reply, client):
    (client.home / "notes.txt").write_text(str(client.samples.targets))
    return reply


def data_is_used_unpaid(reply, client):
    if client.rounds is not None:
        client.rounds.role._problem_at(1).gradient(np.zeros((1, client.dimension)))
    return reply


def noise_is_drawn_unpaid(reply, client):
    device.draw_noise(client)
    return reply


def charge_is_given_back(reply, client):
    if reply is not None and opened(reply)[0] is Kind.ANSWER:
        with closing(sqlite3.connect(client.home / "ledger.db", isolation_level=None)) as ledger:
            ledger.execute("DELETE FROM releases")
    return reply


def _answer_with(reply, change):
    if reply is None or opened(reply)[0] is not Kind.ANSWER:
        return reply
    _, header, numbers = opened(reply)
    return frame(Kind.ANSWER, header, *change(*numbers.reshape(2, -1)))


PLANTED = {
    text_carries_data: comparing.REFUSAL,
    text_is_no_constant: comparing.TEXT,
    answers_in_one_world: comparing.EXTRA,
    says_more_in_one_world: comparing.EXTRA,
    answer_or_refusal_depends_on_data: comparing.ANSWERED,
    dual_carries_data: comparing.MESSAGE,
    data_is_added_after_the_noise: comparing.NO_NOISE,
    last_coordinate_is_clean: comparing.NO_NOISE,
    header_carries_data: comparing.MESSAGE,
    exit_carries_data: "exit: differs",
    file_carries_data: comparing.LEFT,
    data_is_used_unpaid: comparing.USED_UNPAID,
    noise_is_drawn_unpaid: comparing.UNPAID,
    charge_is_given_back: comparing.GIVEN_BACK,
}


def honest_kinds(harness):
    """What the honest site finds, with a record whose pull on the model turns round."""
    config = settings("huber", [10.0], [-10.0])
    return {finding.kind for finding in judged(harness, config, None, None)}


def test_an_honest_site_finds_nothing(harness):
    assert not honest_kinds(harness)


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_leak_is_noticed(harness, plant):
    assert PLANTED[plant] not in honest_kinds(harness)
    with device.tampered(plant):
        assert PLANTED[plant] in honest_kinds(harness)


def widen_too_little(real):
    return lambda self, sensitivity: 0.9 * real(self, sensitivity)


def no_noise(real):
    return lambda self, models, sigma, clients, round: np.asarray(models, dtype=float)


def half_the_noise(real):
    return lambda self, models, sigma, clients, round: real(self, models, 0.5 * np.asarray(sigma), clients, round)


@pytest.mark.parametrize(
    ("method", "plant", "kind"),
    [
        ("widen", widen_too_little, comparing.DELTA),
        ("release", no_noise, comparing.NO_NOISE),
        ("release", half_the_noise, comparing.OTHER_NOISE),
    ],
    ids=["Δ is a tenth too small", "no noise", "half the noise"],
)
def test_noise_that_is_less_than_what_was_charged_is_noticed(harness, method, plant, kind):
    assert kind not in honest_kinds(harness)
    with mock.patch.object(SecureNoise, method, plant(getattr(SecureNoise, method))):
        assert kind in honest_kinds(harness)


def test_a_branch_that_was_not_reached_is_named():
    survey = Survey()
    assert survey.missing.keys() == REQUIRED.keys()
    survey.seen = Counter({"replayed": FEWEST, "crash": FEWEST - 1, f"DECLINE final {Refusal.SPENT}": FEWEST})
    assert REQUIRED.keys() - survey.missing.keys() == {"replay", "refused: SPENT"}
