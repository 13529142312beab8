import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgfl import Federation
from pgfl.errors import DataError, PgflError, TopologyError
from pgfl.federation.graphs import read_edges, ring

HEADER = "client,server,cluster,y,x1,x2\n"
GOOD = HEADER + "bob,south,old,1,1.5,2\nann,north,young,2,3,4\nbob,south,old,3,-5e-1,6\ncid,west,old,0,7,8\n"


@pytest.fixture
def write(tmp_path):
    def save(content, name="clients.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return save


@pytest.fixture
def parquet(tmp_path):
    def save(name="clients.parquet", **columns):
        base = {"client": ["b", "a"], "server": ["s", "t"], "cluster": ["q", "q"], "y": [1.0, 2.0], "x": [3.0, 4.0]}
        path = tmp_path / name
        pl.DataFrame({key: value for key, value in (base | columns).items() if value is not None}).write_parquet(path)
        return path

    return save


def one_sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert "Traceback" not in text
    assert text.endswith(".")
    return text


class TestGoodTables:
    def test_rows_are_gathered_by_client_in_file_order(self, write):
        federation = Federation.read(write(GOOD))
        assert federation.client_ids == ("ann", "bob", "cid")
        assert federation.server_ids == ("north", "south", "west")
        assert federation.cluster_ids == ("old", "young")
        assert federation.client_server.tolist() == [0, 1, 2]
        assert federation.client_cluster.tolist() == [1, 0, 0]
        features, targets = federation.rows("bob")
        assert features.tolist() == [[1.5, 2.0], [-0.5, 6.0]]
        assert targets.tolist() == [1.0, 3.0]
        assert not len(federation.graph.edges)

    def test_columns_may_come_in_any_order_and_the_target_may_be_named(self, write):
        federation = Federation.read(write("b,cost,cluster,client,a,server\n1,2,q,c,3,s\n"), target="cost")
        assert federation.rows("c")[0].tolist() == [[1.0, 3.0]]
        assert federation.targets.tolist() == [2.0]

    def test_parquet_gives_the_same_federation_as_csv(self, write, tmp_path):
        from_csv = Federation.read(write(GOOD))
        pl.read_csv(tmp_path / "clients.csv").write_parquet(tmp_path / "clients.parquet", row_group_size=2)
        from_parquet = Federation.read(tmp_path / "clients.parquet")
        assert np.array_equal(from_csv.features, from_parquet.features)
        assert np.array_equal(from_csv.targets, from_parquet.targets)
        assert from_csv.client_ids == from_parquet.client_ids

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_dtype_and_intercept(self, write, dtype):
        federation = Federation.read(write(GOOD), dtype=dtype, intercept=True)
        assert federation.features.dtype == federation.targets.dtype == dtype
        assert federation.dimension == 3
        assert (federation.features[:, -1] == 1).all()

    def test_blank_lines_blanks_quotes_and_windows_line_ends_do_no_harm(self, write):
        messy = '\ufeff client , server,"cluster",y,x\r\n\r\n a ,s,q, 1 ,2\r\n , ,,,\r\n"a",s,q,3,+4.\r\n\r\n'
        federation = Federation.read(write(messy))
        assert federation.client_ids == ("a",)
        assert federation.features.tolist() == [[2.0], [4.0]]
        assert federation.targets.tolist() == [1.0, 3.0]

    def test_numbers_are_ids_as_they_are_written(self, write):
        federation = Federation.read(write("client,server,cluster,y,x\n10,1,0,1,1\n9,01,0,1,1\n"))
        assert federation.client_ids == ("10", "9")
        assert federation.server_ids == ("01", "1")

    @pytest.mark.parametrize(
        "values", [[2, 1], [2.0, 1.0], pl.Series([2, 1], dtype=pl.UInt8), pl.Series([2.0, 1.0], dtype=pl.Float32)]
    )
    def test_whole_numbers_in_parquet_are_ids_without_a_point(self, parquet, values):
        assert Federation.read(parquet(client=values)).client_ids == ("1", "2")

    def test_other_parquet_columns_that_can_be_read(self, parquet):
        path = parquet(
            client=[1.5, 2.0], server=pl.Series(["s", "t"], dtype=pl.Categorical), x=[True, False], z=["1", " 2.5"]
        )
        federation = Federation.read(path)
        assert federation.client_ids == ("1.5", "2")
        assert federation.features.tolist() == [[1.0, 1.0], [0.0, 2.5]]

    def test_one_row_constant_features_and_a_cluster_per_client(self, write):
        federation = Federation.read(write("client,server,cluster,y,x\na,s,qa,1,0\nb,s,qb,1,0\n"))
        assert federation.counts.tolist() == [1, 1]

    def test_a_table_can_be_mapped(self, write, tmp_path):
        federation = Federation.read(write(GOOD), graph="ring", store=tmp_path / "stored")
        assert isinstance(federation.features, np.memmap)
        again = Federation.open(tmp_path / "stored")
        assert np.array_equal(again.features, Federation.read(write(GOOD)).features)
        assert again.graph.edges.tolist() == federation.graph.edges.tolist()
        assert again.client_ids == ("ann", "bob", "cid")

    def test_a_refused_table_leaves_no_store(self, write, tmp_path):
        with pytest.raises(DataError):
            Federation.read(write(GOOD + "ann,north,young,oops,3,4\n"), store=tmp_path / "stored")
        assert [path.name for path in tmp_path.iterdir()] == ["clients.csv"]

    def test_a_part_of_the_servers_keeps_the_numbers_of_the_whole(self, write):
        options = {"graph": "ring", "servers": ["hub"]}
        whole = Federation.read(write(GOOD), **options)
        part = Federation.read(write(GOOD), **options, servers_subset=[3, 2])
        assert part.client_ids == ("bob", "cid")
        assert part.server_ids == whole.server_ids
        assert part.client_server.tolist() == [2, 3]
        assert part.cluster_ids == whole.cluster_ids
        for name in part.client_ids:
            assert np.array_equal(part.rows(name)[0], whole.rows(name)[0])
        with pytest.raises(DataError, match="at least one client"):
            Federation.read(write(GOOD), **options, servers_subset=[0])
        with pytest.raises(DataError, match="servers 0 to 3"):
            Federation.read(write(GOOD), **options, servers_subset=[4])

    def test_many_columns_are_read_block_by_block(self, write, monkeypatch):
        monkeypatch.setattr("pgfl.federation.frames._BLOCK_BYTES", 100)
        monkeypatch.setattr("pgfl.federation.frames._PARSED_ONCE_BYTES", 0)
        rng = np.random.default_rng(0)
        values = rng.normal(size=(30, 7))
        clients = rng.integers(0, 5, size=30)
        lines = [
            f"c{k},s{k % 2},q,{row[0]!r}," + ",".join(repr(float(v)) for v in row[1:])
            for k, row in zip(clients, values.tolist(), strict=True)
        ]
        federation = Federation.read(write("client,server,cluster,y," + ",".join("abcdef") + "\n" + "\n".join(lines)))
        order = np.argsort(clients, kind="stable")
        assert np.array_equal(federation.features, values[order, 1:])
        assert np.array_equal(federation.targets, values[order, 0])


class TestTestTables:
    def test_samples_that_nobody_trains_on(self, write):
        test = write("cluster,x2,client,y,x1\nyoung,1,anybody,2,3\n\nold,4,,5,6\nyoung,7,x,8,9\n", "test.csv")
        federation = Federation.read(write(GOOD), test=test, intercept=True)
        assert list(federation.tests) == ["old", "young"]
        assert federation.tests["young"].features.tolist() == [[3.0, 1.0, 1.0], [9.0, 7.0, 1.0]]
        assert federation.tests["young"].targets.tolist() == [2.0, 8.0]
        assert federation.tests["old"].features.tolist() == [[6.0, 4.0, 1.0]]

    def test_not_every_cluster_needs_one(self, write):
        federation = Federation.read(write(GOOD), test=write("cluster,y,x1,x2\nold,1,1,1\n", "test.csv"))
        assert list(federation.tests) == ["old"]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("cluster,y,x1,x2\nold,1,1,1\nyouth,1,1,1\n", ["data row 2", "'youth'", "no clients"]),
            ("cluster,y,x1,x2\nold,1,1,oops\n", ["data row 1", "'x2'", "'oops'"]),
            ("cluster,y,x1,x2\n,1,1,1\n", ["data row 1", "'cluster'", "empty"]),
            ("cluster,y,x1\nold,1,1\n", ["'x2'"]),
            ("cluster,y,x1,x2,x3\nold,1,1,1,1\n", ["'x3'", "lacks"]),
            ("cluster,y,x1,x2\n", ["no rows"]),
        ],
    )
    def test_bad_test_tables(self, write, content, words):
        with pytest.raises(DataError) as error:
            Federation.read(write(GOOD), test=write(content, "test.csv"))
        text = one_sentence(error)
        assert "test.csv" in text
        assert all(word in text for word in words), text


