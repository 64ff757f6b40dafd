"""A stand-in for the Kubernetes API: discovery, and objects that are created, read, listed, applied, patched and deleted.

It has what `helm install`, `upgrade`, `rollback` and `uninstall` ask for, and neither admission nor controllers: it shows
that a release goes through, not that pods run.
"""

import base64
import datetime
import http.server
import json
import os
import re
import subprocess
import threading
import urllib.parse
import uuid

import yaml

# Group and version -> (plural, kind, namespaced).
RESOURCES = {
    "v1": [
        ("configmaps", "ConfigMap", True),
        ("secrets", "Secret", True),
        ("services", "Service", True),
        ("serviceaccounts", "ServiceAccount", True),
        ("pods", "Pod", True),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("namespaces", "Namespace", False),
    ],
    "apps/v1": [("deployments", "Deployment", True), ("statefulsets", "StatefulSet", True), ("replicasets", "ReplicaSet", True)],
    "batch/v1": [("jobs", "Job", True), ("cronjobs", "CronJob", True)],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "autoscaling/v2": [("horizontalpodautoscalers", "HorizontalPodAutoscaler", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True)],
    "monitoring.coreos.com/v1": [("servicemonitors", "ServiceMonitor", True), ("prometheusrules", "PrometheusRule", True)],
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/v[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?(?:/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?)?$"
)


def merge(into, patch):
    """A merge patch: null removes."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value
    return into


def fields(message):
    """(number, value) of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
            continue
        length = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        yield tag >> 3, message[at : at + length]
        at += length


def secret_of(raw):
    """Helm sends the Secret of a release in protobuf: the bytes `k8s\\0`, then runtime.Unknown, whose field 2 is the Secret."""
    metadata, secret = {"labels": {}, "annotations": {}}, {"apiVersion": "v1", "kind": "Secret", "data": {}}
    for number, value in fields(dict(fields(raw[4:]))[2]):
        if number == 1:
            for of, inner in fields(value):
                if of == 1:
                    metadata["name"] = inner.decode()
                elif of in (11, 12):
                    pair = dict(fields(inner))
                    metadata["labels" if of == 11 else "annotations"][pair[1].decode()] = pair.get(2, b"").decode()
        elif number == 2:
            pair = dict(fields(value))
            secret["data"][pair[1].decode()] = base64.b64encode(pair.get(2, b"")).decode()
        elif number == 3:
            secret["type"] = value.decode()
    return secret | {"metadata": metadata}


class Api(http.server.ThreadingHTTPServer):
    """Listens on a free port of loopback; `objects` maps (kind, namespace, name) to what is there."""

    daemon_threads = True

    def __init__(self, version):
        super().__init__(("127.0.0.1", 0), Handler)
        self.version, self.objects, self.lock, self.revision = version, {}, threading.RLock(), 0
        self.objects["Namespace", "", "agents"] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "agents"}}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def helm(self, binary, folder, *arguments):
        """Runs helm against this API, with `folder` for its own files."""
        kubeconfig = os.path.join(folder, "kubeconfig")
        with open(kubeconfig, "w") as file:
            file.write(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
                f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{self.server_port}'}}}}]\n"
                "users: [{name: u, user: {token: t}}]\n"
                "contexts: [{name: c, context: {cluster: c, user: u, namespace: agents}}]\n"
            )
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "KUBECONFIG": kubeconfig}
        return subprocess.run([binary, *arguments], env=environment, capture_output=True, text=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, body, status=200):
        encoded = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def refuse(self, code, reason, message):
        self.answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code}, code)

    def body(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.headers.get("Content-Type", "")
        if "protobuf" in kind:
            return secret_of(raw)
        return yaml.safe_load(raw) if "yaml" in kind else json.loads(raw or b"{}")

    def discovery(self, path):
        if path == "/version":
            major, minor = self.server.version.split(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{self.server.version}.0", "platform": "linux/amd64"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            groups = [{"groupVersion": group, "version": group.split("/")[1]} for group in RESOURCES if "/" in group]
            named = [{"name": g["groupVersion"].split("/")[0], "versions": [g], "preferredVersion": g} for g in groups]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        if path.startswith("/openapi/v3"):
            return {"paths": {}}
        return None

    def serve(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        body = self.body()
        known = self.discovery(url.path)
        if known is not None:
            return self.answer(known)
        found = PATH.match(url.path.rstrip("/"))
        version = found and (found["core"] or found["group"])
        if version not in RESOURCES:
            return self.refuse(404, "NotFound", url.path)
        if not found["plural"]:
            resources = [
                {"name": plural, "singularName": kind.lower(), "namespaced": spaced, "kind": kind, "verbs": VERBS}
                for plural, kind, spaced in RESOURCES[version]
            ]
            return self.answer({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
        kind = next((kind for plural, kind, _ in RESOURCES[version] if plural == found["plural"]), None)
        if not kind:
            return self.refuse(404, "NotFound", url.path)
        with self.server.lock:
            self.objects_of(version, kind, found["namespace"] or "", found["name"], query, body)

    def objects_of(self, version, kind, namespace, name, query, body):
        objects = self.server.objects
        if self.command == "GET" and not name:
            return self.answer({"kind": f"{kind}List", "apiVersion": version, "metadata": {}, "items": self.matching(kind, namespace, query)})
        if self.command == "POST":
            name = body["metadata"]["name"]
            if (kind, namespace, name) in objects:
                return self.refuse(409, "AlreadyExists", f'{kind} "{name}" already exists')
        old = objects.get((kind, namespace, name))
        applied = "apply" in self.headers.get("Content-Type", "")
        if old is None and self.command != "POST" and not applied:
            return self.refuse(404, "NotFound", f'{kind} "{name}" not found')
        if self.command == "GET":
            return self.answer(old)
        if self.command == "DELETE":
            if "dryRun" not in query:
                del objects[kind, namespace, name]
            return self.answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})
        # What is applied is the whole of what helm owns of the object.
        new = merge(json.loads(json.dumps(old)), body) if self.command == "PATCH" and not applied else body
        self.server.revision += 1
        new.setdefault("apiVersion", version)
        new.setdefault("kind", kind)
        new["metadata"] |= {"name": name, "resourceVersion": str(self.server.revision)} | ({"namespace": namespace} if namespace else {})
        kept = (old or {}).get("metadata", {})
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for key, first in (("uid", str(uuid.uuid4())), ("creationTimestamp", now)):
            new["metadata"][key] = kept.get(key, first)
        if "dryRun" not in query:
            objects[kind, namespace, name] = new
        self.answer(new, 201 if old is None else 200)

    def matching(self, kind, namespace, query):
        wanted = [part.replace("==", "=").split("=", 1) for part in query.get("labelSelector", "").split(",") if "=" in part]
        return [
            found
            for (of, space, _), found in sorted(self.server.objects.items())
            if of == kind
            and namespace in ("", space)
            and all(found["metadata"].get("labels", {}).get(key) == value for key, value in wanted if not key.endswith("!"))
        ]

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve
