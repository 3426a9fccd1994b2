"""The alert rules and the board of `graphmem/service/monitoring`: their expressions are read, the rules are tried.

Not covered, for want of a Grafana: that it draws the board.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import pytest
import typer.main
import yaml
from support.waiting import TIMEOUT
from typer.testing import CliRunner

import graphmem.service
from graphmem.chat_worker import Recalled
from graphmem.cli.app import app
from graphmem.commands.types import Outcome, OutcomeType, ReaffirmFact
from graphmem.model import Scope
from graphmem.plugins import Usage
from graphmem.queries.gauges import Gauges
from graphmem.service.metrics import ServiceMetrics
from graphmem.stores.ledger.jobs import JobCount

FOLDER = Path(graphmem.service.__file__).parent / "monitoring"
ALERTS = FOLDER / "alerts.yml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]
}
BOARD: dict[str, Any] = json.loads((FOLDER / "board.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def counted() -> ServiceMetrics:
    """Metrics with a value for each."""
    gauges = Gauges(
        {("fact", "short_term"): 1},
        1.0,
        3.0,
        1,
        1,
        {"vectors": 0},
        {"vectors": 0},
        [JobCount("facts", "waiting", 1, 1.0)],
        {"webhook:orders": 0.0},
        {},
    )
    metrics = ServiceMetrics(lambda: gauges)
    metrics.on_request("GET", "/search", 200, 0.1, "user")
    metrics.on_recall(Recalled(failure=TimeoutError()))
    metrics.on_commit([ReaffirmFact("id", Scope("ana"))], [Outcome(OutcomeType.NONE, "id")], [])
    metrics.on_chat("on; memories=1", 0.1)
    metrics.on_search(0.1, ["vectors"])
    metrics.on_model_call("facts", 0.1, Usage(), "LLMUnavailable")
    asyncio.run(metrics.text())
    metrics.close()
    return metrics


# The metrics of the service and their labels; histograms have the label "le" in their buckets.
METRICS: dict[str, set[str]] = {}
# As series of Prometheus, with the labels that it adds when it scrapes.
SERIES: dict[str, set[str]] = {}
for metric in counted().registry.collect():
    for sample in metric.samples:
        SERIES[sample.name] = {*sample.labels, "instance", "job"}
    METRICS[metric.name + ("_total" if metric.type == "counter" else "")] = set(metric.samples[0].labels)


# --- the expressions -----------------------------------------------------------------------------------------------


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each series of an expression, with the labels by which it is selected, and again with those of its groups."""
    found: list[tuple[promql_parser.VectorSelector, set[str]]] = []

    def visit(node: promql_parser.Expr, grouped: frozenset[str] = frozenset()) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append((node.vector_selector, {*grouped}))
        elif isinstance(node, promql_parser.VectorSelector):
            found.append((node, {*grouped}))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            promql_parser.walk(node.expr, partial(visit, grouped=grouped | {*node.modifier.labels}))

    promql_parser.walk(promql_parser.parse(expression), visit)
    assert found
    for selector, grouped in found:
        yield selector.name, grouped | {matcher.name for matcher in selector.matchers.matchers}


def of_board(expression: str) -> str:
    """An expression as Grafana sends it: with values in place of its variables."""
    return expression.replace("$__rate_interval", "5m").replace("$instance", ".*")


