//! Sessions in Redis. Each step is one Lua script; all keys of a user share one hash tag, so a script runs on one node of a
//! cluster, also one that spans the user's sessions (case C121).
//!
//! | key | type | holds |
//! |---|---|---|
//! | `strata:{user}:s:<session>:m` | hash | numbers and times; look-ups of turns (`acc`) |
//! | `...:t` | list | turns: `tokens|JSON`, position = number - 1, so numbers are dense by construction |
//! | `...:z` | hash | summaries (`s:<from>`), anchors (`a`), their order of priority (`o`), pins (`p`) |
//! | `...:v` | hash | verdict of each judged turn |
//! | `...:c` | hash | answers of other writes than appends by request, their order (`q`) and bytes (`b`) |
//! | `...:f` | hash | facts: `epoch|overlay|turn|time|value` by key |
//! | `...:d` | hash | artifacts: `end|bytes|hash|JSON` by tag of the trace id |
//! | `...:b:<tag>` | hash | parts of one artifact by number; `...:u:<upload>` while they come in |
//! | `strata:{user}:x:<session>` | hash | tombstone: incarnation, times, digests of request ids; no content |
//! | `strata:{user}:i` | sorted set | live sessions by their end |
//! | `strata:{user}:e` | hash | erase epoch (`e`), file rewrite that is waited for (`w`) |
//!
//! Every key has a TTL (rule S10), set in the step that creates it. Scripts compare the time they are given with the
//! session's end as well, so that a session ends at the same moment for every caller, swept or not.
//!
//! A script's first write decides whether a full server takes the step: Redis refuses it as a whole or not at all (case
//! C122). Steps that only remove start with a removal, which a full server always takes.

