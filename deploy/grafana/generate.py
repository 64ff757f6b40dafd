#!/usr/bin/env python3
"""Makes the dashboards: generate.py writes them into the chart, which the links beside this file lead to; generate.py --check fails
when they are not what it would write."""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${source}"}
LONG = "Watch.*|Export.*|Import.*|Backup|Reindex|VerifyConsistency|PutArtifact|GetArtifact"


def panel(title, *queries, unit="short", kind="timeseries", width=8, note="", stacked=False):
    """A panel; queries are (expression, legend)."""
    found = {
        "type": kind,
        "title": title,
        "description": note,
        "datasource": SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                **({"instant": True, "range": False} if kind in ("stat", "table") else {}),
                **({"format": "table"} if kind == "table" else {}),
            }
            for number, (expression, legend) in enumerate(queries)
        ],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "gridPos": {"w": width, "h": 8},
    }
    if kind == "timeseries":
        custom = {"lineWidth": 1, "fillOpacity": 20 if stacked else 5, "stacking": {"mode": "normal" if stacked else "none"}}
        found["fieldConfig"]["defaults"]["custom"] = custom
        found["options"] = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}, "tooltip": {"mode": "multi"}}
    return found


def stat(title, expression, unit="short", note="", good=None, bad=None):
    """A number; green from `good` on, or up to `bad`."""
    found = panel(title, (expression, ""), unit=unit, kind="stat", width=4, note=note)
    found["gridPos"]["h"] = 4
    if good is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": good}]
    elif bad is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": bad}]
    else:
        steps = [{"color": "blue", "value": None}]
    found["fieldConfig"]["defaults"]["thresholds"] = {"mode": "absolute", "steps": steps}
    return found


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": 24, "h": 1}}


def calls(title, where):
    """Rate, errors and duration of what a listener serves."""
    quiet = where + f',rpc_method!~"{LONG}"'
    bucket = f"rate(rpc_server_duration_seconds_bucket{{{quiet}}}[$__rate_interval])"
    return [
        row(title),
        panel("Calls", (f"sum by (rpc_method) (rate(strata_rpc_calls_total{{{where}}}[$__rate_interval]))", "{{rpc_method}}"), unit="reqps", stacked=True),
        panel(
            "Errors by status",
            (f"sum by (rpc_method, rpc_grpc_status_code) (rate(strata_rpc_errors_total{{{where}}}[$__rate_interval]))", "{{rpc_method}} {{rpc_grpc_status_code}}"),
            unit="reqps",
            note="gRPC status codes: 3 INVALID_ARGUMENT, 4 DEADLINE_EXCEEDED, 5 NOT_FOUND, 7 PERMISSION_DENIED, 8 RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 10 ABORTED, 13 INTERNAL, 14 UNAVAILABLE, 16 UNAUTHENTICATED.",
        ),
        panel(
            "Duration",
            (f"histogram_quantile(0.5, sum by (le) ({bucket}))", "p50"),
            (f"histogram_quantile(0.95, sum by (le) ({bucket}))", "p95"),
            (f"histogram_quantile(0.99, sum by (le) ({bucket}))", "p99"),
            unit="s",
            note="Without calls that are meant to be long.",
        ),
        panel("99th percentile by method", (f"histogram_quantile(0.99, sum by (le, rpc_method) ({bucket}))", "{{rpc_method}}"), unit="s", width=12),
        panel("In flight", (f"sum by (rpc_method) (strata_rpc_in_flight{{{where}}})", "{{rpc_method}}"), width=12),
    ]


def process():
    return [
        row("Processes"),
        panel("Resident memory", ("strata_process_resident_memory_bytes", "{{instance}}"), unit="bytes", width=12),
        panel("Open files", ("strata_process_open_files", "{{instance}}"), width=12),
    ]


def store(title, where):
    bucket = f"rate(strata_store_duration_seconds_bucket{{{where}}}[$__rate_interval])"
    return [
        row(title),
        panel("Operations", (f"sum by (store, operation) (rate(strata_store_duration_seconds_count{{{where}}}[$__rate_interval]))", "{{store}} {{operation}}"), unit="ops"),
        panel("Operations by outcome", (f"sum by (store, outcome) (rate(strata_store_duration_seconds_count{{{where}}}[$__rate_interval]))", "{{store}} {{outcome}}"), unit="ops"),
        panel("99th percentile", (f"histogram_quantile(0.99, sum by (le, store, operation) ({bucket}))", "{{store}} {{operation}}"), unit="s"),
    ]