EXPRESSIONS = [pytest.param(rule["expr"], id=name) for name, rule in RULES.items()] + [
    pytest.param(of_board(target["expr"]), id=panel["title"]) for panel in PANELS for target in panel["targets"]
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_uses_metrics_and_labels_that_the_service_has(expression: str) -> None:
    for name, labels in used(expression):
        assert name in SERIES
        assert labels <= SERIES[name]


def test_the_board_shows_every_metric() -> None:
    shown = {
        name.removesuffix("_bucket").removesuffix("_count")
        for panel in PANELS
        for target in panel["targets"]
        for name, _ in used(of_board(target["expr"]))
    }
    assert shown == METRICS.keys()


# --- the board -----------------------------------------------------------------------------------------------------


def test_panels_have_titles_units_legends_and_the_data_source_that_the_reader_chose() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert [one["type"] for one in BOARD["templating"]["list"] if one["name"] == "datasource"] == ["datasource"]
    for panel in PANELS:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in {
            "bytes",
            "none",
            "ops",
            "percentunit",
            "reqps",
            "s",
            "short",
        }
        assert panel["datasource"] == chosen
        for target in panel["targets"]:
            assert target["datasource"] == chosen
            # A name in the legend is a label that the result of the expression has.
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert any(label in labels for _, labels in used(of_board(target["expr"])))
    titles = [panel["title"] for panel in BOARD["panels"]]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert (len(set(titles)), len(set(ids))) == (len(titles), len(ids))


def test_panels_fill_the_grid_without_overlaps() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        covered = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not covered & cells, panel["title"]
        cells |= covered
    width, height = 24, max(y for _, y in cells) + 1
    assert cells == {(x, y) for x in range(width) for y in range(height)}


# --- the rules -----------------------------------------------------------------------------------------------------


def test_every_alert_has_a_severity_and_says_what_is_wrong_and_what_to_do() -> None:
    for name, rule in RULES.items():
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, name
        assert rule["annotations"].keys() == {"summary", "description", "remedy"}, name


def test_remedies_name_commands_that_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = {
        name for rule in RULES.values() for name in re.findall(r"`graphmem ([\w-]+)", rule["annotations"]["remedy"])
    }
    assert named
    assert named <= commands.keys()


def test_the_command_line_prints_the_rules(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", "--alerts", "--home", str(tmp_path / "home")])
    assert result.exit_code == 0
    assert result.stdout == ALERTS.read_text("utf-8")
    assert not (tmp_path / "home").exists()


class Case(NamedTuple):
    """Series that make one alert fire, and the same with values that just do not.

    `series`: names to values as promtool writes them, one for each `interval`; `{}` is `fires` or one of `silent`.
    `at`: a time at which the alert has held for longer than its `for`, and for less than twice as long.
    `value`: the alert's value as its annotations show it; `labels`: those that it gets from the series.
    """

    series: dict[str, str]
    fires: str
    silent: tuple[str, ...]
    at: str
    value: str = ""
    labels: dict[str, str] = {}
    interval: str = "1m"


def searches(fast: str, slow: str) -> dict[str, str]:
    """100 searches a minute: `{}` of them within `fast` seconds, all within `slow`."""
    bucket = "graphmem_search_duration_seconds_bucket"
    return {f'{bucket}{{le="{fast}"}}': "0+{}x99"} | dict.fromkeys(
        [f'{bucket}{{le="{slow}"}}', f'{bucket}{{le="+Inf"}}'], "0+100x99"
    )


CASES = {
    "SearchSlow": Case(searches("0.5", "1"), "98", ("99.5",), "8m", "750ms"),
    "SearchTarget": Case(searches("0.1", "0.25"), "98", ("99.5",), "80m", "175ms"),
    "StoreGrowth": Case({"graphmem_memories": "100+{}x760"}, "0.008", ("0.006",), "750h", "106", interval="1h"),
    "ShortTermGrowsFast": Case(
        {'graphmem_memories{layer="short_term", kind="fact"}': "{}x190", "graphmem_retention_ratio": "1+0x190"},
        "100+2", ("100+1",), "150m", "120", {"layer": "short_term"},
    ),
    "LowRetention": Case({"graphmem_retention_ratio": "{}x100"}, "0.29", ("0.3",), "25h", "29%", interval="15m"),
    "DeliveryBehind": Case(
        {'graphmem_pending_changes{projection="graph"}': "{}x30"},
        "40+0", ("40-1", "0+0"), "20m", "40", {"projection": "graph"},
    ),
    "JobsStuck": Case(
        {'graphmem_jobs_oldest_seconds{kind="facts"}': "{}x30"},
        "3601", ("3600",), "20m", "1h 0m 1s", {"kind": "facts"},
    ),
    "SearchDegraded": Case(
        {'graphmem_degraded_total{arm="graph"}': "0+{}x30"}, "1", ("0",), "15m", labels={"arm": "graph"}
    ),
    "Errors": Case(
        {
            'graphmem_requests_total{route="/search", status="200"}': "0+97x30",
            'graphmem_requests_total{route="/search", status="404"}': "0+1x30",
            'graphmem_requests_total{route="/search", status="503"}': "0+{}x30",
        },
        "3", ("1.9",), "15m", "2.97%",
    ),
    "ModelFailing": Case(
        {
            'graphmem_model_errors_total{operation="facts", error="timeout"}': "0+{}x40",
            'graphmem_model_duration_seconds_count{operation="facts"}': "0+10x40",
            'graphmem_model_duration_seconds_count{operation="embed"}': "0+90x40",
        },
        "3", ("1.9",), "25m", "30%", {"operation": "facts"},
    ),
}  # fmt: skip


def promtool(*arguments: str | Path) -> None:
    """Runs promtool, which has to succeed. Skips the test where there is none."""
    if not shutil.which("promtool"):
        pytest.skip("no promtool here: Debian's package `prometheus` has it")
    process = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True, timeout=TIMEOUT)
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.thorough
def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", ALERTS)


def test_every_alert_is_tried() -> None:
    assert CASES.keys() == RULES.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_after_its_time_and_not_below_its_limit(name: str, tmp_path: Path) -> None:
    case, rule = CASES[name], RULES[name]

    def rendered(template: str) -> str:
        for label, value in case.labels.items():
            template = template.replace(f"{{{{ $labels.{label} }}}}", value)
        return re.sub(r"{{ \$value \| \w+ }}", case.value, template)

    fired = {
        "exp_labels": rule["labels"] | case.labels,
        "exp_annotations": {key: rendered(text) for key, text in rule["annotations"].items()},
    }
    late = promql_parser.parse_duration(case.at)
    early = late - promql_parser.parse_duration(rule["for"])

    def tried(value: str, expected: dict[float, list[Any]]) -> dict[str, Any]:
        return {
            "interval": case.interval,
            "input_series": [
                {"series": series, "values": values.format(value)} for series, values in case.series.items()
            ],
            "alert_rule_test": [
                {"eval_time": f"{seconds:.0f}s", "alertname": name, "exp_alerts": alerts}
                for seconds, alerts in expected.items()
            ],
        }

    file = tmp_path / "test.yml"
    content = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": case.interval,
        "tests": [
            tried(case.fires, {early.total_seconds(): [], late.total_seconds(): [fired]}),
            *(tried(value, {late.total_seconds(): []}) for value in case.silent),
        ],
    }
    file.write_text(yaml.safe_dump(content), "utf-8")
    promtool("test", "rules", file)