class TestGraphs:
    @pytest.mark.parametrize("kind", ["ring", "line", "star", "complete", "grid", "random"])
    def test_kinds_over_the_servers_sorted_as_text(self, write, kind):
        graph = Federation.read(write(GOOD), graph=kind, average_degree=2.0, servers=["aaa", 7]).graph
        assert (graph.size, graph.connected) == (5, True)

    def test_star_centres_the_first_server_as_text(self, write):
        federation = Federation.read(write(GOOD), graph="star", servers=["10"])
        assert federation.server_ids[0] == "10"
        assert federation.graph.degrees.tolist() == [3, 1, 1, 1]

    def test_random_graphs_follow_seed_and_run(self, write):
        path, extra = write(GOOD), [f"s{i}" for i in range(20)]
        edges = [
            Federation.read(path, graph="random", servers=extra, seed=s, run=r).graph.edges.tolist()
            for s, r in [(0, 0), (0, 0), (1, 0), (0, 1)]
        ]
        assert edges[0] == edges[1]
        assert edges[0] not in edges[2:]

    def test_edge_files_pairs_and_graphs(self, write):
        path, edges = write(GOOD), write("source,target\nwest,north\n\nhub, west\n\n", "edges.csv")
        for graph in (edges, str(edges), [("west", "north"), ("hub", "west")]):
            federation = Federation.read(path, graph=graph, servers=["hub"])
            assert federation.graph.edges.tolist() == [[0, 3], [1, 3]]
        assert Federation.read(path, graph=ring(3)).graph.connected
        assert read_edges(write("source,target\n", "none.csv")) == []

    def test_numeric_parquet_edges_meet_csv_ids(self, write, tmp_path):
        pl.DataFrame({"source": [1.0], "target": [2.0]}).write_parquet(tmp_path / "edges.parquet")
        path = write("client,server,cluster,y,x\na,1,q,1,1\nb,2,q,1,1\n")
        assert Federation.read(path, graph=tmp_path / "edges.parquet").graph.connected

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("source,target\nnorth,south\nnorth,moon\n", ["data row 2", "'moon'", "servers"]),
            ("source,target\nnorth,north\n", ["data row 1", "'north'", "itself"]),
            ("source,target\nnorth,south\nsouth,north\n", ["data row 2", "data row 1", "'south'–'north'"]),
            ("source,target\nnorth,south\nnorth,south\n", ["data row 2", "data row 1"]),
            ("source,target\nnorth,\n", ["data row 1", "'target'", "empty"]),
            ("source,sink\nnorth,south\n", ["'target'", "source, sink"]),
            ("source,target,weight\nnorth,south,2\n", ["'weight'", "remove"]),
            ("source;target\nnorth;south\n", ["commas"]),
            ("", ["empty"]),
        ],
    )
    def test_bad_edge_files(self, write, content, words):
        with pytest.raises(DataError) as error:
            Federation.read(write(GOOD), graph=write(content, "edges.csv"))
        text = one_sentence(error)
        assert "edges.csv" in text
        assert all(word in text for word in words), text

    def test_bad_graphs(self, write):
        path = write(GOOD)
        with pytest.raises(TopologyError, match="'rign' is neither an edge file nor a kind"):
            Federation.read(path, graph="rign")
        with pytest.raises(DataError, match=r"moon\.csv does not exist"):
            Federation.read(path, graph="moon.csv")
        with pytest.raises(TopologyError, match="names server moon"):
            Federation.read(path, graph=[("north", "moon")])
        with pytest.raises(PgflError, match="graph has 4 servers, but 3"):
            Federation.read(path, graph=ring(4))
        with pytest.raises(TopologyError, match="no name"):
            Federation.read(path, servers=[" "])