FAILED = 'strata_listener="public",rpc_grpc_status_code=~"2|4|13|14|15"'
OVERVIEW = [
    row("Now"),
    stat("Failing calls", f'sum(rate(strata_rpc_calls_total{{{FAILED}}}[5m])) / sum(rate(strata_rpc_calls_total{{strata_listener="public"}}[5m]))', unit="percentunit", bad=0.001),
    stat("Alerts", 'count(ALERTS{alertname=~"Strata.*",alertstate="firing"}) or vector(0)', bad=1),
    stat("Stores that answer", "sum(strata_store_up) / count(strata_store_up)", unit="percentunit", good=1),
    stat("Index behind", "max(strata_outbox_age_seconds)", unit="s", bad=30),
    stat("Records", "max(strata_records)"),
    stat("Boards", "sum(strata_boards)"),
    *calls("Callers", 'strata_listener="public"'),
    row("Refused before a handler"),
    panel("By reason", ("sum by (reason) (rate(strata_rpc_refused_total[$__rate_interval]))", "{{reason}}"), unit="reqps", width=12),
    panel("Modes other than NORMAL", ('max by (layer, mode) (strata_mode{mode!="NORMAL"}) == 1', "{{layer}} {{mode}}"), width=6, kind="table"),
    panel("Versions", ("count by (version, roles) (strata_build)", "{{version}} {{roles}}"), width=6, kind="table"),
    row("Is memory of use?"),
    panel(
        "Hit rate",
        ("sum(increase(strata_recall_cited_total[1d])) / sum(increase(strata_recall_items_total[1d]))", "cited over recalled, of a day"),
        unit="percentunit",
        note="Rule Q1: what was reported as used, of what was recalled.",
    ),
    panel(
        "Token share",
        ("sum by (section) (rate(strata_context_tokens_total[$__rate_interval])) / ignoring(section) group_left sum(rate(strata_context_tokens_total[$__rate_interval]))", "{{section}}"),
        unit="percentunit",
        stacked=True,
        note="Rule Q3: what assembled contexts are made of.",
    ),
    panel(
        "Pollution",
        ('sum(increase(strata_reviews_total{verdict!="SOUND"}[7d])) / sum(increase(strata_reviews_total[7d]))', "wrong over reviewed, of a week"),
        unit="percentunit",
        note="Rule Q2: only what people reviewed counts.",
    ),
    panel("Reviews", ("sum by (verdict) (increase(strata_reviews_total[1d]))", "{{verdict}}"), stacked=True),
    panel("Recalls", ("sum by (outcome) (rate(strata_recall_calls_total[$__rate_interval]))", "{{outcome}}"), unit="reqps", stacked=True),
    *process(),
]
ROUTER = [
    *calls("Callers", 'strata_listener="public"'),
    row("Refused before a handler"),
    panel("By reason", ("sum by (reason) (rate(strata_rpc_refused_total[$__rate_interval]))", "{{reason}}"), unit="reqps", width=12),
    panel("By quota", ("sum by (quota) (rate(strata_quota_refused_total[$__rate_interval]))", "{{quota}}"), unit="reqps", width=6),
    panel("Answers nobody read", ("sum(rate(strata_rpc_given_up_total[$__rate_interval]))", "given up"), unit="reqps", width=6),
    row("Ownership and promotion"),
    panel("Promotions by the state they reached", ("sum by (state) (rate(strata_promotions_total[$__rate_interval]))", "{{state}}"), unit="ops"),
    panel("Open promotions", ("max(strata_promotions_open)", "open")),
    panel("Ledger", ("min(strata_ledger_up)", "answers"), ("max(strata_ledger_backlog)", "claims that wait")),
    row("Observations"),
    panel("What waits to be observed", ("max(strata_observe_due)", "users"), ("max(strata_observe_waiting)", "observations"), width=12),
    panel("The longest wait", ("max(strata_observe_age_seconds)", "age"), unit="s", width=12),
    row("Contexts"),
    panel("Tokens by section", ("sum by (section) (rate(strata_context_tokens_total[$__rate_interval]))", "{{section}}"), unit="short", width=12, stacked=True),
    panel("Configuration refused", ("max by (file) (strata_config_refused)", "{{file}}"), ("sum by (file, outcome) (increase(strata_config_reloads_total[$__rate_interval]))", "{{file}} {{outcome}}"), width=6),
    panel("Certificates expire in", ("min by (use) (strata_tls_certificate_expires_seconds)", "{{use}}"), unit="s", width=6),
]
SESSION = [
    *calls("Calls of routers", 'strata_listener="internal",rpc_service="strata.session.v1.SessionMemoryService"'),
    *store("Store", 'store=~"redis|sqlite"'),
    row("State"),
    panel("Stores that answer", ('min by (store) (strata_store_up{store=~"redis|session"})', "{{store}}"), width=24),
]
WORKING = [
    *calls("Calls of routers", 'strata_listener="internal",rpc_service="strata.working.v1.WorkingMemoryService"'),
    row("Boards"),
    panel("Boards", ("sum(strata_boards)", "boards")),
    panel("Size", ("sum(strata_boards_size_bytes)", "bytes"), unit="bytes", note="The bound is 1 GiB."),
    panel("Checkpoints fail for", ("max(strata_checkpoint_failing_seconds)", "seconds"), unit="s", note="A crash now loses that much."),
    *store("Checkpoints", 'store=~"redis|sqlite"'),
]
LONGTERM = [
    *calls("Calls of routers", 'strata_listener="internal",rpc_service="strata.longterm.v1.LongTermMemoryService"'),
    row("The gate"),
    panel("Verdicts", ("sum by (outcome) (rate(strata_gate_verdicts_total[$__rate_interval]))", "{{outcome}}"), unit="ops", stacked=True),
    panel("Refused by rule", ('sum by (rule) (rate(strata_gate_verdicts_total{outcome="refused"}[$__rate_interval]))', "{{rule}}"), unit="ops", stacked=True, note="The rules are in docs/rules.md."),
    panel("Records", ("max(strata_records)", "records")),
    row("Recall"),
    panel("Recalls by outcome", ("sum by (outcome) (rate(strata_recall_calls_total[$__rate_interval]))", "{{outcome}}"), unit="reqps", stacked=True),
    panel("Items", ("sum(rate(strata_recall_items_total[$__rate_interval]))", "recalled"), ("sum(rate(strata_recall_cited_total[$__rate_interval]))", "cited"), unit="ops"),
    panel("Embedder and index answer", ("min(strata_embedder_up)", "embedder"), ("min(strata_index_up)", "index")),
    row("Index"),
    panel("Records the index has still to be told of", ("max(strata_outbox_rows)", "records"), note="At 20,000 of one tenant its writes are refused, at 200,000 everyone's."),
    panel("Age of the oldest", ("max(strata_outbox_age_seconds)", "age"), unit="s", note="At 60 s writes are refused."),
    panel("Left of a rebuild", ("max(strata_index_rebuild_left)", "records")),
    row("Maintenance"),
    panel("Steps by rule and action", ("sum by (rule, action, state) (rate(strata_maintenance_steps_total[$__rate_interval]))", "{{rule}} {{action}} {{state}}"), unit="ops", width=24, stacked=True, note="Rules F1 to F10 and R11."),
    row("Erasure"),
    panel("Erasures", ("sum by (state) (increase(strata_erasures_total[1d]))", "{{state}}"), width=12),
    panel("The oldest open one", ("max(strata_erasures_age_seconds)", "age"), unit="s", width=12, note="It waits for a store: the receipt says which."),
    row("SQLite"),
    panel("Writes that wait", ("max by (database) (strata_sqlite_queued)", "{{database}}"), width=12, note="The queue holds 1,024."),
    panel("Size", ("max by (database) (strata_sqlite_size_bytes)", "{{database}}"), unit="bytes", width=12),
    *store("Stores", 'store=~"sqlite|qdrant"'),
]


