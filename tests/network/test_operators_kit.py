"""The dashboard, the image and the compose file name what exists: metrics, commands, ports, exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from pgfl.network.protocol.identity import SITE_CERTIFICATE
from pgfl.network.site.reports import metrics_page
from pgfl.network.site.settings import Listening, load_site
from pgfl.network.site.store import STORE, SiteStore
from tests.command_line import ROOT, run
from tests.network.test_metrics import FIGURES

EXAMPLES = ROOT / "examples"
COMPOSE = yaml.safe_load((EXAMPLES / "docker" / "compose.yaml").read_text())
SITES = ("north", "south", "west")


def test_every_expression_of_the_dashboard_asks_for_metrics_that_a_site_serves():
    board = json.loads((EXAMPLES / "grafana" / "pgfl-sites.json").read_text())
    served = set(re.findall(r"# TYPE (pgfl_\w+)", metrics_page(FIGURES)))
    asked = set()
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            asked |= set(re.findall(r"pgfl_\w+", target["expr"]))
            assert target["expr"].count("(") == target["expr"].count(")")
    assert asked <= served
    assert served - asked == {"pgfl_phase"}, "a metric without a panel"
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    names = {variable["name"] for variable in board["templating"]["list"]}
    assert names == {"datasource", "site"}


def test_prometheus_scrapes_the_address_that_site_toml_suggests():
    scraped = yaml.safe_load((EXAMPLES / "grafana" / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = scraped[0]["static_configs"][0]["targets"]
    from pgfl.network.settings import SITE

    assert f'metrics = "{target}"' in SITE


def instructions():
    """Of the Dockerfile, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (EXAMPLES / "docker" / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def test_the_image_copies_files_that_exist_and_runs_as_nobody_in_particular():
    kinds = [kind for kind, _ in instructions()]
    assert kinds[:2] == ["ARG", "FROM"]
    assert set(kinds) <= {"ARG", "FROM", "COPY", "RUN", "USER", "WORKDIR", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    for kind, rest in instructions():
        if kind == "COPY":
            *sources, target = rest.split()
            assert all((ROOT / source).exists() for source in sources)
            assert len(sources) == 1 or target.endswith("/")
    assert kinds.index("USER") > kinds.index("RUN"), "root installs, pgfl runs"
    assert dict(instructions())["USER"] != "root"
    name, base = dict(instructions())["ARG"].split("=")
    assert dict(instructions())["FROM"] == f"${{{name}}}"
    assert not re.match(r".*:latest|[^:]*$", base), "a pinned base"
    assert json.loads(dict(instructions())["ENTRYPOINT"]) == ["pgfl"]


def test_the_three_sites_are_started_with_commands_and_ports_that_exist():
    assert set(COMPOSE["services"]) == {*SITES, "set-up"}
    published = []
    for site in SITES:
        service = COMPOSE["services"][site]
        assert run(*service["command"][:2], "--help").code == 0
        assert service["command"][2:] == ["--home", "/srv/pgfl"]
        assert service["volumes"] == [f"./sites/{site}:/srv/pgfl"]
        assert service["restart"].startswith("on-failure:"), "0 is the end of training, and 2 does not mend itself"
        published += [port.split(":")[0] for port in service["ports"]]
        assert [port.split(":")[1] for port in service["ports"]] == ["9094"], "as listen of site.toml"
    assert len(set(published)) == len(published)


@pytest.mark.proof
def test_the_set_up_makes_three_sites_that_are_linked_and_healthy_to_be_asked(tmp_path):
    command = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{command}:{os.environ['PATH']}"}
    script = EXAMPLES / "docker" / "set-up"
    done = subprocess.run(["sh", script, tmp_path], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    for site in SITES:
        settings = load_site(tmp_path / site / "site.toml")
        asked = COMPOSE["services"][site]["healthcheck"]["test"][-1]
        assert f"http://{settings.listen.metrics}/health" in asked
        shown = x509.load_pem_x509_certificate((tmp_path / site / SITE_CERTIFICATE).read_bytes())
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert site in set(names.get_values_for_type(x509.DNSName))
        with closing(SiteStore(tmp_path / site / STORE)) as store:
            assert {name: near.address for name, near in store.neighbours().items()} == {
                other: f"{other}:9094" for other in SITES if other != site
            }
    assert shlex.split(COMPOSE["services"]["set-up"]["entrypoint"][0]) == ["/bin/sh"]


def rendered_chart(release="north"):
    """The chart's documents; its template uses nothing but the release's name and values, so no Helm is needed."""
    chart = EXAMPLES / "helm"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    known = {".Release.Name": release, **{f".Values.{name}": str(value) for name, value in values.items()}}
    text = (chart / "templates" / "site.yaml").read_text()
    text = re.sub(r"\{\{ (\S+) \}\}", lambda found: known[found[1]], text)
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_chart_runs_one_site_with_the_ports_and_the_probe_of_its_settings():
    chart = rendered_chart()
    (container,) = chart["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert chart["StatefulSet"]["spec"]["replicas"] == 1, "two processes never serve one folder"
    assert run(*container["args"][:2], "--help").code == 0
    assert [port["port"] for port in chart["Service"]["spec"]["ports"]] == [Listening().port]
    assert [port["containerPort"] for port in container["ports"]] == [Listening().port]
    assert chart["Service"]["spec"]["selector"] == chart["StatefulSet"]["spec"]["selector"]["matchLabels"]
    asked = container["readinessProbe"]["exec"]["command"][-1]
    assert COMPOSE["services"]["north"]["healthcheck"]["test"][-1].split("/health")[0] in asked
    user = chart["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"--uid {user} " in dict(instructions())["RUN"]
    assert container["volumeMounts"][0]["mountPath"] == dict(instructions())["WORKDIR"]