class TestBadTables:
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (GOOD + "ann,north,young,1,abc,2\n", ["data row 5", "'x1'", "'abc'", "number"]),
            (GOOD + "ann,north,young,1,1,NaN\n", ["data row 5", "'x2'", "'NaN'", "finite"]),
            (GOOD + "ann,north,young,1,-inf,1\n", ["data row 5", "'x1'", "'-inf'", "finite"]),
            (GOOD + "ann,north,young,1,1e999,1\n", ["data row 5", "'x1'", "finite"]),
            (GOOD + "ann,north,young,high,1,1\n", ["data row 5", "'y'", "'high'"]),
            (GOOD + "ann,north,young,,1,1\n", ["data row 5", "'y'", "empty"]),
            (GOOD + "ann,north,young,1,1\n", ["data row 5", "'x2'", "empty"]),
            (GOOD + "ann,north,young,1,1,  \n", ["data row 5", "'x2'", "empty"]),
            (GOOD + "ann,north,young,1,1,2,3\n", ["Line 6", "7 cells", "6 columns"]),
            (GOOD + "ann,south,young,1,1,1\n", ["data row 5", "'ann'", "at server 'south'", "'north'", "data row 2"]),
            (GOOD + "bob,south,young,1,1,1\n", ["data row 5", "'bob'", "in cluster 'young'", "'old'", "data row 1"]),
            (GOOD + ",south,young,1,1,1\n", ["data row 5", "'client'", "empty"]),
            (GOOD + "dan, ,young,1,1,1\n", ["data row 5", "'server'", "empty"]),
            (GOOD + "dan,south,,1,1,1\n", ["data row 5", "'cluster'", "empty"]),
            (
                GOOD.replace("cluster", "group"),
                ["data row 1", "'group'", "text ('old', 'young')", "group = {", 'state cluster = "group"'],
            ),
            (GOOD.replace("cluster", "Clusters"), ["'cluster'", 'cluster = "Clusters"']),
            (GOOD.replace("client", "patient"), ["'client'", 'client = "patient"', "patient, server, cluster"]),
            (GOOD.replace(",y,", ",z,"), ["'y'"]),
            (GOOD.replace(",", ";"), ["semicolons", "commas"]),
            (GOOD.replace("x2", "x1"), ["two columns", "'x1'"]),
            (GOOD.replace("x2", " x1 "), ["two columns", "'x1'"]),
            (GOOD.replace("x2", ""), ["Column 6", "no name"]),
            ("client,server,cluster,y\na,s,q,1\n", ["no feature columns"]),
            (HEADER, ["no rows"]),
            (HEADER + "\n\n", ["no rows"]),
            ("", ["empty"]),
            ("\n\n\n", ["clients.csv"]),
            (GOOD.encode() + b"d\xe9d,north,young,1,1,1\n", ["Line 6", "UTF-8"]),
            (GOOD.encode("utf-16"), ["Line 1", "UTF-8"]),
            (GOOD.replace("\n", "\r"), ["clients.csv"]),
            (GOOD + '"ann,north,young,1,1,1\n', ["clients.csv"]),
            (b"\x00" * 100, ["clients.csv"]),
        ],
    )
    def test_one_sentence_names_file_row_column(self, write, content, words):
        with pytest.raises(DataError) as error:
            Federation.read(write(content))
        text = one_sentence(error)
        assert "clients.csv" in text
        assert all(word in text for word in words), text

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("ann,north,young,1,1,2,3", ["Line 6", "7 cells"]),
            ("ann,north,young,1,abc,2", ["data row 5", "'x1'", "'abc'"]),
            (",north,young,1,1,2", ["data row 5", "'client'"]),
        ],
    )
    def test_large_files_that_are_parsed_in_parts_are_refused_alike(self, write, monkeypatch, line, words):
        monkeypatch.setattr("pgfl.federation.frames._PARSED_ONCE_BYTES", 0)
        with pytest.raises(DataError) as error:
            Federation.read(write(f"{GOOD}{line}\n\n"))
        assert all(word in one_sentence(error) for word in words)

    def test_the_first_bad_row_of_the_file_is_named_whatever_the_order_of_clients(self, write):
        with pytest.raises(DataError, match="data row 2: column 'x1' holds 'bad'"):
            Federation.read(write(HEADER + "a,s,q,1,1,1\nz,s,q,1,bad,1\na,s,q,1,worse,1\n"))

    def test_float32_overflow_is_noticed(self, write):
        path = write(GOOD + "ann,north,young,1,1e300,1\n")
        assert Federation.read(path).features.max() == 1e300
        with pytest.raises(DataError, match=r"data row 5: column 'x1' holds '1e300', which is too large for float32"):
            Federation.read(path, dtype=np.float32)

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            ({"x": [[1.0], [2.0]]}, ["'x'", "lists"]),
            ({"x": pl.Series(["2020-01-01", "2020-01-02"]).str.to_date()}, ["'x'", "dates"]),
            ({"x": [b"1", b"2"]}, ["'x'", "Binary"]),
            ({"x": [1.0, None]}, ["data row 2", "'x'", "empty"]),
            ({"x": [None, None]}, ["data row 1", "'x'", "empty"]),
            ({"x": [1.0, float("nan")]}, ["data row 2", "'x'", "empty"]),
            ({"y": [float("inf"), 1.0]}, ["data row 1", "'y'", "inf"]),
            ({"x": ["1", "one"]}, ["data row 2", "'x'", "'one'"]),
            ({"client": [["a"], ["b"]]}, ["'client'", "lists"]),
            ({"client": [1.0, float("nan")]}, ["data row 2", "'client'", "empty"]),
            ({"client": ["a", None]}, ["data row 2", "'client'", "empty"]),
            ({"client": ["a", "a"]}, ["data row 2", "'a'", "at server 't'"]),
            ({"client": None}, ["'client'"]),
            ({"x": None}, ["no feature columns"]),
            ({" x": [1, 2]}, ["two columns", "'x'"]),
            ({key: [] for key in ("client", "server", "cluster", "y", "x")}, ["no rows"]),
        ],
    )
    def test_bad_parquet(self, parquet, columns, words):
        with pytest.raises(DataError) as error:
            Federation.read(parquet(**columns))
        text = one_sentence(error)
        assert "clients.parquet" in text
        assert all(word in text for word in words), text

    def test_damaged_parquet(self, parquet, tmp_path):
        whole = parquet().read_bytes()
        for damaged in (b"hello", b"PAR1PAR1PAR1PAR1", whole[:-50], whole[:4] + b"\xff" * 60 + whole[64:], b""):
            (tmp_path / "damaged.parquet").write_bytes(damaged)
            with pytest.raises(DataError) as error:
                Federation.read(tmp_path / "damaged.parquet")
            assert "damaged.parquet" in one_sentence(error)

    def test_paths_that_are_not_tables(self, tmp_path, write):
        (tmp_path / "folder.csv").mkdir()
        for path, words in [
            (tmp_path / "folder.csv", "is a folder"),
            (tmp_path / "absent.csv", "does not exist"),
            (write(GOOD, "clients.xlsx"), "must end in"),
        ]:
            with pytest.raises(DataError, match=words):
                Federation.read(path)

    def test_bad_arguments(self, write):
        with pytest.raises(DataError, match="cannot be 'client'"):
            Federation.read(write(GOOD), target="client")
        with pytest.raises(PgflError, match="int64"):
            Federation.read(write(GOOD), dtype=np.int64)

    def test_a_name_with_wildcards_is_that_file(self, write):
        assert Federation.read(write(GOOD, "clients[1]*.csv")).size == 3


