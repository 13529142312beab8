"""The model card: what it states follows from the result, and text from a table cannot change its layout."""

import pytest

from pgfl import Logistic
from pgfl.results.model_card import NO_PRIVACY, model_card
from tests.results.test_alternatives import compared, federation
from tests.sample_results import sample_result


def sections(card):
    return [line for line in card.splitlines() if line.startswith("#")]


def test_a_card_has_data_measures_privacy_and_use_and_is_saved_with_the_model(tmp_path):
    result = compared(federation([1.0, -1.0], rows=400), rounds=3)
    folder = result.save(tmp_path / "out")
    card = (folder / "model_card.md").read_text("utf-8")
    assert card == model_card(result)
    assert sections(card)[1:] == ["## Model details", "## Data", "## Measures", "## Privacy", "## Intended use"] + (
        ["## Limitations"] if "## Limitations" in card else []
    )
    assert card.startswith("---\nlibrary_name: pgfl\npipeline_tag: tabular-regression\n")
    assert "- `a`: a number from -1 to 1" in card and "`y`, numbers from -6 to 6" in card
    for name in result.cluster_ids:
        assert f"| `{name}` | {result.measures[0].clusters[name].value:.3f} " in card
    assert NO_PRIVACY in card and result.alternatives.sentence in card


def test_the_card_says_how_far_probabilities_are_to_be_trusted_and_where_the_threshold_is():
    result = compared(federation([1.0, -1.0], rows=600, labels=2), Logistic())
    assert result.calibration.sentence in model_card(result) and "the threshold is 0.5" in model_card(result)


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_the_card_of_a_private_model_states_the_guarantee(noise):
    result = sample_result(noise=noise)
    card = model_card(result)
    assert NO_PRIVACY not in card
    if result.privacy_card is not None:
        assert result.privacy_card.headline.rstrip(".") in card


def test_names_from_a_table_do_not_change_the_layout():
    made = federation([1.0, -1.0], rows=300)
    made = made.replace(
        cluster_ids=("a | b\n# c", "d`e"),
        tests=dict(zip(("a | b\n# c", "d`e"), made.tests.values(), strict=True)),
    )
    card = model_card(compared(made, rounds=2))
    assert not any(line.startswith("# c") for line in card.splitlines())
    assert "| `a \\| b # c` |" in card
