"""A newcomer's and an operator's path with the real helm 3 and 4: install, upgrade, a refused upgrade, rollback, uninstall.

Usage: install.py TOOLS CHART
"""

import base64
import re
import sys
import tempfile

from api import Api

tools, chart = sys.argv[1:]
SMALL = ["-f", f"{chart}/examples/values-small.yaml", "--set-file", "auth.apiKeys=tests/helm/keys.toml"]
# The stand-in has neither schemas nor controllers.
UNCHECKED = ["--disable-openapi-validation"]


def path(helm, folder):
    api = Api("1.33")

    def run(*arguments, refused=None):
        answer = api.helm(f"{tools}/{helm}/helm/helm", folder, *arguments)
        if refused is None:
            assert answer.returncode == 0, f"{helm} {' '.join(arguments)}: {answer.stderr}"
        else:
            assert answer.returncode != 0 and refused in answer.stderr, f"{arguments} must be refused: {answer.stderr}"
        return answer.stdout

    def config():
        return api.objects["ConfigMap", "agents", "memory-strata"]["data"]["strata.toml"]

    def annotation(kind, role):
        return api.objects[kind, "agents", f"memory-strata-{role}"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    run("install", "memory", chart, *SMALL, *UNCHECKED, "--dry-run=server")
    assert not [key for key in api.objects if key[0] != "Namespace"], "a dry run leaves nothing"

    notes = run("install", "memory", chart, *SMALL, *UNCHECKED)
    assert "memory-strata-router.agents:7420" in notes and "for a trial" in notes, notes
    for kind, role in (("Deployment", "router"), ("Deployment", "session"), ("StatefulSet", "working"), ("StatefulSet", "longterm")):
        assert (kind, "agents", f"memory-strata-{role}") in api.objects, f"{role} is missing"
    signing = api.objects["Secret", "agents", "memory-strata-signing"]["data"]["signing-keys"]
    assert re.fullmatch(r"k1:[0-9a-f]{64}\n", base64.b64decode(signing).decode()), "a usable signing key"
    assert 'longterm = "NORMAL"' in config()
    before = annotation("Deployment", "router")

    run("upgrade", "memory", chart, *SMALL, *UNCHECKED, "--set", "modes.longterm=WRITE_OFF", "--set-json", "policy.recall.floor=0.2")
    assert 'longterm = "WRITE_OFF"' in config() and "floor = 0.2" in config()
    assert annotation("Deployment", "router") == before, "modes and policy restart nothing"
    assert api.objects["Secret", "agents", "memory-strata-signing"]["data"]["signing-keys"] == signing, "generated once"

    run("upgrade", "memory", chart, *SMALL, *UNCHECKED, "--set", "modes.longterm=FROZEN", refused="longterm")
    assert 'longterm = "WRITE_OFF"' in config(), "a refused upgrade changes nothing"

    run("upgrade", "memory", chart, *SMALL, *UNCHECKED, "--set", "config.server.max_in_flight=64")
    assert annotation("StatefulSet", "longterm") != before, "what needs a restart brings one"
    run("rollback", "memory", "1")
    assert annotation("StatefulSet", "longterm") == before and 'longterm = "NORMAL"' in config()
    assert len(run("history", "memory", "-o", "yaml").split("- app_version")) == 5, "every step is in the history"

    run("uninstall", "memory")
    left = sorted(key for key in api.objects if key[0] != "Namespace")
    assert left == [("Secret", "agents", "memory-strata-signing")], f"the signing keys alone outlive a release: {left}"
    api.shutdown()


for helm in ("helm3", "helm4"):
    with tempfile.TemporaryDirectory() as folder:
        path(helm, folder)
        print(f"{helm}: installed, upgraded, refused, rolled back, uninstalled")
