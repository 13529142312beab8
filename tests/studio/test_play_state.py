"""The state of the Play view: addresses, presets, controls, and text to copy. No browser is needed."""

import json
import tomllib
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from pgfl import experiment
from pgfl.config import parse, to_toml
from pgfl.errors import ConfigError
from pgfl.privacy.trust import Level
from pgfl.studio import charts, network_charts
from pgfl.studio import charts as plane_chart
from pgfl.studio import workers as epsilon_sweep
from pgfl.studio.charts import DARK, LIGHT
from pgfl.studio.controls import EPSILON, SLIDERS, TRUST_CHOICE, choose, implied, owner_of
from pgfl.studio.figure_presets import CLAIMS, figures
from pgfl.studio.play_cards import told_apart
from pgfl.studio.play_state import PlayState, choices, comparison_configs, fedavg_step, preview_of
from pgfl.studio.python_text import python_text
from pgfl.studio.runs_view import RunEntry, difference
from pgfl.studio.story import STEPS, step_of
from pgfl.studio.workers import Plane, Superseded, play

ROOT = Path(__file__).parents[2]
TINY = (
    ("data.servers", "3"), ("data.clients_per_server", "3"), ("rounds", "4"), ("record_every", "2"),
    ("graph.kind", '"ring"'),
)  # fmt: skip
SMALL = {
    name: PlayState(name, TINY) for name in ("fig1", "fig5-guaranteed", "fig7", "private-huber", "exact", "fedavg")
}


def test_the_package_has_the_verdicts_of_the_documentation():
    packaged = ROOT / "src" / "pgfl" / "studio" / CLAIMS
    assert packaged.read_bytes() == (ROOT / "docs" / "reproduction" / "claims.json").read_bytes(), (
        "copy docs/reproduction/claims.json to src/pgfl/studio"
    )


def test_every_claim_of_the_nine_figures_is_shown_beside_one_of_them():
    judged = json.loads((ROOT / "docs" / "reproduction" / "claims.json").read_text("utf-8"))["claims"]
    wanted = {row["claim"] for row in judged if row["item"].startswith("fig") and "weak noise" not in row["claim"]}
    assert wanted == {claim.claim for figure in figures().values() for claim in figure.claims}
    assert {f"fig{number}" for number in range(1, 10)} <= set(choices())


@pytest.mark.parametrize("preset", choices())
def test_every_preset_is_a_config_that_survives_its_address_and_its_toml(preset):
    config = PlayState(preset).config()
    assert config.runs == 1
    assert len(config.metrics) == 1
    assert to_toml(parse(tomllib.loads(to_toml(config)))) == to_toml(config)
    assert PlayState.of_query(preset, []).config() == config


@pytest.mark.parametrize("name", SMALL)
def test_the_python_text_trains_the_same(name):
    config = SMALL[name].config()
    found = {}
    exec(python_text(config), found)
    assert found["result"].curve(config.metrics[0])[0].tolist() == list(play(config).curve)


@pytest.mark.parametrize("name", SMALL)
def test_what_is_played_is_what_run_gives(name):
    config = SMALL[name].config()
    played, result = play(config), experiment.run(config)
    assert list(played.curve) == result.curve(config.metrics[0])[0].tolist()
    assert played.rounds == tuple(result.rounds)
    if result.privacy:
        assert [row[2] for row in played.spent] == result.privacy[0]["epsilon"].tolist()
    assert [server.name for server in played.network.servers] == list(result.server_ids)
    assert sum(len(server.clients) for server in played.network.servers) == len(result.client_ids)


def test_the_last_frame_of_the_plane_is_the_final_models():
    config = SMALL["fig1"].config()
    plane, result = play(config).plane, experiment.run(config)
    assert plane.rounds[-1] == config.rounds
    finals = np.array([result.cluster(name) for name in result.cluster_ids])
    apart = np.linalg.norm(finals[0] - finals[1])
    drawn = np.linalg.norm(plane.clusters[-1, 0] - plane.clusters[-1, 1])
    assert 0 < drawn <= apart * (1 + 1e-9)