use super::{
    Append, Appended, ArtifactPut, ArtifactWrite, Commit, Committed, Compressed, Ended, FactsWrite, Head, Picked, RequestKey,
    SessionKey, SessionStore, State, TOMBSTONE, TurnsRead, UserTag, WINDOW_ANCHORS, WindowParts, WindowRead, artifact_gone,
    by_priority, damaged, ended, erased_artifact, hex_digest, no_artifact, no_fact, no_such_turn, not_found, other_agent,
    other_bytes, overlaid, read_json, read_turn, reused, stale, tail_tokens, too_many_artifacts, too_many_facts, with_pins,
    write_json,
};
use async_trait::async_trait;
use redis::{FromRedisValue, Script, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;
use std::time::Duration;
use strata_core::policy::erasure::{Medium, Purge, stale_header};
use strata_core::policy::session::{Accesses, Artifact, SessionFact, Shape, Summary, Turn};
use strata_core::{AgentId, FactKey, Fault, SessionId, Timestamp, limits};
use strata_runtime::redis_store::RedisPool;

/// Fields of the `m` hash in the order of [`Head`].
const HEAD_FIELDS: &str =
    "'id','agent','inc','last','bytes','tok','shape','decl','ttl','cre','exp','thr','ttok','ver','sys','red','top','acc'";

/// Shared beginning of every script: what is over is gone, whatever it is asked for.
const PRELUDE: &str = r"
local M, T, Z, V, C, X, I, F, D, E = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now = tonumber(ARGV[1])
local function int(n) return string.format('%.0f', n) end
local function blob(tag) return string.sub(D, 1, -2) .. 'b:' .. tag end
local function older(epoch)
  if epoch == '' then return false end
  local highest = redis.call('HGET', E, 'e')
  return highest and tonumber(epoch) < tonumber(highest) and highest
end
local function remove(sid)
  for _, tag in ipairs(redis.call('HKEYS', D)) do redis.call('UNLINK', blob(tag)) end
  redis.call('DEL', M, T, Z, V, C, F, D)
  redis.call('ZREM', I, sid)
end
local function alive()
  local e = redis.call('HMGET', M, 'exp', 'id')
  if not e[1] then return false end
  if tonumber(e[1]) <= now then remove(e[2]) return false end
  return true
end
local function buried(window)
  local x = redis.call('HMGET', X, 'exp', 'end')
  if not x[1] then return false end
  local over = x[2] and x[2] ~= '' and tonumber(x[2]) or tonumber(x[1])
  if over + window <= now then redis.call('DEL', X) return false end
  return x
end
local function renew(window)
  local m = redis.call('HMGET', M, 'ttl', 'exp', 'id')
  local over = math.max(now + tonumber(m[1]), tonumber(m[2]))
  local ms = math.max(1, math.ceil((over - now) / 1000))
  for _, k in ipairs({M, T, Z, V, C, F, D}) do redis.call('PEXPIRE', k, ms) end
  local artifacts = redis.call('HGETALL', D)
  for k = 1, #artifacts, 2 do
    local e = tonumber(string.match(artifacts[k + 1], '^(%d+)|'))
    if e == 0 or e > over then e = over end
    if e > now then redis.call('PEXPIRE', blob(artifacts[k]), math.max(1, math.ceil((e - now) / 1000))) end
  end
  local later = ms + math.ceil(window / 1000)
  redis.call('PEXPIRE', X, later)
  redis.call('HSET', M, 'exp', int(over))
  redis.call('HSET', X, 'exp', int(over))
  redis.call('PEXPIRE', X, later)
  redis.call('ZADD', I, int(over), m[3])
  if redis.call('PTTL', I) < ms then redis.call('PEXPIRE', I, ms) end
  return int(over)
end
";

/// ARGV: now, tombstone, ttl, shape, agent, session id, request, body, limits (turns, bytes, sessions), due (turns,
/// tokens), erase epoch, then for each turn: payload, bytes, tokens, pinned, system.
const APPEND: &str = r"
local window = tonumber(ARGV[2])
local erased = older(ARGV[14])
if erased then return {'OLD', erased} end
local live = alive()
local grave = buried(window)
if ARGV[7] ~= '' then
  local seen = redis.call('HGET', X, 'r:' .. ARGV[7])
  if seen then
    if string.sub(seen, 1, 32) ~= ARGV[8] then return {'REUSED'} end
    return {'REPLAY', string.sub(seen, 34)}
  end
end
if not live and grave then return {'ENDED'} end
local last, bytes, tok, thr, ttok, inc, top = 0, 0, 0, 0, 0, now, '0'
if live then
  local m = redis.call('HMGET', M, 'agent', 'last', 'bytes', 'tok', 'thr', 'ttok', 'inc', 'top')
  if ARGV[5] ~= '' and m[1] ~= '' and m[1] ~= ARGV[5] then return {'AGENT'} end
  last, bytes, tok, thr, ttok, inc = tonumber(m[2]), tonumber(m[3]), tonumber(m[4]), tonumber(m[5]), tonumber(m[6]), tonumber(m[7])
  top = m[8] or '0'
else
  if redis.call('ZCOUNT', I, '(' .. int(now), '+inf') >= tonumber(ARGV[11]) then return {'LIMIT', 'sessions'} end
end
local n = (#ARGV - 14) / 5
local more, sys, pins = 0, false, ''
for k = 0, n - 1 do
  local at = 15 + k * 5
  more = more + tonumber(ARGV[at + 1])
  tok = tok + tonumber(ARGV[at + 2])
end
if last + n > tonumber(ARGV[9]) then return {'LIMIT', 'turns'} end
if bytes + more > tonumber(ARGV[10]) then return {'LIMIT', 'bytes'} end
for k = 0, n - 1 do
  local at = 15 + k * 5
  redis.call('RPUSH', T, ARGV[at])
  local seq = last + k + 1
  if ARGV[at + 3] == '1' then pins = pins .. int(seq) .. ',' end
  if ARGV[at + 4] == '1' then sys = seq end
end
if not live then
  redis.call('HSET', M, 'id', ARGV[6], 'agent', ARGV[5], 'inc', int(inc), 'shape', ARGV[4], 'decl', ARGV[4] ~= '' and '1' or '0', 'ttl', ARGV[3],
    'cre', int(now), 'exp', '0', 'thr', '0', 'ttok', '0', 'ver', '0', 'sys', '0')
  redis.call('HSET', X, 'inc', int(inc), 'end', '')
end
local first = last + 1
last = last + n
redis.call('HSET', M, 'last', int(last), 'bytes', int(bytes + more), 'tok', int(tok))
if sys then redis.call('HSET', M, 'sys', int(sys)) end
if pins ~= '' then redis.call('HSET', Z, 'p', (redis.call('HGET', Z, 'p') or '') .. pins) end
local pending = last - thr
local due = (pending >= tonumber(ARGV[12]) or (tok - ttok > tonumber(ARGV[13]) and pending > 2)) and '1' or '0'
local over = renew(window)
redis.call('ZREMRANGEBYSCORE', I, '-inf', int(now))
local answer = int(first) .. ',' .. int(n) .. ',' .. int(inc) .. ',' .. due .. ',' .. over .. ',' .. int(now)
if ARGV[7] ~= '' then redis.call('HSET', X, 'r:' .. ARGV[7], ARGV[8] .. '|' .. answer) end
return {'OK', answer, top}
";

/// ARGV: now, tombstone, renew, turns, tokens, anchors, bytes.
const WINDOW: &str = r"
if not alive() then return {'NONE'} end
if ARGV[3] == '1' then renew(tonumber(ARGV[2])) end
local m = redis.call('HMGET', M, HEAD)
local last, thr, sys = tonumber(m[4]), tonumber(m[12]), tonumber(m[15])
local floor = thr
if m[7] == 'CHAT' then floor = 0 end
local budget = tonumber(ARGV[7])
local function tokens(p) return tonumber(string.match(p, '^(%d+)|')) end
local tail, shown, spent, at = {}, 0, 0, last
while at > floor and shown < tonumber(ARGV[4]) and spent <= tonumber(ARGV[5]) and budget > 0 do
  local low = math.max(floor, at - 32)
  local part = redis.call('LRANGE', T, low, at - 1)
  for k = #part, 1, -1 do
    if shown < tonumber(ARGV[4]) and spent <= tonumber(ARGV[5]) and budget > 0 then
      tail[#tail + 1] = part[k]
      local cost = tokens(part[k])
      if cost > 0 then shown = shown + 1 end
      spent = spent + cost
      budget = budget - #part[k]
    end
  end
  at = low
end
local system = ''
if sys > 0 then system = redis.call('LINDEX', T, sys - 1) end
local anchored, seen, room = {}, {}, tonumber(ARGV[7])
local order = (redis.call('HGET', Z, 'p') or '') .. (redis.call('HGET', Z, 'o') or '')
for s in string.gmatch(order, '(%d+),') do
  if #anchored / 2 >= tonumber(ARGV[6]) or room <= 0 then break end
  if not seen[s] then
    seen[s] = true
    local p = redis.call('LINDEX', T, tonumber(s) - 1)
    if p then
      anchored[#anchored + 1] = s
      anchored[#anchored + 1] = p
      room = room - #p
    end
  end
end
return {'OK', m, redis.call('HGETALL', Z), tail, system, anchored}
";

/// ARGV: now.
const STATE: &str = r"
if not alive() then return {'NONE'} end
return {'OK', redis.call('HMGET', M, HEAD), redis.call('HGETALL', Z)}
";

/// ARGV: now, from, to, bytes.
const TURNS: &str = r"
if not alive() then return {'NONE'} end
local m = redis.call('HMGET', M, HEAD)
local from, to = tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), tonumber(m[4]))
local turns, verdicts, budget = {}, {}, tonumber(ARGV[4])
while from <= to and budget > 0 do
  local high = math.min(to, from + 31)
  local part = redis.call('LRANGE', T, from - 1, high - 1)
  local names = {}
  for k = 1, #part do
    if budget > 0 then
      turns[#turns + 1] = part[k]
      names[#names + 1] = int(from + k - 1)
      budget = budget - #part[k]
    end
  end
  if #names > 0 then
    for _, v in ipairs(redis.call('HMGET', V, unpack(names))) do
      if v then verdicts[#verdicts + 1] = v end
    end
  end
  from = high + 1
end
return {'OK', m, turns, verdicts}
";

/// ARGV: now, incarnation, seqs.
const PICK: &str = r"
if not alive() then return {} end
if redis.call('HGET', M, 'inc') ~= ARGV[2] then return {} end
local out = {}
for k = 3, #ARGV do
  local p = redis.call('LINDEX', T, tonumber(ARGV[k]) - 1)
  if p then
    out[#out + 1] = ARGV[k]
    out[#out + 1] = p
    out[#out + 1] = redis.call('HGET', V, ARGV[k]) or ''
  end
end
return out
";

/// KEYS: the index alone. ARGV: now, limit. Names of the live sessions.
const NAMES: &str = r"
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
return redis.call('ZREVRANGE', KEYS[1], 0, tonumber(ARGV[2]) - 1)
";

/// KEYS: the `m` hashes of named sessions. ARGV: now.
const HEADS: &str = r"
local out = {}
for _, k in ipairs(KEYS) do
  local m = redis.call('HMGET', k, HEAD)
  if m[1] and tonumber(m[11]) > tonumber(ARGV[1]) then out[#out + 1] = m end
end
return out
";

/// Takes the content out of the remembered answers. Needs `C`.
const FORGET: &str = r"
local function forget()
  local all, bytes = redis.call('HGETALL', C), 0
  for k = 1, #all, 2 do
    if string.sub(all[k], 1, 2) == 'r:' then
      local bare = string.sub(all[k + 1], 1, 33)
      bytes = bytes + #bare
      redis.call('HSET', C, all[k], bare)
    end
  end
  if #all > 0 then redis.call('HSET', C, 'b', int(bytes)) end
end
";

/// Remembers an answer; the oldest ones make room. Needs `now`, `C` and the number and bytes that are kept.
const REMEMBER: &str = r"
local function remember(request, value, count, room)
  local have = redis.call('HMGET', C, 'q', 'b')
  redis.call('HSET', C, 'r:' .. request, value)
  local order, bytes = (have[1] or '') .. request, tonumber(have[2] or '0') + #value
  while #order > 32 and (#order > 32 * count or bytes > room) do
    local oldest = 'r:' .. string.sub(order, 1, 32)
    bytes = bytes - redis.call('HSTRLEN', C, oldest)
    redis.call('HDEL', C, oldest)
    order = string.sub(order, 33)
  end
  redis.call('HSET', C, 'q', order, 'b', int(bytes))
end
";

/// ARGV: now, incarnation, version, through, tokens, shape, anchors, order, request, body, answer, requests kept, their
/// bytes, pinned, unpinned, erase epoch, forget answers, bytes and tokens that are freed, topic, number of redacted, (seq,
/// payload)..., number of removed, removed..., number of added, (from, payload)..., (seq, verdict)...
const COMMIT: &str = r"
local erased = older(ARGV[16])
if erased then return erased end
if not alive() then return 'GONE' end
local m = redis.call('HMGET', M, 'inc', 'ver', 'decl', 'exp', 'bytes', 'tok')
if m[1] ~= ARGV[2] then return 'GONE' end
if m[2] ~= ARGV[3] then return 'RACED' end
local at = 21
local redacted = tonumber(ARGV[at])
if redacted > 0 or ARGV[17] == '1' then
  redis.call('HDEL', C, '-')
  for k = 0, redacted - 1 do redis.call('LSET', T, tonumber(ARGV[at + 1 + 2 * k]) - 1, ARGV[at + 2 + 2 * k]) end
  redis.call('HSET', M, 'bytes', int(tonumber(m[5]) - tonumber(ARGV[18])), 'tok', int(tonumber(m[6]) - tonumber(ARGV[19])))
  if redacted > 0 then redis.call('HINCRBY', M, 'red', 1) end
end
if ARGV[17] == '1' then forget() end
at = at + 2 * redacted + 1
redis.call('HSET', M, 'ver', int(tonumber(ARGV[3]) + 1), 'thr', ARGV[4], 'ttok', ARGV[5])
if ARGV[6] ~= '' and m[3] == '0' then redis.call('HSET', M, 'shape', ARGV[6]) end
if ARGV[20] ~= '' then redis.call('HSET', M, 'top', ARGV[20]) end
redis.call('HSET', Z, 'a', ARGV[7], 'o', ARGV[8])
if ARGV[14] ~= '' or ARGV[15] ~= '' then
  local out, seen = '', {}
  for s in string.gmatch(ARGV[15], '(%d+),') do seen[s] = true end
  for s in string.gmatch((redis.call('HGET', Z, 'p') or '') .. ARGV[14], '(%d+),') do
    if not seen[s] then
      seen[s] = true
      out = out .. s .. ','
    end
  end
  redis.call('HSET', Z, 'p', out)
end
local removed = tonumber(ARGV[at])
for k = at + 1, at + removed do redis.call('HDEL', Z, 's:' .. ARGV[k]) end
at = at + removed + 1
local added = tonumber(ARGV[at])
for k = 0, added - 1 do redis.call('HSET', Z, 's:' .. ARGV[at + 1 + 2 * k], ARGV[at + 2 + 2 * k]) end
at = at + 1 + 2 * added
while at < #ARGV do
  redis.call('HSET', V, ARGV[at], ARGV[at + 1])
  at = at + 2
end
if ARGV[9] ~= '' then remember(ARGV[9], ARGV[10] .. '|' .. ARGV[11], tonumber(ARGV[12]), tonumber(ARGV[13])) end
local ms = math.max(1, math.ceil((tonumber(m[4]) - now) / 1000))
for _, k in ipairs({Z, V, C}) do redis.call('PEXPIRE', k, ms) end
return 'OK'
";

/// ARGV: now, tombstone, agent, request, body, answer, requests kept, their bytes, facts kept, erase epoch, (key, epoch, turn,
/// rest)...
const PUT_FACTS: &str = r"
local erased = older(ARGV[10])
if erased then return {'OLD', erased} end
if not alive() then return {buried(tonumber(ARGV[2])) and 'ENDED' or 'NONE'} end
local m = redis.call('HMGET', M, 'agent', 'last', 'exp')
if ARGV[3] ~= '' and m[1] ~= '' and m[1] ~= ARGV[3] then return {'NONE'} end
if ARGV[4] ~= '' then
  local seen = redis.call('HGET', C, 'r:' .. ARGV[4])
  if seen then
    if string.sub(seen, 1, 32) ~= ARGV[5] then return {'REUSED'} end
    return {'SEEN', string.sub(seen, 34)}
  end
end
local more = 0
for at = 11, #ARGV, 4 do
  if tonumber(ARGV[at + 2]) > tonumber(m[2]) then return {'TURN', ARGV[at + 2], m[2]} end
  local have = redis.call('HGET', F, ARGV[at])
  if have then
    local epoch, overlay = string.match(have, '^(%d+)|(%d)|')
    if overlay == '1' then return {'OVERLAY', ARGV[at], epoch} end
    if tonumber(epoch) > tonumber(ARGV[at + 1]) then return {'STALE', ARGV[at], epoch} end
  else
    more = more + 1
  end
end
if redis.call('HLEN', F) + more > tonumber(ARGV[9]) then return {'LIMIT'} end
for at = 11, #ARGV, 4 do
  redis.call('HSET', F, ARGV[at], ARGV[at + 1] .. '|0|' .. ARGV[at + 2] .. '|' .. ARGV[at + 3])
end
if ARGV[4] ~= '' then remember(ARGV[4], ARGV[5] .. '|' .. ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])) end
local ms = math.max(1, math.ceil((tonumber(m[3]) - now) / 1000))
for _, k in ipairs({F, C}) do redis.call('PEXPIRE', k, ms) end
return {'OK'}
";

/// ARGV: now.
const FACTS: &str = r"
if not alive() then return {'NONE'} end
return {'OK', redis.call('HGETALL', F)}
";

/// ARGV: now, key, epoch. Of an erased fact only the epoch is kept: it is not there.
const SEAL_FACT: &str = r"
if not alive() then return {'NONE'} end
local have = redis.call('HGET', F, ARGV[2])
if not have then return {'MISSING'} end
local epoch, state, rest = string.match(have, '^(%d+)|(%d)|(.*)$')
if state == '2' then return {'MISSING'} end
if state == '1' then return {'OVERLAY', epoch} end
if tonumber(epoch) > tonumber(ARGV[3]) then return {'STALE', epoch} end
local sealed = ARGV[3] .. '|0|' .. rest
redis.call('HSET', F, ARGV[2], sealed)
return {'OK', sealed}
";

/// ARGV: now, keys...
const OVERLAY: &str = r"
if not alive() then return 0 end
local known = 0
for at = 2, #ARGV do
  local have = redis.call('HGET', F, ARGV[at])
  if have and not string.match(have, '^%d+|2|') then
    known = known + 1
    redis.call('HSET', F, ARGV[at], (string.gsub(have, '^(%d+)|%d|', '%1|1|')))
  end
end
return known
";

/// ARGV: now, incarnation, look-ups before and after.
const TOUCH: &str = r"
if not alive() then return 0 end
local m = redis.call('HMGET', M, 'inc', 'acc')
if m[1] ~= ARGV[2] or (m[2] or '') ~= ARGV[3] then return 0 end
redis.call('HSET', M, 'acc', ARGV[4])
return 1
";

/// KEYS: the blob and its upload at the end. ARGV: now, tombstone, agent, request, body, answer, requests kept, their bytes,
/// artifacts kept, their bytes, tag, end, bytes, hash, JSON, parts, erase epoch.
const PUT_ARTIFACT: &str = r"
local B, U = KEYS[11], KEYS[12]
local function no(...)
  redis.call('UNLINK', U)
  return {...}
end
local erased = older(ARGV[17])
if erased then return no('OLD', erased) end
if not alive() then return no(buried(tonumber(ARGV[2])) and 'ENDED' or 'NONE') end
local m = redis.call('HMGET', M, 'agent', 'exp')
if ARGV[3] ~= '' and m[1] ~= '' and m[1] ~= ARGV[3] then return no('NONE') end
if ARGV[4] ~= '' then
  local seen = redis.call('HGET', C, 'r:' .. ARGV[4])
  if seen then
    if string.sub(seen, 1, 32) ~= ARGV[5] then return no('REUSED') end
    return no('SEEN', string.sub(seen, 34))
  end
end
local count, bytes = 0, 0
local all = redis.call('HGETALL', D)
for k = 1, #all, 2 do
  local e, size, hash = string.match(all[k + 1], '^(%d+)|(%d+)|(%x+)|')
  if tonumber(e) == 0 or tonumber(e) > now then
    if all[k] == ARGV[11] then
      if hash == ARGV[14] then return no('KNOWN', all[k + 1]) end
      return no('OTHER')
    end
    count = count + 1
    bytes = bytes + tonumber(size)
  else
    redis.call('UNLINK', blob(all[k]))
    if #all >= 8 * tonumber(ARGV[9]) then redis.call('HDEL', D, all[k]) end
  end
end
if count + 1 > tonumber(ARGV[9]) then return no('LIMIT', 'count') end
if bytes + tonumber(ARGV[13]) > tonumber(ARGV[10]) then return no('LIMIT', 'bytes') end
if redis.call('HLEN', U) ~= tonumber(ARGV[16]) then return no('LOST') end
redis.call('HSET', D, ARGV[11], ARGV[12] .. '|' .. ARGV[13] .. '|' .. ARGV[14] .. '|' .. ARGV[15])
local over = tonumber(m[2])
local ms = math.max(1, math.ceil((over - now) / 1000))
if tonumber(ARGV[16]) > 0 then
  redis.call('RENAME', U, B)
  local e = tonumber(ARGV[12])
  if e == 0 or e > over then e = over end
  redis.call('PEXPIRE', B, math.max(1, math.ceil((e - now) / 1000)))
end
if ARGV[4] ~= '' then remember(ARGV[4], ARGV[5] .. '|' .. ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])) end
for _, k in ipairs({D, C}) do redis.call('PEXPIRE', k, ms) end
return {'OK'}
";

/// KEYS: the upload alone. ARGV: number, bytes, life in milliseconds.
const UPLOAD: &str = r"
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
";

/// ARGV: now, tag.
const ARTIFACT: &str = r"
if not alive() then return {'NONE'} end
return {'OK', redis.call('HGET', M, 'agent'), redis.call('HGET', D, ARGV[2]) or ''}
";

/// KEYS: the blob at the end. ARGV: now, tag, number.
const PART: &str = r"
if not alive() then return '' end
local have = redis.call('HGET', D, ARGV[2])
if not have then return '' end
local e = tonumber(string.match(have, '^(%d+)|'))
if e ~= 0 and e <= now then return '' end
return redis.call('HGET', KEYS[11], ARGV[3]) or ''
";

/// KEYS: the epochs alone. ARGV: epoch, life in milliseconds.
const RAISE: &str = r"
local highest = redis.call('HGET', KEYS[1], 'e')
if not highest or tonumber(highest) < tonumber(ARGV[1]) then
  highest = ARGV[1]
  redis.call('HDEL', KEYS[1], 'w')
  redis.call('HSET', KEYS[1], 'e', highest)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return highest
";

/// KEYS: the epochs alone. ARGV: what is waited for, life in milliseconds. Not where there is no epoch.
const WAIT: &str = r"
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'w', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
";

/// KEYS: the index alone. ARGV: now, limit. Names of expired sessions whose removal is still to be seen to.
const EXPIRED: &str = r"
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
";

/// ARGV: now.
const ANSWERS: &str = r"
if not alive() then return {} end
local out, all = {}, redis.call('HGETALL', C)
for k = 1, #all, 2 do
  if string.sub(all[k], 1, 2) == 'r:' and #all[k + 1] > 33 then out[#out + 1] = string.sub(all[k + 1], 34) end
end
return out
";

/// ARGV: now.
const FORGET_ANSWERS: &str = r"
redis.call('HDEL', C, '-')
if alive() then forget() end
return 1
";

/// ARGV: now, number of emptied, emptied..., removed...
const ERASE_FACTS: &str = r"
redis.call('HDEL', F, '-')
if not alive() then return 0 end
local emptied = tonumber(ARGV[2])
for at = 3, #ARGV do
  local have = redis.call('HGET', F, ARGV[at])
  if have and at <= 2 + emptied then
    redis.call('HSET', F, ARGV[at], string.match(have, '^(%d+)|') .. '|2|0|0|')
  else
    redis.call('HDEL', F, ARGV[at])
  end
end
forget()
return 1
";

/// ARGV: now.
const ARTIFACTS: &str = r"
if not alive() then return {} end
local out, all = {}, redis.call('HGETALL', D)
for k = 1, #all, 2 do
  local e = tonumber(string.match(all[k + 1], '^(%d+)|'))
  if e == 0 or e > now then out[#out + 1] = all[k + 1] end
end
return out
";

/// ARGV: now, tag, what stands for the artifact afterwards; nothing when empty.
const ERASE_ARTIFACT: &str = r"
redis.call('UNLINK', blob(ARGV[2]))
if not alive() then return 0 end
if ARGV[3] == '' then
  redis.call('HDEL', D, ARGV[2])
elseif redis.call('HEXISTS', D, ARGV[2]) == 1 then
  redis.call('HSET', D, ARGV[2], ARGV[3])
end
return 1
";

/// ARGV: now, tombstone, request.
const COMMITTED: &str = r"
if not alive() then
  if buried(tonumber(ARGV[2])) then return {'ENDED'} end
  return {'NONE'}
end
local seen = redis.call('HGET', C, 'r:' .. ARGV[3])
if not seen then return {'NONE'} end
return {'SEEN', seen}
";

/// ARGV: now, tombstone, agent, request, body.
const END: &str = r"
local window = tonumber(ARGV[2])
local live = alive()
local grave = buried(window)
if ARGV[4] ~= '' and (live or grave) then
  local seen = redis.call('HGET', X, 'r:' .. ARGV[4])
  if seen then
    if string.sub(seen, 1, 32) ~= ARGV[5] then return {'REUSED'} end
    return {'OK', string.sub(seen, 34)}
  end
end
if not live then
  if not grave then return {'NONE'} end
  local over = grave[2] and grave[2] ~= '' and grave[2] or grave[1]
  return {'OK', over .. ',0,1'}
end
local m = redis.call('HMGET', M, 'agent', 'last', 'id', 'inc')
if ARGV[3] ~= '' and m[1] ~= '' and m[1] ~= ARGV[3] then return {'AGENT'} end
remove(m[3])
local answer = int(now) .. ',' .. m[2] .. ',0'
redis.call('HSET', X, 'inc', m[4], 'end', int(now), 'exp', int(now))
if ARGV[4] ~= '' then redis.call('HSET', X, 'r:' .. ARGV[4], ARGV[5] .. '|' .. answer) end
redis.call('PEXPIRE', X, math.ceil(window / 1000))
return {'OK', answer}
";

fn script(body: &str) -> Script {
    Script::new(&format!("{PRELUDE}{}", body.replace("HEAD", HEAD_FIELDS)))
}

struct Scripts {
    append: Script,
    window: Script,
    state: Script,
    turns: Script,
    pick: Script,
    names: Script,
    heads: Script,
    commit: Script,
    put_facts: Script,
    facts: Script,
    seal_fact: Script,
    overlay: Script,
    touch: Script,
    put_artifact: Script,
    upload: Script,
    artifact: Script,
    part: Script,
    committed: Script,
    end: Script,
    raise: Script,
    wait: Script,
    expired: Script,
    answers: Script,
    forget_answers: Script,
    erase_facts: Script,
    artifacts: Script,
    erase_artifact: Script,
}

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    append: script(APPEND),
    window: script(WINDOW),
    state: script(STATE),
    turns: script(TURNS),
    pick: script(PICK),
    names: Script::new(NAMES),
    heads: Script::new(&HEADS.replace("HEAD", HEAD_FIELDS)),
    commit: script(&format!("{REMEMBER}{FORGET}{COMMIT}")),
    put_facts: script(&format!("{REMEMBER}{PUT_FACTS}")),
    facts: script(FACTS),
    seal_fact: script(SEAL_FACT),
    overlay: script(OVERLAY),
    touch: script(TOUCH),
    put_artifact: script(&format!("{REMEMBER}{PUT_ARTIFACT}")),
    upload: Script::new(UPLOAD),
    artifact: script(ARTIFACT),
    part: script(PART),
    committed: script(COMMITTED),
    end: script(END),
    raise: Script::new(RAISE),
    wait: Script::new(WAIT),
    expired: Script::new(EXPIRED),
    answers: script(ANSWERS),
    forget_answers: script(&format!("{FORGET}{FORGET_ANSWERS}")),
    erase_facts: script(&format!("{FORGET}{ERASE_FACTS}")),
    artifacts: script(ARTIFACTS),
    erase_artifact: script(ERASE_ARTIFACT),
});

/// State of a fact that was erased: of it the epoch is kept alone (rule P3).
const ERASED: &str = "2";

/// A fact as its hash has it; none of an erased one.
fn read_fact(key: String, stored: &str) -> Result<Option<SessionFact>, Fault> {
    let mut parts = stored.splitn(5, '|');
    let mut part = || parts.next().ok_or_else(damaged);
    let (epoch, state, seq, time) = (parse(part()?)?, part()?, parse(part()?)?, Timestamp(parse(part()?)?));
    if state == ERASED {
        return Ok(None);
    }
    Ok(Some(SessionFact { key: FactKey::new(key)?, value: part()?.to_owned(), seq, epoch, overlay: state == "1", time }))
}

/// Milliseconds that a part of an artifact waits for the rest.
const UPLOAD_MS: u32 = 60_000;

/// Life of an erase epoch in milliseconds.
const EPOCH_MS: i64 = limits::ERASE_EPOCH_SECONDS * 1_000;

/// Sessions whose heads one script reads: keeps it short.
const HEADS_AT_ONCE: usize = 500;

/// Sessions in Redis.
#[derive(Clone, Debug)]
pub struct RedisSessions {
    pool: RedisPool,
}

impl RedisSessions {
    /// On a server.
    #[must_use]
    pub const fn new(pool: RedisPool) -> Self {
        Self { pool }
    }
}

impl RedisSessions {
    /// Heads of named sessions that are alive, in their order.
    async fn heads(&self, user: &UserTag, names: &[String], now: Timestamp) -> Result<Vec<Head>, Fault> {
        let mut of = Vec::with_capacity(names.len());
        for name in names {
            let [meta, ..] = keys(&SessionKey::of_user(user.clone(), SessionId::new(name.as_str())?));
            of.push(meta);
        }
        let answer: Value = self.pool.script(&SCRIPTS.heads, &of, now.0).await?;
        list(answer)?.into_iter().map(head).collect()
    }
}

/// The keys of a session, in the order the scripts expect.
#[must_use]
pub fn keys(key: &SessionKey) -> [String; 10] {
    let (user, session) = (key.user().as_str(), key.session_tag());
    let of = |part: &str| format!("strata:{{{user}}}:s:{session}:{part}");
    [
        of("m"),
        of("t"),
        of("z"),
        of("v"),
        of("c"),
        format!("strata:{{{user}}}:x:{session}"),
        index(key.user()),
        of("f"),
        of("d"),
        epochs(key.user()),
    ]
}

/// What the keys of a session's artifacts begin with.
fn blobs(key: &SessionKey) -> String {
    format!("strata:{{{}}}:s:{}:", key.user().as_str(), key.session_tag())
}

fn stored_artifact(stored: &str) -> Result<Artifact, Fault> {
    read_json(stored.splitn(4, '|').nth(3).ok_or_else(damaged)?)
}

fn epochs(user: &UserTag) -> String {
    format!("strata:{{{}}}:e", user.as_str())
}

fn index(user: &UserTag) -> String {
    format!("strata:{{{}}}:i", user.as_str())
}

fn list(value: Value) -> Result<Vec<Value>, Fault> {
    Vec::<Value>::from_redis_value(value).map_err(|_| damaged())
}

fn text(value: Value) -> Result<String, Fault> {
    String::from_redis_value(value).map_err(|_| damaged())
}

fn texts(value: Value) -> Result<Vec<String>, Fault> {
    Vec::<String>::from_redis_value(value).map_err(|_| damaged())
}

/// The first element of an answer, and an iterator over the rest.
fn tagged(value: Value) -> Result<(String, std::vec::IntoIter<Value>), Fault> {
    let mut parts = list(value)?.into_iter();
    let tag = text(parts.next().ok_or_else(damaged)?)?;
    Ok((tag, parts))
}

fn next(parts: &mut std::vec::IntoIter<Value>) -> Result<Value, Fault> {
    parts.next().ok_or_else(damaged)
}

fn parse<T: std::str::FromStr>(value: &str) -> Result<T, Fault> {
    value.parse().map_err(|_| damaged())
}

fn head(value: Value) -> Result<Head, Fault> {
    // A session that was begun before a field came has none.
    let fields = Vec::<Option<String>>::from_redis_value(value).map_err(|_| damaged())?;
    let fields: [String; 18] =
        fields.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().try_into().map_err(|_| damaged())?;
    let [id, agent, inc, last, bytes, tok, shape, decl, ttl, cre, exp, thr, ttok, ver, sys, red, top, acc] = fields;
    let later = |field: &str| if field.is_empty() { Ok(0) } else { parse::<u64>(field) };
    Ok(Head {
        session: SessionId::new(id)?,
        agent: if agent.is_empty() { None } else { Some(AgentId::new(agent)?) },
        incarnation: parse(&inc)?,
        last: parse(&last)?,
        bytes: parse(&bytes)?,
        tokens: parse(&tok)?,
        shape: Shape::from_name(&shape),
        declared: decl == "1",
        ttl: parse(&ttl)?,
        create_time: Timestamp(parse(&cre)?),
        expire_time: Timestamp(parse(&exp)?),
        through: parse(&thr)?,
        through_tokens: parse(&ttok)?,
        version: parse(&ver)?,
        system: parse(&sys)?,
        redactions: later(&red)?,
        topic: u32::try_from(later(&top)?).map_err(|_| damaged())?,
        accesses: Accesses::decode(&acc),
    })
}

/// A turn as stored: the tokens in front, 0 for what is shown apart, let a script keep a budget without parsing JSON.
fn payload(turn: &Turn) -> Result<String, Fault> {
    Ok(format!("{}|{}", tail_tokens(turn), write_json(turn)?))
}

fn turn(payload: &str, seq: u32) -> Result<Turn, Fault> {
    let (_, json) = payload.split_once('|').ok_or_else(damaged)?;
    read_turn(json, seq)
}

/// Summaries, anchors and pins from the `z` hash.
fn compressed(value: Value) -> Result<Compressed, Fault> {
    let fields = HashMap::<String, String>::from_redis_value(value).map_err(|_| damaged())?;
    let mut summaries = BTreeMap::new();
    for (name, json) in &fields {
        if let Some(from) = name.strip_prefix("s:") {
            summaries.insert(parse::<u32>(from)?, read_json::<Summary>(json)?);
        }
    }
    let anchors = fields.get("a").map_or_else(|| Ok(Vec::new()), |json| read_json(json))?;
    let pins = fields.get("p").map(String::as_str).unwrap_or_default();
    let pins = pins.split(',').filter(|s| !s.is_empty()).map(parse).collect::<Result<BTreeSet<u32>, _>>()?;
    Ok((summaries.into_values().collect(), with_pins(anchors, &pins), pins))
}

/// Pairs of number and turn.
fn numbered(value: Value) -> Result<Vec<Turn>, Fault> {
    let parts = texts(value)?;
    parts.chunks_exact(2).map(|pair| turn(&pair[1], parse(&pair[0])?)).collect()
}

fn limit(what: &str) -> Fault {
    match what {
        "turns" => Fault::limit("turns", limits::SESSION_TURNS, "turns of a session"),
        "bytes" => Fault::limit("turns", limits::SESSION_BYTES, "bytes of a session"),
        _ => Fault::limit("session_id", limits::SESSIONS_PER_USER, "live sessions of a user"),
    }
}

#[async_trait]
impl SessionStore for RedisSessions {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn append(&self, append: Append) -> Result<Appended, Fault> {
        let agent = append.agent.as_ref().map_or("", AgentId::as_str);
        let (request, body) = append.request.map_or_else(Default::default, |r| (r.id_hex(), r.body_hex()));
        let mut args: Vec<String> = vec![
            append.now.0.to_string(),
            TOMBSTONE.to_string(),
            append.ttl.to_string(),
            append.shape.map_or("", Shape::name).to_owned(),
            agent.to_owned(),
            append.key.session().as_str().to_owned(),
            request,
            body,
            limits::SESSION_TURNS.to_string(),
            limits::SESSION_BYTES.to_string(),
            limits::SESSIONS_PER_USER.to_string(),
            append.due_turns.to_string(),
            append.due_tokens.to_string(),
            append.erase_epoch.to_string(),
        ];
        let flag = |on: bool| if on { "1".to_owned() } else { "0".to_owned() };
        for turn in &append.turns {
            let system = turn.role == strata_core::policy::session::Role::System;
            args.extend([payload(turn)?, turn.bytes().to_string(), turn.tokens.to_string(), flag(turn.pinned), flag(system)]);
        }
        let answer: Value = self.pool.script(&SCRIPTS.append, &keys(&append.key), args).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "OK" | "REPLAY" => {
                let replayed = tag == "REPLAY";
                let appended = Appended::decode(&text(next(&mut parts)?)?, replayed).ok_or_else(damaged)?;
                let topic = if replayed { 0 } else { parse(&text(next(&mut parts)?)?)? };
                Ok(Appended { topic, ..appended })
            }
            "REUSED" => Err(reused()),
            "OLD" => Err(stale_header(parse(&text(next(&mut parts)?)?)?)),
            "ENDED" => Err(ended(append.key.session())),
            "AGENT" => Err(other_agent()),
            "LIMIT" => Err(limit(&text(next(&mut parts)?)?)),
            _ => Err(damaged()),
        }
    }

    async fn window(&self, key: &SessionKey, read: WindowRead) -> Result<Option<WindowParts>, Fault> {
        let args = [
            read.now.0,
            TOMBSTONE,
            i64::from(read.renew),
            read.turns.into(),
            read.tokens.into(),
            WINDOW_ANCHORS.into(),
            limits::TURNS_ANSWER_BYTES as i64,
        ];
        let answer: Value = self.pool.script(&SCRIPTS.window, &keys(key), &args[..]).await?;
        let (tag, mut parts) = tagged(answer)?;
        if tag != "OK" {
            return Ok(None);
        }
        let head = head(next(&mut parts)?)?;
        let (summaries, anchors, _) = compressed(next(&mut parts)?)?;
        let newest_first = texts(next(&mut parts)?)?;
        let mut tail = (0..).zip(&newest_first).map(|(back, p)| turn(p, head.last - back)).collect::<Result<Vec<_>, _>>()?;
        tail.reverse();
        let system = text(next(&mut parts)?)?;
        let system = if system.is_empty() { None } else { Some(turn(&system, head.system)?) };
        let anchored = numbered(next(&mut parts)?)?;
        Ok(Some(WindowParts { head, summaries, anchors, anchored, tail, system }))
    }

    async fn state(&self, key: &SessionKey, now: Timestamp) -> Result<Option<State>, Fault> {
        let answer: Value = self.pool.script(&SCRIPTS.state, &keys(key), now.0).await?;
        let (tag, mut parts) = tagged(answer)?;
        if tag != "OK" {
            return Ok(None);
        }
        let head = head(next(&mut parts)?)?;
        let (summaries, anchors, pins) = compressed(next(&mut parts)?)?;
        Ok(Some(State { head, summaries, anchors, pins }))
    }

    async fn turns(&self, key: &SessionKey, now: Timestamp, from: u32, to: u32) -> Result<Option<TurnsRead>, Fault> {
        let from = from.max(1);
        let args = [now.0, from.into(), to.into(), limits::TURNS_ANSWER_BYTES as i64];
        let answer: Value = self.pool.script(&SCRIPTS.turns, &keys(key), &args[..]).await?;
        let (tag, mut parts) = tagged(answer)?;
        if tag != "OK" {
            return Ok(None);
        }
        let head = head(next(&mut parts)?)?;
        let turns = (from..).zip(texts(next(&mut parts)?)?).map(|(seq, p)| turn(&p, seq)).collect::<Result<_, _>>()?;
        let verdicts = texts(next(&mut parts)?)?.iter().map(|json| read_json(json)).collect::<Result<_, _>>()?;
        Ok(Some(TurnsRead { head, turns, verdicts }))
    }

    async fn pick(&self, key: &SessionKey, now: Timestamp, incarnation: u64, seqs: &[u32]) -> Result<Vec<Picked>, Fault> {
        let mut args = vec![now.0.to_string(), incarnation.to_string()];
        args.extend(seqs.iter().map(u32::to_string));
        let answer: Value = self.pool.script(&SCRIPTS.pick, &keys(key), args).await?;
        let read = |part: &[String]| {
            let verdict = if part[2].is_empty() { None } else { Some(read_json(&part[2])?) };
            Ok((turn(&part[1], parse(&part[0])?)?, verdict))
        };
        texts(answer)?.chunks_exact(3).map(read).collect()
    }

    async fn sessions(&self, user: &UserTag, now: Timestamp) -> Result<Vec<Head>, Fault> {
        let args = [now.0, limits::SESSIONS_PER_USER.into()];
        let names: Vec<String> = self.pool.script(&SCRIPTS.names, &[index(user)], &args[..]).await?;
        let mut heads = Vec::with_capacity(names.len());
        for part in names.chunks(HEADS_AT_ONCE) {
            heads.extend(self.heads(user, part, now).await?);
        }
        Ok(heads)
    }

    async fn session_page(
        &self,
        user: &UserTag,
        agent: Option<&AgentId>,
        now: Timestamp,
        after: Option<&SessionId>,
        count: u32,
    ) -> Result<Vec<Head>, Fault> {
        let args = [now.0, limits::SESSIONS_PER_USER.into()];
        let mut names: Vec<String> = self.pool.script(&SCRIPTS.names, &[index(user)], &args[..]).await?;
        names.retain(|name| after.is_none_or(|after| name.as_str() > after.as_str()));
        names.sort_unstable();
        let count = count as usize;
        let mut page = Vec::new();
        for part in names.chunks(count.clamp(1, HEADS_AT_ONCE)) {
            page.extend(self.heads(user, part, now).await?.into_iter().filter(|head| head.visible_to(agent)));
            if page.len() >= count {
                break;
            }
        }
        page.truncate(count);
        Ok(page)
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, Fault> {
        let mut args: Vec<Vec<u8>> = Vec::new();
        let mut push = |text: String| args.push(text.into_bytes());
        push(commit.now.0.to_string());
        push(commit.incarnation.to_string());
        push(commit.version.to_string());
        push(commit.through.to_string());
        push(commit.through_tokens.to_string());
        push(commit.shape.map_or("", Shape::name).to_owned());
        push(write_json(&commit.anchors)?);
        push(by_priority(&commit.anchors).iter().map(|seq| format!("{seq},")).collect());
        let (request, body, answer) =
            commit.request.map_or_else(Default::default, |(request, answer)| (request.id_hex(), request.body_hex(), answer));
        push(request);
        push(body);
        args.push(answer);
        let mut push = |text: String| args.push(text.into_bytes());
        push(limits::SESSION_REQUESTS.to_string());
        push(limits::SESSION_ANSWER_BYTES.to_string());
        push(commit.pinned.iter().map(|seq| format!("{seq},")).collect());
        push(commit.unpinned.iter().map(|seq| format!("{seq},")).collect());
        let redaction = &commit.redaction;
        push(commit.erase_epoch.map(|epoch| epoch.to_string()).unwrap_or_default());
        push(u8::from(redaction.answers).to_string());
        push(redaction.bytes.to_string());
        push(redaction.tokens.to_string());
        push(commit.topic.map(|seq| seq.to_string()).unwrap_or_default());
        push(redaction.turns.len().to_string());
        for turn in &redaction.turns {
            push(turn.seq.to_string());
            push(payload(turn)?);
        }
        push(commit.removed.len().to_string());
        commit.removed.iter().for_each(|from| push(from.to_string()));
        push(commit.added.len().to_string());
        for summary in &commit.added {
            push(summary.from.to_string());
            push(write_json(summary)?);
        }
        for verdict in &commit.verdicts {
            push(verdict.seq.to_string());
            push(write_json(verdict)?);
        }
        let answer: String = self.pool.script(&SCRIPTS.commit, &keys(&commit.key), args).await?;
        match answer.as_str() {
            "OK" => Ok(Committed::Yes),
            "RACED" => Ok(Committed::Raced),
            "GONE" => Ok(Committed::Gone),
            epoch => Err(stale_header(parse(epoch)?)),
        }
    }

    async fn put_facts(&self, write: FactsWrite) -> Result<Option<Vec<u8>>, Fault> {
        let (id, body, answer) =
            write.request.map_or_else(Default::default, |(request, answer)| (request.id_hex(), request.body_hex(), answer));
        let mut args: Vec<Vec<u8>> = [
            write.now.0.to_string(),
            TOMBSTONE.to_string(),
            write.agent.as_ref().map_or("", AgentId::as_str).to_owned(),
            id,
            body,
        ]
        .map(String::into_bytes)
        .to_vec();
        args.push(answer);
        let bounds = [u64::from(limits::SESSION_REQUESTS), u64::from(limits::SESSION_ANSWER_BYTES), limits::SESSION_FACTS as u64];
        args.extend(bounds.map(|bound| bound.to_string().into_bytes()));
        args.push(write.erase_epoch.to_string().into_bytes());
        for SessionFact { key, value, seq, epoch, overlay: _, time } in &write.facts {
            let parts = [key.as_str().to_owned(), epoch.to_string(), seq.to_string(), format!("{}|{value}", time.0)];
            args.extend(parts.map(String::into_bytes));
        }
        let answer: Value = self.pool.script(&SCRIPTS.put_facts, &keys(&write.key), args).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "OK" => Ok(None),
            "SEEN" => Vec::<u8>::from_redis_value(next(&mut parts)?).map(Some).map_err(|_| damaged()),
            "NONE" => Err(not_found(write.key.session())),
            "ENDED" => Err(ended(write.key.session())),
            "REUSED" => Err(reused()),
            "OLD" => Err(stale_header(parse(&text(next(&mut parts)?)?)?)),
            "TURN" => Err(no_such_turn(parse(&text(next(&mut parts)?)?)?, parse(&text(next(&mut parts)?)?)?)),
            "OVERLAY" => Err(overlaid(&text(next(&mut parts)?)?, parse(&text(next(&mut parts)?)?)?)),
            "STALE" => Err(stale(&text(next(&mut parts)?)?, parse(&text(next(&mut parts)?)?)?)),
            "LIMIT" => Err(too_many_facts()),
            _ => Err(damaged()),
        }
    }

    async fn facts(&self, key: &SessionKey, now: Timestamp) -> Result<Option<Vec<SessionFact>>, Fault> {
        let answer: Value = self.pool.script(&SCRIPTS.facts, &keys(key), now.0).await?;
        let (tag, mut parts) = tagged(answer)?;
        if tag != "OK" {
            return Ok(None);
        }
        let fields = BTreeMap::<String, String>::from_redis_value(next(&mut parts)?).map_err(|_| damaged())?;
        let facts = fields.into_iter().filter_map(|(key, stored)| read_fact(key, &stored).transpose());
        facts.collect::<Result<_, _>>().map(Some)
    }

    async fn seal_fact(&self, key: &SessionKey, now: Timestamp, name: &FactKey, epoch: u64) -> Result<SessionFact, Fault> {
        let args = vec![now.0.to_string(), name.as_str().to_owned(), epoch.to_string()];
        let answer: Value = self.pool.script(&SCRIPTS.seal_fact, &keys(key), args).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "OK" => read_fact(name.as_str().to_owned(), &text(next(&mut parts)?)?)?.ok_or_else(damaged),
            "NONE" => Err(not_found(key.session())),
            "MISSING" => Err(no_fact(name)),
            "OVERLAY" => Err(overlaid(name.as_str(), parse(&text(next(&mut parts)?)?)?)),
            "STALE" => Err(stale(name.as_str(), parse(&text(next(&mut parts)?)?)?)),
            _ => Err(damaged()),
        }
    }

    async fn overlay_facts(&self, key: &SessionKey, now: Timestamp, names: &[FactKey]) -> Result<u32, Fault> {
        let mut args = vec![now.0.to_string()];
        args.extend(names.iter().map(|name| name.as_str().to_owned()));
        Ok(self.pool.script(&SCRIPTS.overlay, &keys(key), args).await?)
    }

    async fn touch(
        &self,
        key: &SessionKey,
        now: Timestamp,
        incarnation: u64,
        was: &Accesses,
        becomes: &Accesses,
    ) -> Result<(), Fault> {
        let args = vec![now.0.to_string(), incarnation.to_string(), was.encode(), becomes.encode()];
        let _: i64 = self.pool.script(&SCRIPTS.touch, &keys(key), args).await?;
        Ok(())
    }

    async fn put_artifact(&self, write: ArtifactWrite) -> Result<ArtifactPut, Fault> {
        let ArtifactWrite { key, agent, now, artifact, parts, upload, erase_epoch, request } = write;
        let upload = format!("{}u:{upload}", blobs(&key));
        for (number, part) in parts.iter().enumerate() {
            let args = [number.to_string().into_bytes(), part.clone(), UPLOAD_MS.to_string().into_bytes()];
            let _: i64 = self.pool.script(&SCRIPTS.upload, std::slice::from_ref(&upload), &args[..]).await?;
        }
        let (id, body, answer) =
            request.map_or_else(Default::default, |(request, answer)| (request.id_hex(), request.body_hex(), answer));
        let tag = hex_digest(&artifact.trace_id);
        let mut args: Vec<Vec<u8>> =
            [now.0.to_string(), TOMBSTONE.to_string(), agent.as_ref().map_or("", AgentId::as_str).to_owned(), id, body]
                .map(String::into_bytes)
                .to_vec();
        args.push(answer);
        let rest = [
            limits::SESSION_REQUESTS.to_string(),
            limits::SESSION_ANSWER_BYTES.to_string(),
            limits::SESSION_ARTIFACTS.to_string(),
            limits::SESSION_ARTIFACT_BYTES.to_string(),
            tag.clone(),
            artifact.expire_time.map_or(0, |over| over.0).to_string(),
            artifact.stored_bytes.to_string(),
            artifact.hash.clone(),
            write_json(&artifact)?,
            parts.len().to_string(),
            erase_epoch.to_string(),
        ];
        args.extend(rest.map(String::into_bytes));
        let mut names = keys(&key).to_vec();
        names.extend([format!("{}b:{tag}", blobs(&key)), upload]);
        let answer: Value = self.pool.script(&SCRIPTS.put_artifact, &names, args).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "OK" => Ok(ArtifactPut::Stored),
            "SEEN" => Vec::<u8>::from_redis_value(next(&mut parts)?).map(ArtifactPut::Replay).map_err(|_| damaged()),
            "KNOWN" => stored_artifact(&text(next(&mut parts)?)?).map(ArtifactPut::Known),
            "NONE" => Err(not_found(key.session())),
            "ENDED" => Err(ended(key.session())),
            "REUSED" => Err(reused()),
            "OLD" => Err(stale_header(parse(&text(next(&mut parts)?)?)?)),
            "OTHER" => Err(other_bytes()),
            "LIMIT" => Err(too_many_artifacts(text(next(&mut parts)?)? == "bytes")),
            "LOST" => Err(Fault::unavailable("Redis")),
            _ => Err(damaged()),
        }
    }

    async fn artifact(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        trace_id: &str,
    ) -> Result<Artifact, Fault> {
        let args = [now.0.to_string(), hex_digest(trace_id)];
        let answer: Value = self.pool.script(&SCRIPTS.artifact, &keys(key), &args[..]).await?;
        let (tag, mut parts) = tagged(answer)?;
        let owner = if tag == "OK" { text(next(&mut parts)?)? } else { return Err(not_found(key.session())) };
        if agent.is_some_and(|agent| !owner.is_empty() && owner != agent.as_str()) {
            return Err(not_found(key.session()));
        }
        let stored = text(next(&mut parts)?)?;
        if stored.is_empty() {
            return Err(no_artifact(trace_id));
        }
        let artifact = stored_artifact(&stored)?;
        if artifact.is_gone(now) { Err(artifact_gone(trace_id)) } else { Ok(artifact) }
    }

    async fn artifact_part(&self, key: &SessionKey, now: Timestamp, trace_id: &str, part: u32) -> Result<Vec<u8>, Fault> {
        let tag = hex_digest(trace_id);
        let mut names = keys(key).to_vec();
        names.push(format!("{}b:{tag}", blobs(key)));
        let args = [now.0.to_string(), tag, part.to_string()];
        let bytes: Vec<u8> = self.pool.script(&SCRIPTS.part, &names, &args[..]).await?;
        if bytes.is_empty() { Err(artifact_gone(trace_id)) } else { Ok(bytes) }
    }

    async fn committed(&self, key: &SessionKey, now: Timestamp, request: RequestKey) -> Result<Option<Vec<u8>>, Fault> {
        let args = [now.0.to_string(), TOMBSTONE.to_string(), request.id_hex()];
        let answer: Value = self.pool.script(&SCRIPTS.committed, &keys(key), &args[..]).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "NONE" => Ok(None),
            "ENDED" => Err(ended(key.session())),
            _ => {
                let seen = Vec::<u8>::from_redis_value(next(&mut parts)?).map_err(|_| damaged())?;
                let (body, answer) = seen.split_at_checked(33).ok_or_else(damaged)?;
                if body[..32] != *request.body_hex().as_bytes() { Err(reused()) } else { Ok(Some(answer.to_vec())) }
            }
        }
    }

    async fn end(
        &self,
        key: &SessionKey,
        agent: Option<&AgentId>,
        now: Timestamp,
        request: Option<RequestKey>,
    ) -> Result<Ended, Fault> {
        let (id, body) = request.map_or_else(Default::default, |r| (r.id_hex(), r.body_hex()));
        let args = [now.0.to_string(), TOMBSTONE.to_string(), agent.map_or("", AgentId::as_str).to_owned(), id, body];
        let answer: Value = self.pool.script(&SCRIPTS.end, &keys(key), &args[..]).await?;
        let (tag, mut parts) = tagged(answer)?;
        match tag.as_str() {
            "OK" => Ended::decode(&text(next(&mut parts)?)?).ok_or_else(damaged),
            "NONE" => Err(not_found(key.session())),
            "REUSED" => Err(reused()),
            "AGENT" => Err(other_agent()),
            _ => Err(damaged()),
        }
    }

    async fn raise_erase_epoch(&self, user: &UserTag, epoch: u64, _now: Timestamp) -> Result<u64, Fault> {
        let args = [epoch.to_string(), EPOCH_MS.to_string()];
        let highest: String = self.pool.script(&SCRIPTS.raise, &[epochs(user)], &args[..]).await?;
        parse(&highest)
    }

    async fn drop_expired(&self, user: &UserTag, now: Timestamp) -> Result<bool, Fault> {
        let args = [now.0, HEADS_AT_ONCE as i64];
        let names: Vec<String> = self.pool.script(&SCRIPTS.expired, &[index(user)], &args[..]).await?;
        for name in &names {
            // Whatever is over is removed by the step that meets it.
            let key = SessionKey::of_user(user.clone(), SessionId::new(name.as_str())?);
            let _: Value = self.pool.script(&SCRIPTS.state, &keys(&key), now.0).await?;
        }
        Ok(names.len() >= HEADS_AT_ONCE)
    }

    async fn answers(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Vec<u8>>, Fault> {
        Ok(self.pool.script(&SCRIPTS.answers, &keys(key), now.0).await?)
    }

    async fn forget_answers(&self, key: &SessionKey, now: Timestamp) -> Result<(), Fault> {
        let _: i64 = self.pool.script(&SCRIPTS.forget_answers, &keys(key), now.0).await?;
        Ok(())
    }

    async fn erase_facts(&self, key: &SessionKey, now: Timestamp, emptied: &[FactKey], removed: &[FactKey]) -> Result<(), Fault> {
        let mut args = vec![now.0.to_string(), emptied.len().to_string()];
        args.extend(emptied.iter().chain(removed).map(|key| key.as_str().to_owned()));
        let _: i64 = self.pool.script(&SCRIPTS.erase_facts, &keys(key), args).await?;
        Ok(())
    }

    async fn artifacts(&self, key: &SessionKey, now: Timestamp) -> Result<Vec<Artifact>, Fault> {
        let stored: Vec<String> = self.pool.script(&SCRIPTS.artifacts, &keys(key), now.0).await?;
        let mut artifacts = stored.iter().map(|stored| stored_artifact(stored)).collect::<Result<Vec<_>, _>>()?;
        artifacts.sort_by(|a, b| a.trace_id.cmp(&b.trace_id));
        Ok(artifacts)
    }

    async fn erase_artifact(&self, key: &SessionKey, now: Timestamp, artifact: &Artifact, whole: bool) -> Result<(), Fault> {
        let left = if whole {
            String::new()
        } else {
            let erased = erased_artifact(artifact, now);
            format!("{}|0|{}|{}", now.0, erased.hash, write_json(&erased)?)
        };
        let args = [now.0.to_string(), hex_digest(&artifact.trace_id), left];
        let _: i64 = self.pool.script(&SCRIPTS.erase_artifact, &keys(key), &args[..]).await?;
        Ok(())
    }

    async fn medium(&self, user: &UserTag, purge: Purge, patience: Duration) -> Result<Medium, Fault> {
        let name = epochs(user);
        let known: Option<String> = self.pool.command(redis::cmd("HGET").arg(&name).arg("w")).await?;
        let (keep, medium) = self.pool.purge_files(&name, known.as_deref(), purge, patience).await?;
        if let Some(keep) = keep {
            let args = [keep, EPOCH_MS.to_string()];
            let _: i64 = self.pool.script(&SCRIPTS.wait, &[name], &args[..]).await?;
        }
        Ok(medium)
    }

    async fn sweep(&self, _now: Timestamp) -> Result<bool, Fault> {
        Ok(false)
    }

    async fn ping(&self) -> Result<(), Fault> {
        Ok(self.pool.ping().await?)
    }
}
