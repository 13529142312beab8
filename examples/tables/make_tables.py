"""Four real data sets as tables of clients at hospitals, for `pgfl describe`, `pgfl init` and `pgfl run`.

    python examples/tables/make_tables.py tables

The rows are those of scikit-learn and statsmodels, which come with the data. Clusters follow from a column of the data
where there is a natural one. Rows are dealt to clients in the order of a hash of their numbers, so nothing ever changes
and clients have nearly equal numbers of rows.
"""

import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits  # type: ignore[import-untyped]
from statsmodels.datasets import fair as affairs  # type: ignore[import-untyped]

SERVERS = ("north", "east", "south", "west")


def diabetes() -> pd.DataFrame:
    """442 patients: the progression of the disease after a year. Women and men are clusters."""
    table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression"})
    sex = table.pop("sex").map({1.0: "sex-1", 2.0: "sex-2"})
    return placed(table, clients=24, cluster=sex)


def breast_cancer() -> pd.DataFrame:
    """569 tumours: benign or malignant. Tumours with a smooth and with a rough texture are clusters."""
    data = load_breast_cancer(as_frame=True)
    table = data.data.assign(diagnosis=np.where(data.target == 1, "benign", "malignant"))
    texture = np.where(table["mean texture"] < table["mean texture"].median(), "smooth", "rough")
    return placed(table, clients=20, cluster=pd.Series(texture))


def fair() -> pd.DataFrame:
    """6,366 wives asked for a magazine in 1974: an affair or none. Age groups are clusters."""
    table = affairs.load_pandas().data
    table["affair"] = np.where(table.pop("affairs") > 0, "yes", "no")
    age = pd.cut(table["age"], [0, 25, 35, 100], labels=["young", "middle", "older"]).astype(str)
    return placed(table, clients=60, cluster=age)


def digits() -> pd.DataFrame:
    """1,797 handwritten digits of 8 × 8 pixels: which of ten? There are no clusters."""
    data = load_digits(as_frame=True)
    return placed(data.data.assign(digit=data.target), clients=20)


def placed(table: pd.DataFrame, clients: int, cluster: pd.Series | None = None) -> pd.DataFrame:
    """The table with the columns client, server and, if there are any, cluster; so many clients in every cluster."""
    groups = np.array(["client"] * len(table) if cluster is None else cluster.to_list())
    shuffled = np.array([zlib.crc32(str(row).encode()) for row in range(len(table))])
    number = np.empty(len(table), dtype=int)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        number[rows[np.argsort(shuffled[rows])]] = np.arange(len(rows)) % clients
    places = {
        "client": [f"{group}-{client:02d}" for group, client in zip(groups, number, strict=True)],
        "server": [SERVERS[client % len(SERVERS)] for client in number],
    }
    if cluster is not None:
        places["cluster"] = groups.tolist()
    return pd.DataFrame(places).join(table.reset_index(drop=True))


TABLES: dict[str, tuple[Callable[[], pd.DataFrame], str]] = {
    "diabetes": (diabetes, "progression"),
    "breast_cancer": (breast_cancer, "diagnosis"),
    "fair": (fair, "affair"),
    "digits": (digits, "digit"),
}
"""Name → (how it is made, its target)."""


def write(folder: Path, *names: str) -> None:
    """Write some of the tables, or all of them, as csv files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or TABLES:
        TABLES[name][0]().to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "tables"))