def placed(panels):
    """Left to right, row by row; ids in order."""
    x = y = height = 0
    for number, found in enumerate(panels, 1):
        at = found["gridPos"]
        if x + at["w"] > 24:
            x, y, height = 0, y + height, 0
        found["id"], at["x"], at["y"] = number, x, y
        x, height = x + at["w"], max(height, at["h"])
    return panels


def dashboard(name, title, panels):
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
    return {
        "uid": f"strata-{name}",
        "title": title,
        "tags": ["strata"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source]},
        "links": [{"type": "dashboards", "title": "Strata", "tags": ["strata"], "asDropdown": False}],
        "annotations": {"list": []},
        "panels": placed(panels),
    }


DASHBOARDS = {
    "overview": dashboard("overview", "Strata", OVERVIEW),
    "router": dashboard("router", "Strata: router", ROUTER),
    "session": dashboard("session", "Strata: session memory", SESSION),
    "working": dashboard("working", "Strata: working memory", WORKING),
    "longterm": dashboard("longterm", "Strata: long-term memory", LONGTERM),
}

if __name__ == "__main__":
    for name, made in DASHBOARDS.items():
        path, text = FOLDER / f"{name}.json", json.dumps(made, indent=1) + "\n"
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != text:
                sys.exit(f"{path} is not what generate.py writes: run it")
        else:
            path.write_text(text)
