// Retries, against a server that fails as it is told: exactly what `ErrorReason` documents, and within the deadline.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { after, beforeEach, test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { DurationSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { ErrorInfoSchema, RetryInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { admin, Client, REASONS, type Reason, session, StrataError } from "strata-client";

const failures: { reason: Reason; afterMs?: number }[] = [];
const seen: { bytes: Buffer; callId: string | null }[] = [];
const answer = <T>(bytes: Uint8Array, callId: string | null, success: T): T => {
  seen.push({ bytes: Buffer.from(bytes), callId });
  const failure = failures.shift();
  if (!failure) return success;
  const details = [
    { desc: ErrorInfoSchema, value: { reason: failure.reason, domain: "strata", metadata: { limit: "5" } } },
    ...(failure.afterMs === undefined ? [] : [{ desc: RetryInfoSchema, value: { retryDelay: create(DurationSchema, { nanos: (failure.afterMs % 1000) * 1e6, seconds: BigInt(Math.floor(failure.afterMs / 1000)) }) } }]),
  ];
  throw new ConnectError("as told", REASONS[failure.reason].code, undefined, details as never);
};
const server = http2.createServer(connectNodeAdapter({
  routes: (router) => {
    router.service(session.SessionMemoryService, {
      appendTurns: (request, context) => answer(toBinary(session.AppendTurnsRequestSchema, request), context.requestHeader.get("x-request-id"), {}),
    });
    router.service(admin.AdminService, {
      reindex: (request, context) => answer(toBinary(admin.ReindexRequestSchema, request), context.requestHeader.get("x-request-id"), {}),
      getStatus: (request, context) => answer(toBinary(admin.GetStatusRequestSchema, request), context.requestHeader.get("x-request-id"), {}),
    });
  },
}));
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const client = new Client({ server: address, userId: "u", timeoutMs: 20_000, retry: { baseMs: 1 } });
after(() => {
  client.close();
  server.close();
});
beforeEach(() => {
  failures.length = 0;
  seen.length = 0;
});
const append = () => client.session.appendTurns({ sessionId: "s", turns: [{ role: session.Role.USER, text: "hello" }] });

for (const reason of Object.keys(REASONS) as Reason[]) {
  const { retrySafe, code } = REASONS[reason];
  test(`${reason} is ${retrySafe ? "" : "not "}sent again`, async () => {
    failures.push({ reason });
    if (retrySafe) {
      await append();
      assert.equal(seen.length, 2);
      assert.ok(seen[0]!.bytes.equals(seen[1]!.bytes), "the same bytes, so the same request id");
      assert.equal(seen[0]!.callId, seen[1]!.callId);
      return;
    }
    await assert.rejects(append(), (thrown) => {
      assert.ok(thrown instanceof StrataError);
      assert.deepEqual([thrown.reason, thrown.code, thrown.info], [reason, code, { limit: "5" }]);
      return true;
    });
    assert.equal(seen.length, 1);
  });
}

test("what may have written is not repeated without a request id", async () => {
  failures.push({ reason: "STORE_UNAVAILABLE" });
  await assert.rejects(client.admin.reindex({}), StrataError);
  failures.push({ reason: "OVERLOADED" });
  await client.admin.reindex({}); // nothing was written: it may be repeated
  failures.push({ reason: "STORE_UNAVAILABLE" });
  await client.admin.getStatus({}); // a read may always be
});

test("the server says how long to wait", async () => {
  failures.push({ reason: "OVERLOADED", afterMs: 400 });
  const began = performance.now();
  await append();
  assert.ok(performance.now() - began >= 399);
});

test("a wait that passes the deadline is not begun", async () => {
  failures.push({ reason: "OVERLOADED", afterMs: 3_600_000 });
  await assert.rejects(append(), (thrown: StrataError) => thrown.retryAfterMs === 3_600_000 && thrown.code === Code.ResourceExhausted);
  assert.equal(seen.length, 1);
});

test("attempts end", async () => {
  failures.push(...Array.from({ length: 10 }, () => ({ reason: "OVERLOADED" as const })));
  await assert.rejects(append(), StrataError);
  assert.equal(seen.length, 4);
});

test("every reason of the protos is known", () => {
  const proto = readFileSync(new URL("../../../../proto/strata/common/v1/error_reason.proto", import.meta.url), "utf8");
  assert.deepEqual(Object.keys(REASONS), [...proto.matchAll(/ERROR_REASON_(\w+) = [1-9]/g)].map((found) => found[1]));
});