def test_a_training_that_is_not_wanted_any_more_ends_at_once():
    asked = []
    with pytest.raises(Superseded):
        play(PlayState("fig1").config(), wanted=lambda: not asked.append(1) and len(asked) < 3)
    assert len(asked) == 3


def test_an_address_gives_the_same_state_back():
    state = PlayState("fig5").changed("algorithm.tau", {"start": 0.3, "decay": 0.9}).changed("seed", 4)
    assert state.address() == ("/?preset=fig5&set=algorithm.tau%3D%7B+start+%3D+0.3%2C+decay+%3D+0.9+%7D&set=seed%3D4")
    assert PlayState.of_query("fig5", [f"{key}={value}" for key, value in state.changes]) == state
    assert state.config().algorithm.tau.decay == 0.9
    with pytest.raises(ConfigError, match="There is no preset 'fgi1'"):
        PlayState.of_query("fgi1", [])


@pytest.mark.parametrize("preset", ["fig1", "fig3", "fig5-guaranteed", "fig7", "private-huber"])
@pytest.mark.parametrize("slider", [*SLIDERS, EPSILON], ids=lambda one: one.name)
def test_every_slider_moves_its_own_value_only(preset, slider):
    state = PlayState(preset)
    config = state.config()
    if slider.read(config) is None:
        return
    low, high = slider.limits(config)
    for position in (low, (low + high) / 2, high):
        value = slider.value(position)
        moved = slider.write(state, config, value).config()
        assert slider.read(moved) == pytest.approx(value)
        for other in SLIDERS:
            if other is not slider and slider is not EPSILON:
                assert other.read(moved) == other.read(config)


@pytest.mark.parametrize("preset", choices())
def test_privacy_can_be_switched_on_and_off_everywhere(preset):
    private = PlayState(preset).with_privacy(2.0).config()
    assert private.privacy.enabled and private.privacy.epsilon == 2.0 and private.privacy.guarantee == "required"
    assert not PlayState(preset).with_privacy(2.0).without_privacy().config().privacy.enabled
    assert len(epsilon_sweep.levels(private)) == len(epsilon_sweep.FACTORS)


def test_ridge_as_printed_has_no_curve_against_epsilon():
    assert epsilon_sweep.levels(PlayState("fig1").config()) == []
    assert "guarantee" in epsilon_sweep.why_not(PlayState("fig3").config())


def test_sentences_find_their_control():
    for key, value, name in (
        ("algorithm.rho", -1.0, "rho"),
        ("data.gamma", -1.0, "gamma"),
        ("algorithm.tau", 1.5, "tau"),
    ):
        with pytest.raises(ConfigError) as error:
            PlayState("fig1").changed(key, value).config()
        assert owner_of(str(error.value)) == name
    assert owner_of("Something else is wrong.") is None


def test_the_trust_control_offers_what_the_schema_offers():
    assert tuple(TRUST_CHOICE.options(PlayState("fig1").config())) == get_args(Level) == ("local", "site", "masked")


def test_a_preview_is_the_beginning_of_the_exact_curve():
    state = PlayState("fig1", TINY).without("rounds", "record_every").changed("rounds", 60)
    whole, preview = play(state.config()), play(preview_of(state.config()))
    shared = [whole.curve[whole.rounds.index(round)] for round in preview.rounds]
    assert len(preview.rounds) < len(whole.rounds)
    assert list(preview.curve) == shared


def test_beside_stand_fedavg_and_no_inter_server_with_everything_else_the_same():
    config = PlayState("fig2").config()
    others = comparison_configs(config)
    assert others["FedAvg"].algorithm.kind == "fedavg"
    assert others["FedAvg"].algorithm.participants == config.algorithm.participants
    assert others["servers isolated"].graph.kind == "none"
    assert others["servers isolated"].model_copy(update={"graph": config.graph}) == config
    assert "FedAvg" not in comparison_configs(PlayState("fedavg").config())


