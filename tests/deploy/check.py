"""Holds rules, dashboards, runbooks, compose file and collector configuration against what there is.

Usage: check.py STRATA PROMTOOL
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

strata, promtool = sys.argv[1:]
ROOT = pathlib.Path(__file__).parents[2]
DEPLOY, RUNBOOKS = ROOT / "deploy", ROOT / "docs/runbooks"
problems = []

# Labels that Prometheus gives, and those of its own series.
OUTSIDE = {"le", "instance", "job", "alertname", "alertstate"}


def inventory():
    """Prometheus name -> labels, from the page that is made from the inventory; histograms by the series they have."""
    names = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) < 5 or not cells[0].startswith("`"):
            continue
        name, kind = cells[0].strip("`"), cells[2]
        labels = {label.replace(".", "_") for label in re.findall(r"`([^`]+)`", cells[4])}
        for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
            names[name + suffix] = labels
    return names


def values():
    """Label -> the values it can have, of labels whose values are written down somewhere."""
    protos = {path: path.read_text() for path in (ROOT / "proto").rglob("*.proto")}
    services = set()
    for text in protos.values():
        package = re.search(r"^package ([\w.]+);", text, re.M)[1]
        services |= {f"{package}.{name}" for name in re.findall(r"^service (\w+)", text, re.M)}
    reasons = re.findall(r"ERROR_REASON_(\w+) = [1-9]", protos[ROOT / "proto/strata/common/v1/error_reason.proto"])
    modes = json.loads((ROOT / "helm/strata/values.schema.json").read_text())["definitions"]["mode"]["enum"]
    return {
        "reason": set(reasons),
        "rpc_service": services,
        "rpc_grpc_status_code": {str(code) for code in range(17)},
        "strata_listener": {"public", "internal"},
        "mode": set(modes),
        "layer": {"working", "session", "longterm"},
        "verdict": set(re.findall(r"VERDICT_([A-Z_]+) = [1-9]", "".join(protos.values()))),
        "roles": {"router", "working", "session", "longterm"},
        "rule": set(re.findall(r"\b[A-Z]\d+\b", (ROOT / "docs/rules.md").read_text())),
    }


def check_values(where, expression):
    for label, matcher, value in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', expression):
        if label not in POSSIBLE or "." in value and "*" in value:
            continue
        for one in value.split("|") if "~" in matcher else [value]:
            if one not in POSSIBLE[label]:
                problems.append(f"{where}: {label} is never {one}")


def check_expression(where, expression, known):
    check_values(where, expression)
    text = re.sub(r'"[^"]*"', '""', expression)
    for name in set(re.findall(r"\b((?:strata|rpc)_[a-z0-9_]+)\b(?!\s*=)(?=[^,)]*)", re.sub(r"\{[^}]*\}|by \([^)]*\)|(?:on|ignoring) ?\([^)]*\)", "", text))):
        if name not in known:
            problems.append(f"{where}: there is no metric {name}")
    for name, matchers in re.findall(r"([a-z_:0-9A-Z]+)\{([^}]*)\}", text):
        for label in re.findall(r"([a-z_]+)\s*[=!]", matchers):
            if name in known and label not in known[name] | OUTSIDE:
                problems.append(f"{where}: {name} has no label {label}")
    every = set().union(*known.values()) | OUTSIDE
    for group in re.findall(r"(?:by|on|ignoring) ?\(([^)]*)\)", text):
        for label in re.findall(r"[a-z_]+", group):
            if label not in every:
                problems.append(f"{where}: no metric has the label {label}")


def rules(known):
    found = yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text())
    every = [rule for group in found["groups"] for rule in group["rules"]]
    pages = set()
    for rule in every:
        check_expression(f"rules.yaml {rule.get('alert') or rule['record']}", rule["expr"], known)
        if "alert" not in rule:
            continue
        page = rule["annotations"]["runbook_url"]
        pages.add(pathlib.Path(page).name)
        if not (ROOT / page).exists():
            problems.append(f"{rule['alert']}: its page {page} is missing")
        if rule["labels"]["severity"] not in ("page", "ticket"):
            problems.append(f"{rule['alert']}: who is to be told?")
    there = {path.name for path in RUNBOOKS.glob("Strata*.md")}
    problems.extend(f"docs/runbooks/{page} is of no alert" for page in sorted(there - pages))
    listed = (RUNBOOKS / "README.md").read_text()
    problems.extend(f"docs/runbooks/README.md does not list {page}" for page in sorted(there) if page not in listed)

    # Every alert is seen to fire.
    tests = yaml.safe_load((DEPLOY / "prometheus/rules_test.yaml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    problems.extend(f"no test sees {rule['alert']} fire" for rule in every if "alert" in rule and rule["alert"] not in fired)
    for test in tests:
        for series in test["input_series"]:
            check_expression(f"rules_test.yaml {test['name']}", series["series"], known)


def dashboards(known):
    """Names and labels as for rules; that Prometheus can read each expression, it says itself."""
    made = subprocess.run([sys.executable, DEPLOY / "grafana/generate.py", "--check"], capture_output=True, text=True)
    if made.returncode:
        problems.append(made.stderr.strip())
    expressions = []
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        board = json.loads(path.read_text())
        ids = [panel["id"] for panel in board["panels"]]
        if len(ids) != len(set(ids)):
            problems.append(f"{path.name}: ids of panels are there twice")
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                check_expression(f"{path.name} {panel['title']}", target["expr"], known)
                expressions.append(target["expr"].replace("$__rate_interval", "5m"))
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    if label not in set().union(*known.values()) | OUTSIDE:
                        problems.append(f"{path.name} {panel['title']}: no metric has the label {label}")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": [{"name": "d", "rules": [{"record": f"d:{n}", "expr": e} for n, e in enumerate(expressions)]}]}, file)
        file.flush()
        read = subprocess.run([promtool, "check", "rules", file.name], capture_output=True, text=True)
        if read.returncode:
            problems.append(f"dashboards: {read.stderr}")


def compose():
    """Every strata service of the compose file has a configuration that is valid."""
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "strata.toml")
        with open(config, "w") as file:
            keys = subprocess.run([strata, "config", "new-key", "--id", "me", "--tenant", "acme"], capture_output=True, text=True)
            file.write((DEPLOY / "config/strata.toml").read_text() + keys.stdout)
        for name, service in found["services"].items():
            if service["image"] != "strata:latest":
                continue
            environment = {key: str(value) for key, value in service["environment"].items()} | {"STRATA_SIGNING_KEYS": "k1:" + "ab" * 32}
            arguments = [config if argument == "/etc/strata/strata.toml" else argument for argument in service["command"][1:]]
            answer = subprocess.run([strata, "config", "check", *arguments], env=environment, capture_output=True, text=True)
            if answer.returncode:
                problems.append(f"compose.yaml {name}: {answer.stderr.strip()}")
        # Files that are mounted are there.
        for name, service in found["services"].items():
            for mounted in service.get("volumes", []):
                source = mounted.split(":")[0]
                if source.startswith(".") and not (DEPLOY / source).exists():
                    problems.append(f"compose.yaml {name}: {source} is missing")


def collector():
    found = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
    for name, pipeline in found["service"]["pipelines"].items():
        for kind in ("receivers", "processors", "exporters"):
            problems.extend(f"otel-collector.yaml {name}: {part} is not defined" for part in pipeline[kind] if part not in found[kind])


def links():
    """Relative links of the pages of operation lead somewhere."""
    for page in [ROOT / "README.md", ROOT / "docs/operations.md", ROOT / "helm/strata/README.md", *RUNBOOKS.glob("*.md")]:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            if not (page.parent / target).exists():
                problems.append(f"{page.relative_to(ROOT)}: {target} is missing")
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text):
            to = (page.parent / target if target else page).read_text()
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", to, re.M)}
            if anchor not in anchors:
                problems.append(f"{page.relative_to(ROOT)}: {target}#{anchor} is missing")


POSSIBLE = values()
known = inventory()
rules(known)
dashboards(known)
compose()
collector()
links()
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
