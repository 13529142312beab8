"""`map = "auto"` under privacy: which row map pays at this noise, from public facts alone.

Curves keep straight lines at their full size and hardly lengthen rows, so they cost little; they pay as soon as noise
leaves about half of what could be learnt. Products of all pairs are many features, each of which takes its own noise:
they pay where next to nothing is lost, and where records are many times as many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pgfl.config.schema import Config
from pgfl.errors import ConfigError
from pgfl.federation.columns import ArrayColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.maps import Curves, Gradients, Products, RowMap, length, stages, stated
from pgfl.planning.facts import Facts, facts_of
from pgfl.planning.forecast import Choice, share_kept
from pgfl.planning.search import FEW_TABLE_JUDGING_SEEDS, FEW_TABLE_SEEDS, best_foreseen, foreseen_on

CURVES_FROM = 0.5  # of what straight lines would learn without privacy
PRODUCTS_FROM = 0.97
RECORDS_PER_FEATURE = 30  # of all clients of a cluster, for products
PRODUCTS_COUNT = 0.3
FINE_FROM = 10.0  # the ε at which local noise would disturb as much, for gradients over small cells
CELLS, FINE_CELLS = (7, 8, 4, 5, 6), (4, 5, 6, 7, 8)  # in pixels, the preferred ones first


def with_planned_map(config: Config, **facts: Any) -> tuple[Config, Choice | None]:
    """Return the config with a map where it leaves one open, and the reason; no record is read."""
    if not config.data.leaves_map_open:
        return config, None
    plain = config.model_copy(update={"data": config.data.model_copy(update={"map": None})})
    maps, reason = choose_planned_map(facts_of(plain, **facts).planned, plain.data.public_encoding())
    data = config.data.model_copy(update={"map": maps or None})
    tables = [table["kind"] if len(table) == 1 else table for table in stated(maps)]
    return config.model_copy(update={"data": data}), Choice("data.map", tables, reason)


def choose_planned_map(facts: Facts, encoding: RowEncoding | None) -> tuple[tuple[RowMap, ...], str]:
    """Return the map that pays, and why."""
    if encoding is not None and any(isinstance(column, ArrayColumn) for column in encoding.columns):
        return _of_images(facts, encoding)
    if facts.rows is None or encoding is None or not any(group.scaled for group in encoding.groups):
        return (), "no number has public bounds between which it could bend"
    kept = kept_by_straight_lines(facts)
    said = f"straight lines keep about {100 * max(kept, 0.0):.0f} % of what they would learn without noise"
    if kept < CURVES_FROM:
        return (), f"{said}: more features would only add noise"
    both = (Curves(), Products(scale=PRODUCTS_COUNT))
    features = length(stages(both, encoding.groups)[1])
    records = facts.clients * facts.mean_records / facts.clusters
    if kept >= PRODUCTS_FROM and len(encoding.groups) > 1 and records >= RECORDS_PER_FEATURE * features:
        return both, f"{said}, and {records:.0f} records are enough for {features} features"
    return (Curves(),), f"{said}: curves pay, products of columns would take too much noise or too many records"


def kept_by_straight_lines(facts: Facts) -> float:
    """Return the share of what is learnt without privacy that a plan without a map keeps, on a few twins."""
    settings = best_foreseen(facts, FEW_TABLE_SEEDS)
    found = foreseen_on(facts, settings, FEW_TABLE_JUDGING_SEEDS)
    return share_kept(np.array([each.kept[0] for each in found])).value


def _of_images(facts: Facts, encoding: RowEncoding) -> tuple[tuple[RowMap, ...], str]:
    fine, said = facts.equivalent_local_epsilon >= FINE_FROM, "what edges run where says more than pixels"
    for cell in FINE_CELLS if fine else CELLS:
        try:
            stages((Gradients(cell),), encoding.groups)
        except ConfigError:
            continue
        return (Gradients(cell),), f"{said}; {'little noise allows small' if fine else 'noise asks for large'} cells"
    return (), "no cell divides images of this size"