def test_fedavg_has_a_step_that_fits_beside_every_preset():
    assert fedavg_step(PlayState("fig1").config()) == "auto"
    assert fedavg_step(PlayState("fig3").config()) == 0.02, "noise without a guarantee: that of the figure"
    private = PlayState("fig3-guaranteed").config()
    assert fedavg_step(private) == pytest.approx(1 / (private.algorithm.rho * private.algorithm.local_steps), rel=1e-2)
    steep = PlayState("fig3-guaranteed").changed("algorithm.rho", 0.1).config()
    assert fedavg_step(steep) < 1 / (2 * 60) * 2, "no longer than its guarantee allows"


def test_every_step_of_the_story_moves_the_models_as_its_caption_says():
    alone, connected, shared, private = (play(step.state().config(), details=False).final for step in STEPS)
    assert connected < 0.3 * alone
    assert shared < 0.9 * connected
    assert shared < private < 0.5 * alone
    assert [step_of(step.state()) for step in STEPS] == [0, 1, 2, 3]


def test_what_a_switch_changes_besides_is_said():
    state = PlayState("fig1")
    said = implied(state.config(), state.with_privacy(8.0).config(), "privacy")
    assert said == "This also changes ρ from 5 to 30, loss from ridge to huber."
    trusting = choose(PlayState("fig3-guaranteed"), TRUST_CHOICE, "masked")
    assert "a client from" in implied(PlayState("fig3-guaranteed").config(), trusting.config(), "trust")
    assert implied(state.config(), state.changed("algorithm.tau", 0.1).config(), "tau") == ""


def test_clusters_whose_models_coincide_far_from_their_truths_are_said_to():
    truth = np.array([[3.0, 0.0], [-3.0, 0.0]])
    coinciding, apart = np.array([[[0.2, 0.0], [-0.2, 0.0]]]), np.array([[[2.0, 0.0], [-2.0, 0.0]]])

    def plane(clusters, truth):
        return Plane((0,), clusters, np.empty((1, 0, 2)), (), truth)

    assert "only 7 % as far apart" in told_apart(plane(coinciding, truth))
    assert told_apart(plane(apart, truth)) == told_apart(plane(coinciding, None)) == ""


def test_algorithms_do_not_wear_the_colours_of_clusters():
    for colours in (LIGHT, DARK):
        assert not {colours.main, colours.other, colours.ghost} & set(colours.clusters)


def test_a_section_that_a_run_lacks_is_one_row_of_the_difference():
    def run(name, config):
        return RunEntry(name, Path(name), "done", 0.0, {}, {}, config)

    private = {"rounds": 5, "privacy": {"enabled": True, "epsilon": 1.0, "delta": 1e-5, "phi0": None}}
    rows = difference([run("a", {"rounds": 3}), run("b", private)])
    assert rows == [("rounds", ["3", "5"]), ("privacy", ["—", "enabled = true, epsilon = 1.0, delta = 1e-05"])]


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_pictures_are_plain_json_without_markup_from_names(colours):
    played = play(SMALL["fig5-guaranteed"].config())
    drawn = [
        charts.curves(played, colours, rounds=4, before=played, comparisons={"FedAvg": played}, preview=played),
        network_charts.network(played.network, colours, "server-1"),
        plane_chart.plane(played.plane, played.network.clusters, colours, 0),
        charts.spending(played, played.network.clusters, colours, 2.0),
        charts.against_epsilon({1.0: 0.5, 2.0: 0.3}, (1.0, 0.5), "nmsd", colours),
    ]
    for options in drawn:
        assert json.loads(json.dumps(options, allow_nan=False)) is not None
        assert options["series"]
