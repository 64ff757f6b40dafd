"""Four processes on a real Redis, driven by a client generated from the protos: what an agent backend in another language
sees. Run by `make test`; needs grpcio-tools and redis-server.

    python tests/python/e2e.py --binary target/debug/strata
"""

import argparse
import importlib
import pathlib
import shutil
import sys
import tempfile
import unittest
import uuid

from cluster import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]


def generate(target: pathlib.Path) -> None:
    """Stubs straight from proto/: no file of ours is between the protos and the client."""
    from grpc_tools import protoc
    import grpc_tools

    include = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    protos = [str(p) for p in sorted((ROOT / "proto").rglob("*.proto"))]
    args = ["protoc", f"-I{ROOT / 'proto'}", f"-I{include}", f"--python_out={target}", f"--grpc_python_out={target}"]
    if protoc.main(args + protos) != 0:
        raise SystemExit("protoc failed")
    sys.path.insert(0, str(target))


BINARY = ""


class FourProcesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import grpc

        cls.grpc = grpc
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="strata-e2e-"))
        generate(cls.folder)
        module = importlib.import_module
        cls.working = module("strata.working.v1.working_pb2")
        cls.session = module("strata.session.v1.session_pb2")
        cls.longterm = module("strata.longterm.v1.longterm_pb2")
        cls.router = module("strata.router.v1.router_pb2")
        stubs = {
            "working": module("strata.working.v1.working_pb2_grpc").WorkingMemoryServiceStub,
            "session": module("strata.session.v1.session_pb2_grpc").SessionMemoryServiceStub,
            "longterm": module("strata.longterm.v1.longterm_pb2_grpc").LongTermMemoryServiceStub,
            "router": module("strata.router.v1.router_pb2_grpc").RouterServiceStub,
        }
        cls.cluster = Cluster(BINARY, cls.folder, ["acme", "umbrella"])
        cls.cluster.start()
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{cls.cluster.ports['router']}")
        for name, stub in stubs.items():
            setattr(cls, f"{name}_stub", stub(cls.channel))
        cls.stubs = stubs
        cls.auth = (("authorization", f"Bearer {cls.cluster.keys['acme']}"),)
        cls.foreign = (("authorization", f"Bearer {cls.cluster.keys['umbrella']}"),)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        codes = cls.cluster.stop()
        if any(codes.values()):
            print(cls.cluster.logs(), file=sys.stderr)
        shutil.rmtree(cls.folder, ignore_errors=True)
        if any(codes.values()):
            raise AssertionError(f"exit codes after SIGTERM: {codes}")

    def reason(self, error) -> str:
        """`ErrorInfo.reason` of a failed call, read as a client reads it."""
        from google.rpc import error_details_pb2, status_pb2

        for key, value in error.trailing_metadata():
            if key == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                for detail in status.details:
                    info = error_details_pb2.ErrorInfo()
                    if detail.Unpack(info):
                        self.assertEqual(info.domain, "strata")
                        return info.reason
        self.fail(f"no ErrorInfo in {error}")

    def refused(self, call, request, metadata, code, reason):
        with self.assertRaises(self.grpc.RpcError) as caught:
            call(request, metadata=metadata, timeout=10)
        self.assertEqual(caught.exception.code(), code, caught.exception)
        self.assertEqual(self.reason(caught.exception), reason)

    def append(self, user, session, *texts, request_id=""):
        turns = [self.session.NewTurn(role=self.session.ROLE_USER, text=text) for text in texts]
        return self.session_stub.AppendTurns(
            self.session.AppendTurnsRequest(user_id=user, session_id=session, turns=turns, request_id=request_id),
            metadata=self.auth, timeout=10,
        )

    def statement(self, session, seq, text, **more):
        turn = self.longterm.TurnRef(session_id=session, seq=seq)
        return self.longterm.Statement(
            kind=self.longterm.KIND_FACT, content=text, source=self.longterm.SOURCE_USER_STATEMENT, source_quote=text,
            source_ref=self.longterm.SourceRef(turn=turn), trigger=self.longterm.TRIGGER_USER_REQUEST, **more,
        )

    def remember(self, user, session, seq, text, **more):
        return self.longterm_stub.Remember(
            self.longterm.RememberRequest(user_id=user, statement=self.statement(session, seq, text, **more)),
            metadata=self.auth, timeout=10,
        ).result

    def test_c001_a_changed_value_is_answered_new_with_the_old_one_in_its_history(self):
        user = f"u-{uuid.uuid4()}"
        for session, value in (("s1", "A-100"), ("s2", "B-200")):
            text = f"From now on, my cost centre is {value}."
            self.assertEqual(list(self.append(user, session, text).seqs), [1])
            result = self.remember(user, session, 1, text, key="work.cost_centre")
            self.assertEqual(result.outcome, self.longterm.OUTCOME_ACTIVE, result)
        found = self.longterm_stub.LookupMemory(
            self.longterm.LookupMemoryRequest(user_id=user, key="work.cost_centre"), metadata=self.auth, timeout=10)
        self.assertEqual(len(found.items), 1)
        self.assertIn("B-200", found.items[0].memory.content)
        history = self.longterm_stub.GetHistory(
            self.longterm.GetHistoryRequest(user_id=user, key="work.cost_centre"), metadata=self.auth, timeout=10)
        self.assertEqual([m.status for m in history.memories], [self.longterm.STATUS_SUPERSEDED, self.longterm.STATUS_ACTIVE])
        context = self.router_stub.AssembleContext(
            self.router.AssembleContextRequest(user_id=user, input="Which cost centre is mine?"), metadata=self.auth, timeout=10)
        self.assertIn("B-200", context.text)
        self.assertNotIn("A-100", context.text)

    def test_c058_a_repeated_append_is_stored_once(self):
        user, request_id = f"u-{uuid.uuid4()}", str(uuid.uuid4())
        first = self.append(user, "s", "hello there", request_id=request_id)
        again = self.append(user, "s", "hello there", request_id=request_id)
        self.assertEqual(list(first.seqs), list(again.seqs))
        with self.assertRaises(self.grpc.RpcError) as caught:
            self.append(user, "s", "another text", request_id=request_id)
        self.assertEqual(self.reason(caught.exception), "REQUEST_ID_REUSED")

    def test_a17_another_tenant_user_or_task_is_refused(self):
        user, task = f"u-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
        goal = self.working.Goal(sentence="Book the invoice.", acceptance="It is booked.")
        self.working_stub.CreateTask(
            self.working.CreateTaskRequest(user_id=user, task_id=task, goal=goal), metadata=self.auth, timeout=10)
        get = self.working_stub.GetTask
        code = self.grpc.StatusCode
        self.refused(get, self.working.GetTaskRequest(user_id=user + "x", task_id=task), self.auth, code.PERMISSION_DENIED, "TASK_MISMATCH")
        self.refused(get, self.working.GetTaskRequest(user_id=user, task_id=task), self.foreign, code.NOT_FOUND, "NOT_FOUND")
        self.refused(get, self.working.GetTaskRequest(user_id=user, task_id=task + "x"), self.auth, code.NOT_FOUND, "NOT_FOUND")
        self.refused(get, self.working.GetTaskRequest(user_id=user, task_id=task), (), code.UNAUTHENTICATED, "UNAUTHENTICATED")
        bad = (("authorization", "Bearer strata_wrong"),)
        self.refused(get, self.working.GetTaskRequest(user_id=user, task_id=task), bad, code.UNAUTHENTICATED, "UNAUTHENTICATED")

    def test_c087_bad_input_is_refused_by_name_and_the_server_goes_on(self):
        code = self.grpc.StatusCode
        user = f"u-{uuid.uuid4()}"
        append = self.session_stub.AppendTurns

        def turns(role, text):
            return self.session.AppendTurnsRequest(
                user_id=user, session_id="s", turns=[self.session.NewTurn(role=role, text=text)])

        role = self.session.ROLE_USER
        for text in ("", "\0", "a\0b", "\u200b\u200b", "x" * 70_000, "y" * (1 << 20)):
            self.refused(append, turns(role, text), self.auth, code.INVALID_ARGUMENT, "INVALID_FIELD")
        self.refused(append, turns(99, "hello"), self.auth, code.INVALID_ARGUMENT, "INVALID_FIELD")
        with self.assertRaises(self.grpc.RpcError) as caught:
            append(turns(role, "z" * (5 << 20)), metadata=self.auth, timeout=10)
        self.assertIn(caught.exception.code(), (code.RESOURCE_EXHAUSTED, code.OUT_OF_RANGE, code.INVALID_ARGUMENT))
        self.assertEqual(list(self.append(user, "s", "still here").seqs), [1])

    def test_c150_a_layer_answers_no_call_without_the_routers_header(self):
        code = self.grpc.StatusCode
        calls = {
            "working": (self.working.GetTaskRequest(user_id="u", task_id="t"), "GetTask"),
            "session": (self.session.GetWindowRequest(user_id="u", session_id="s"), "GetWindow"),
            "longterm": (self.longterm.LookupMemoryRequest(user_id="u", key="k"), "LookupMemory"),
        }
        for role, (request, method) in calls.items():
            with self.grpc.insecure_channel(f"127.0.0.1:{self.cluster.ports[role]}") as channel:
                call = getattr(self.stubs[role](channel), method)
                for metadata in ((), self.auth, (("strata-signed-bin", b"forged"),)):
                    self.refused(call, request, metadata, code.PERMISSION_DENIED, "UNSIGNED_CALL")

    def test_c057_the_gate_says_which_rule_refused_and_repeats_nothing(self):
        user, text = f"u-{uuid.uuid4()}", "Remember that my password is Tr0ub4dor&3x."
        self.append(user, "s", text)
        with self.assertRaises(self.grpc.RpcError) as caught:
            self.remember(user, "s", 1, text)
        self.assertEqual(self.reason(caught.exception), "GATE_PII")
        self.assertNotIn("Tr0ub4dor", str(caught.exception))

    def test_a92_a_guess_never_becomes_a_fact(self):
        user, text = f"u-{uuid.uuid4()}", "The user is a back-end developer."
        for _ in range(3):
            statement = self.longterm.Statement(
                kind=self.longterm.KIND_FACT, key="profile.role", content=text, source=self.longterm.SOURCE_MODEL_INFERENCE,
                source_quote=text, trigger=self.longterm.TRIGGER_DECISION_POINT, confidence=0.99)
            result = self.longterm_stub.Propose(
                self.longterm.ProposeRequest(user_id=user, statement=statement), metadata=self.auth, timeout=10).result
            self.assertIn(result.outcome, (self.longterm.OUTCOME_CANDIDATE, self.longterm.OUTCOME_EVIDENCE_ADDED))
        found = self.longterm_stub.Recall(
            self.longterm.RecallRequest(user_id=user, query="back-end developer"), metadata=self.auth, timeout=10)
        self.assertEqual(len(found.items), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, help="the strata executable")
    options, rest = parser.parse_known_args()
    BINARY = str(pathlib.Path(options.binary).resolve())
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