CELL = st.sampled_from(
    [
        "a",
        "b",
        "1",
        "2.5",
        "",
        " ",
        "nan",
        "inf",
        "-1e999",
        '"',
        '""',
        '"x',
        "é",
        "\x00",
        "x,y",
        "\n",
        "1e5",
        "None",
        "'",
    ]
)
ROW = st.lists(CELL, max_size=8).map(",".join)
NAME = st.sampled_from(["client", "server", "cluster", "y", "x", "client", "", "^x$", "*", '"'])


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    header=st.one_of(st.just("client,server,cluster,y,x"), st.lists(NAME, max_size=7).map(",".join)),
    rows=st.lists(ROW, max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_malformed_csv_is_refused_in_one_sentence_or_read_finite(tmp_path, header, rows, end):
    check_that_it_is_refused_or_finite(tmp_path / "clients.csv", end.join([header, *rows]).encode())


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    prefix=st.sampled_from([b"", HEADER.encode(), GOOD.encode()]),
    noise=st.binary(max_size=60),
    suffix=st.sampled_from(["csv", "parquet"]),
)
def test_arbitrary_bytes_are_refused_in_one_sentence_or_read_finite(tmp_path, prefix, noise, suffix):
    check_that_it_is_refused_or_finite(tmp_path / f"clients.{suffix}", prefix + noise)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.floats(0, 1, exclude_max=True), rest=st.binary(max_size=12))
def test_parquet_cut_short_is_refused_in_one_sentence(tmp_path, kept, rest):
    path = tmp_path / "clients.parquet"
    columns = {"client": ["b", "a"], "server": ["s", "t"], "cluster": ["q", "q"], "y": [1.0, 2.0], "x": [3.0, 4.0]}
    pl.DataFrame(columns).write_parquet(path)
    content = path.read_bytes()
    check_that_it_is_refused_or_finite(path, content[: int(kept * len(content))] + rest)


def check_that_it_is_refused_or_finite(path, content):
    path.write_bytes(content)
    complaints = []
    try:
        federation = Federation.read(path)
    except PgflError as error:
        complaints.append(str(error))
    else:
        assert np.isfinite(federation.features).all()
        assert np.isfinite(federation.targets).all()
        assert all(name == name.strip() != "" for name in federation.client_ids)
    try:
        read_edges(path)
    except PgflError as error:
        complaints.append(str(error))
    for complaint in complaints:
        assert complaint.endswith(".")
        assert "\n" not in complaint
        assert path.name in complaint
