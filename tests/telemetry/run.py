"""A server whose traces go to a real OpenTelemetry collector (rotel) and whose metrics are scraped by a real Prometheus: the story
is replayed, then one trace goes from the router over the layers into the stores, and Prometheus answers what was counted.

    python tests/telemetry/run.py --binary target/debug/strata
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 90


def free_port() -> int:
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rotel() -> str:
    import rotel as package

    agent = pathlib.Path(package.__file__).parent / "rotel-agent"
    if not agent.is_file():
        raise SystemExit(f"{agent} is not there")
    return str(agent)


def until(what: str, look):
    """What `look` finds, once it finds something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.5)
    raise SystemExit(f"{what} did not come")


class Processes(contextlib.ExitStack):
    def start(self, name: str, args: list, log: pathlib.Path, env=None) -> subprocess.Popen:
        out = self.enter_context(open(log, "w"))
        process = subprocess.Popen(args, stdout=out, stderr=subprocess.STDOUT, env=env)
        self.callback(self.stop, process)
        print(f"{name} runs", flush=True)
        return process

    @staticmethod
    def stop(process: subprocess.Popen) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def spans(text: str) -> list:
    """Spans of rotel's debug log: blocks of `Trace ID`, `Parent ID`, `ID`, `Name`."""
    found = []
    for block in re.split(r"(?m)^\s*Span #\d+", text)[1:]:
        field = lambda name: (re.search(rf"(?m)^[ \t]*{name}[ \t]*:[ \t]*(.*)$", block) or [None, ""])[1].strip()
        found.append({"trace": field("Trace ID"), "parent": field("Parent ID"), "id": field("ID"), "name": field("Name")})
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    args = parser.parse_args()
    if shutil.which("prometheus") is None:
        raise SystemExit("prometheus is missing: apt-get install prometheus")
    with tempfile.TemporaryDirectory() as name, Processes() as processes:
        folder = pathlib.Path(name)
        otlp, http, metrics, prom, grpc = (free_port() for _ in range(5))
        log = folder / "rotel.log"
        processes.start("collector", [
            rotel(), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{otlp}", "--otlp-http-endpoint", f"127.0.0.1:{http}",
            "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"], log)
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: strata, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n")
        processes.start("prometheus", [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{prom}"], folder / "prometheus.log")
        env = {
            "PATH": os.environ["PATH"],
            "STRATA_TELEMETRY__OTLP_ENDPOINT": f"http://127.0.0.1:{otlp}",
            "STRATA_TELEMETRY__PROMETHEUS_LISTEN": f"127.0.0.1:{metrics}",
            "STRATA_EMBEDDER__KIND": "none",
        }
        server = processes.start("strata", [
            args.binary, "serve", "--listen", f"127.0.0.1:{grpc}", "--data-dir", str(folder / "data")], folder / "strata.log", env)
        until("the server", lambda: "ready" in (folder / "strata.log").read_text())
        story = ROOT / "examples" / "story.en.jsonl"
        # Without a model some expectations about meaning are not met: what is looked at here is what was traced.
        replay = [args.binary, "replay", str(story), "--server", f"http://127.0.0.1:{grpc}", "--quiet"]
        played = subprocess.run(replay, env={"PATH": env["PATH"]}, capture_output=True, text=True, check=False)
        print(played.stdout[-300:] + played.stderr[-300:])

        def complete():
            all_spans = spans(log.read_text(errors="replace"))
            for root in all_spans:
                if root["name"].startswith("strata.longterm.v1.") and not root["parent"]:
                    trace = [span for span in all_spans if span["trace"] == root["trace"]]
                    by_id = {span["id"]: span for span in trace}
                    for store in (span for span in trace if span["name"] == "sqlite write"):
                        chain, at = [], store
                        while at is not None:
                            chain.append(at["name"])
                            at = by_id.get(at["parent"])
                        if chain[-1] == root["name"] and chain[1:].count(root["name"]) >= 2:
                            return chain
            return None

        try:
            chain = until("a trace from the router into a store", complete)
        except SystemExit:
            print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        print("one trace:", " < ".join(chain))

        def asked(query: str):
            url = f"http://127.0.0.1:{prom}/api/v1/query?" + urllib.parse.urlencode({"query": query})
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    return json.load(answer)["data"]["result"]
            except OSError:
                return None

        for query in (
            'sum(strata_rpc_calls_total{strata_listener="public"}) > 0',
            "histogram_quantile(0.99, sum by (le) (rate(rpc_server_duration_seconds_bucket[1m])))",
            "sum(strata_gate_verdicts_total) > 0",
            "strata_records > 0",
            "strata_process_resident_memory_bytes > 0",
        ):
            answer = until(query, lambda query=query: asked(query))
            print(query, "=", answer[0]["value"][1])
        server.send_signal(signal.SIGTERM)
        if server.wait(40) != 0:
            raise SystemExit("the server does not end with 0")
    print("ok")


if __name__ == "__main__":
    main()
