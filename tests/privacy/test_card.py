"""The privacy card says what holds: ε with its δ, for whom, against whom, in how many releases."""

import math
import re

import pytest
from scipy.stats import norm

from pgfl import PGFL, Huber, Privacy, Result, Ridge, synthetic_regression, train
from pgfl.privacy.accounting import exact_epsilon
from pgfl.privacy.card import PrivacyCard

FEDERATION = synthetic_regression(servers=4, clients_per_server=3, dimension=4, samples=(20, 20), x_norm=1.0, seed=3)
EVERYONE = ("one replaced record", "everyone", "", "nothing")


def said_to_be_right(card):
    """How often an attacker is right at most, as the card says."""
    return float(re.search(r"at most ([0-9.]+) %", card.meaning)[1]) / 100


@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_no_attacker_is_right_more_often_than_the_card_says(mu, delta):
    """The best attacker on a Gaussian mechanism is right with probability Φ(μ/2)."""
    epsilon = float(exact_epsilon(mu**2 / 2, delta))
    said = said_to_be_right(PrivacyCard("zCDP", epsilon, delta, *EVERYONE, 1))
    assert said >= norm.cdf(mu / 2) - 5e-4  # three digits are shown
    assert said <= (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)) + 5e-4


def private(**settings):
    asked = {"x_norm": 1.0, "epsilon": 2.0, "delta": 1e-6, **settings}
    return train(FEDERATION, PGFL(rho=20.0), Huber(), rounds=6, privacy=Privacy(**asked))


def test_a_training_states_what_its_worst_client_has_spent():
    result = private(max_releases=6)
    card, worst = result.privacy_card, max(table["epsilon"].max() for table in result.privacy)
    assert card.epsilon == worst and card.epsilon <= card.budget == pytest.approx(2.0, rel=1e-8)
    assert (card.releases, card.most_releases, card.delta) == (6, 6, 1e-6)
    assert card.headline.startswith("(ε = 2, δ = 10⁻⁶) for one replaced record, against everyone")
    assert card.headline.endswith("6 of 6 releases")
    assert result.guarantee == card.label


def test_a_trusted_site_is_named_in_the_card():
    privacy = Privacy(x_norm=1.0, epsilon=2.0, trust="site", contributors=1)
    card = train(FEDERATION, PGFL(rho=20.0, client="gradient"), Huber(), rounds=3, privacy=privacy).privacy_card
    assert "everyone but the client's own site" in card.headline
    assert "whoever breaks into it" in card.text()


def test_noise_without_a_guarantee_states_no_epsilon():
    result = train(FEDERATION, PGFL(rho=1.0), Ridge(), rounds=3, privacy=Privacy(phi0=1.0, guarantee="none"))
    card = result.privacy_card
    assert not card.guaranteed and card.headline.startswith("No guarantee: ") and "ε" not in card.headline
    assert "Nothing is promised" in card.text() and PrivacyCard.from_json(card.to_json()) == card


def test_without_privacy_there_is_no_card():
    assert train(FEDERATION, rounds=2).privacy_card is None


def test_folder_model_and_page_have_the_same_card(tmp_path):
    result = private()
    result.save(tmp_path / "out")
    card, again = result.privacy_card, Result.load(tmp_path / "out")
    assert again.privacy_card == card and card.date and card.version
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert card.headline in page and page.index("Guarantee") < page.index("Outcome")
    assert result.model().provenance["privacy_card"] == card.to_json()
    assert card.headline in result._repr_html_()
