//! The part of an erasure that lies outside of long-term memory (rules E2, E4): promotions and claims of the router's own store,
//! session memory, working memory. Long-term memory's journal says what is to be done and is told what was; a router that stops
//! in between leaves it to the next one, like open promotions.

use crate::gate::Core;
use crate::layers::{answer, placed, reading, signed};
use crate::ledger::Wanted;
use crate::owners::is_down;
use crate::promote::{self, Entry, finding};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use strata_api::internal::v1 as internal;
use strata_api::longterm::v1 as longterm;
use strata_core::id::Level;
use strata_core::limits::{DECISIONS_PER_USER, OBSERVE_PER_USER};
use strata_core::policy::authz::{Principal, Role};
use strata_core::policy::decision::Decision;
use strata_core::policy::erasure::{Physical, Purge};
use strata_core::policy::promotion::{Hold, Origin, State};
use strata_core::{AgentId, Fault, Owner, Reason, TenantId, UserId};
use strata_runtime::CallIdentity;
use strata_text::needles::Needles;

/// Longest wait for one part of an erasure at a layer.
const PART: Duration = Duration::from_secs(10);
/// Longest wait for the journal.
const JOURNAL: Duration = Duration::from_secs(5);
/// Longest time that the call which asks for an erasure waits for the layers; what is not done by then goes on without it.
const PATIENCE: Duration = Duration::from_secs(3);
/// Parts of one layer: more than an owner at every limit needs.
const PARTS: usize = 10_000;

/// An open erasure.
#[derive(Clone, Debug)]
struct Open {
    erasure_id: String,
    epoch: u64,
    owner: Owner,
    principal: Principal,
    scopes: Vec<internal::ErasureScope>,
    steps: Vec<String>,
}

impl Open {
    fn of(wire: internal::OpenErasure) -> Result<Self, Fault> {
        let first = wire.scopes.first().cloned().unwrap_or_default();
        let agent = if first.agent_id.is_empty() { None } else { Some(AgentId::new(first.agent_id.as_str())?) };
        let tenant = TenantId::new(wire.tenant_id)?;
        let owner = Owner { tenant: tenant.clone(), user: UserId::new(first.user_id.as_str())?, agent };
        Ok(Self {
            erasure_id: first.erasure_id,
            epoch: first.erase_epoch,
            principal: Principal { id: wire.actor, tenant, user: None, roles: [Role::Eraser].into() },
            owner,
            scopes: wire.scopes,
            steps: wire.steps,
        })
    }

    fn identity(&self, level: Level, epoch: u64) -> CallIdentity {
        // As new as the erasure itself: it is what makes older calls old.
        reading(&self.principal, &self.owner).writing(level, epoch).as_of(self.epoch.max(1))
    }
}

/// Those that can be driven. One that cannot be read is told of and holds up no other one, of another tenant least of all.
fn readable(erasures: Vec<internal::OpenErasure>) -> Vec<Open> {
    let read = |wire: internal::OpenErasure| {
        let erasure_id = wire.scopes.first().map(|scope| scope.erasure_id.clone()).unwrap_or_default();
        Open::of(wire)
            .inspect_err(|fault| tracing::error!(erasure_id, %fault, "an erasure cannot be read; ask for it again"))
            .ok()
    };
    erasures.into_iter().filter_map(read).collect()
}

/// Counts by store, summed over parts; the last state of a store stands.
#[derive(Debug, Default)]
struct Sums(BTreeMap<String, internal::StoreErasure>);

impl Sums {
    fn add(&mut self, stores: Vec<internal::StoreErasure>) {
        for store in stores {
            let sum = self.0.entry(store.store.clone()).or_default();
            let (found, removed, remaining) =
                (sum.found + store.found, sum.removed + store.removed, sum.remaining + store.remaining);
            *sum = internal::StoreErasure { found, removed, remaining, ..store };
        }
    }

    /// What was found when it was looked for again stands for what remains.
    fn look_again(&mut self, found: &Self) {
        for store in self.0.values_mut() {
            store.remaining = found.0.get(&store.store).map_or(0, |found| found.found);
        }
        for (name, found) in found.0.iter().filter(|(_, found)| found.found > 0) {
            let sum = self
                .0
                .entry(name.clone())
                .or_insert_with(|| internal::StoreErasure { store: name.clone(), ..Default::default() });
            sum.remaining = found.found;
        }
    }

    fn into_stores(self) -> Vec<internal::StoreErasure> {
        self.0.into_values().collect()
    }
}

/// Which layer a step is about.
#[derive(Clone, Copy, Debug)]
enum Layer {
    Session,
    Working,
}

/// What an erasure looks for in the journal of promotions.
struct Sight {
    needles: Needles,
    turns: BTreeMap<String, BTreeSet<u32>>,
    keys: BTreeSet<String>,
    memory_ids: BTreeSet<String>,
    everything: bool,
    agent: Option<AgentId>,
    epoch: u64,
}

impl Sight {
    fn of(open: &Open) -> Self {
        let texts = open.scopes.iter().flat_map(|s| &s.texts).map(String::as_str);
        let short = open.scopes.iter().flat_map(|s| &s.short_texts).map(String::as_str);
        let mut turns: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for range in open.scopes.iter().flat_map(|scope| &scope.turns) {
            turns.entry(range.session_id.clone()).or_default().extend(&range.seqs);
        }
        Self {
            needles: Needles::new(texts, short),
            turns,
            keys: open.scopes.iter().flat_map(|s| s.keys.iter().cloned()).collect(),
            memory_ids: open.scopes.iter().flat_map(|s| s.memory_ids.iter().cloned()).collect(),
            everything: open.scopes.iter().any(|scope| scope.everything),
            agent: open.owner.agent.clone(),
            epoch: open.epoch,
        }
    }

    fn quotes(&self, session_id: &str, seq: u32) -> bool {
        self.turns.get(session_id).is_some_and(|seqs| seqs.contains(&seq))
    }

    /// Whether something that waits to be observed is about what is erased.
    fn waits(&self, entry: &str) -> bool {
        let job: serde_json::Value = serde_json::from_str(entry).unwrap_or_default();
        if self.everything {
            return self.agent.is_none()
                || job.pointer("/owner/agent").and_then(|agent| agent.as_str()) == self.agent.as_ref().map(|a| a.as_str());
        }
        let number = |name: &str| job[name].as_u64().and_then(|seq| u32::try_from(seq).ok()).unwrap_or_default();
        let range = number("from_seq")..=number("seq");
        let session = job["session_id"].as_str().unwrap_or_default();
        self.turns.get(session).is_some_and(|seqs| seqs.iter().any(|seq| range.contains(seq))) || self.needles.matches(entry)
    }

    /// What a decision about it holds, as it is stored: ids, keys as whole names, the agent whose memory it is.
    fn named_in_decisions(&self) -> Vec<String> {
        let whole = |name: &str| serde_json::Value::from(name).to_string();
        let agent = self.agent.as_ref().filter(|_| self.everything);
        let agent = agent.map(|agent| format!("\"agent\":{}", whole(agent.as_str())));
        self.memory_ids.iter().cloned().chain(self.keys.iter().map(|key| whole(key))).chain(agent).collect()
    }

    /// Whether an entry is about what is erased: by reference, by key, by text.
    fn matches(&self, entry: &Entry) -> Result<bool, Fault> {
        let p = &entry.promotion;
        if p.digest == promote::ERASED || u64::try_from(p.create_time.micros()).unwrap_or(0) > self.epoch {
            return Ok(false);
        }
        if self.everything {
            return Ok(self.agent.is_none() || entry.owner.agent == self.agent);
        }
        let statement = entry.statement()?;
        let reference = statement.source_ref.as_ref().and_then(|reference| reference.kind.as_ref());
        let turn = matches!(reference, Some(longterm::source_ref::Kind::Turn(turn)) if self.quotes(&turn.session_id, turn.seq));
        let sealed = || [&p.seal, &p.journalled].into_iter().flatten();
        let key = p.origin.key().is_some_and(|key| self.keys.contains(key));
        let (quoted, quote) = match &p.origin {
            Origin::TaskFact { .. } => (false, ""),
            Origin::SessionFact { session_id, .. } => {
                (sealed().filter_map(|seal| seal.turn.as_ref()).any(|turn| self.quotes(session_id, turn.seq)), "")
            }
            Origin::TurnQuote { session_id, seq, quote } => (self.quotes(session_id, *seq), quote.as_str()),
        };
        let value = statement.value.as_ref().and_then(|value| value.kind.as_ref());
        let value = if let Some(strata_api::common::v1::value::Kind::Text(text)) = value { text.as_str() } else { "" };
        let texts = [statement.content.as_str(), statement.source_quote.as_str(), value, quote];
        // What is journalled of a source may be promoted without it.
        let of_source = sealed().flat_map(|seal| [Some(&seal.value), seal.turn.as_ref().map(|turn| &turn.quote)]);
        let texts = texts.into_iter().chain(of_source.flatten().map(String::as_str));
        let ids = [&p.memory_id, &p.superseded].into_iter().flatten().any(|id| self.memory_ids.contains(id));
        let named = !statement.key.is_empty() && self.keys.contains(&statement.key);
        Ok(turn || key || quoted || ids || named || texts.into_iter().any(|text| self.needles.matches(text)))
    }
}

impl Core {
    /// Somebody who may ask the journal about every tenant: it belongs to none of them.
    fn sweeper(&self) -> Result<CallIdentity, Fault> {
        let tenant = TenantId::new("strata")?;
        let principal = Principal { id: "strata:erasure".to_owned(), tenant, user: None, roles: [Role::Eraser].into() };
        Ok(CallIdentity::new(principal, None).writing(Level::User, self.fresh_epoch()))
    }

    async fn open_erasures(&self, request: internal::ListOpenErasuresRequest) -> Result<Vec<Open>, Fault> {
        let mut client = self.layers.erasures.clone();
        let asked = client.list_open_erasures(signed(request, self.sweeper()?));
        let answered = tokio::time::timeout(JOURNAL, asked).await.map_err(|_| Fault::unavailable("long-term memory"))?;
        Ok(readable(answer(answered)?.erasures))
    }

    /// Goes on with every open erasure that no router has in hand.
    pub(crate) async fn go_on_erasing(self: &Arc<Self>) {
        match self.open_erasures(internal::ListOpenErasuresRequest::default()).await {
            Ok(all) => {
                if !all.is_empty() {
                    self.language.ready().await;
                }
                for open in all {
                    if let Err(fault) = self.drive_erasure(open).await {
                        tracing::warn!(reason = fault.reason.name(), "an erasure could not go on now");
                    }
                }
            }
            Err(fault) => tracing::debug!(%fault, "erasures wait for long-term memory"),
        }
    }

    /// Does what is to be done outside of long-term memory for the erasure that was just asked for, in a task of its own; the
    /// receipt as far as it is when the caller's patience ends.
    pub(crate) async fn erase_outside(self: &Arc<Self>, begun: longterm::Erasure) -> longterm::Erasure {
        let (core, erasure_id) = (Arc::clone(self), begun.erasure_id.clone());
        let driven = strata_runtime::task::detached_write(async move {
            let request = internal::ListOpenErasuresRequest { erasure_id, closed: false };
            let mut last = None;
            for open in core.open_erasures(request).await? {
                last = core.drive_erasure(open).await?.or(last);
            }
            Ok::<_, Fault>(last)
        });
        match tokio::time::timeout(PATIENCE, driven).await {
            Ok(Ok(Some(receipt))) => receipt,
            Ok(Ok(None)) | Err(_) => begun,
            Ok(Err(fault)) => {
                tracing::warn!(reason = fault.reason.name(), "an erasure goes on later");
                begun
            }
        }
    }

    async fn drive_erasure(self: &Arc<Self>, open: Open) -> Result<Option<longterm::Erasure>, Fault> {
        let mut receipt = None;
        for step in &open.steps {
            let done = match step.as_str() {
                "ledger" => self.erase_ledger(&open).await,
                "session" => self.erase_layer(&open, Layer::Session).await,
                "working" => self.erase_layer(&open, Layer::Working).await,
                _ => continue,
            };
            let (stores, problem) = match done {
                Ok(stores) => (stores, String::new()),
                Err(fault) if is_down(&fault) => (Vec::new(), format!("{step}: the store does not answer")),
                Err(fault) => (Vec::new(), format!("{step}: {}", fault.reason.name())),
            };
            let request =
                internal::SettleErasureRequest { erasure_id: open.erasure_id.clone(), step: step.clone(), stores, problem };
            let mut client = self.layers.erasures.clone();
            let told = tokio::time::timeout(JOURNAL, client.settle_erasure(signed(request, self.sweeper()?))).await;
            receipt = answer(told.map_err(|_| Fault::unavailable("long-term memory"))?)?.erasure;
        }
        Ok(receipt)
    }

    /// Erases in one layer, part by part, and looks again.
    async fn erase_layer(&self, open: &Open, layer: Layer) -> Result<Vec<internal::StoreErasure>, Fault> {
        let mut sums = Sums::default();
        for scope in &open.scopes {
            let mut cursor = String::new();
            for _ in 0..PARTS {
                let request = internal::EraseContentRequest { scope: Some(scope.clone()), cursor };
                let part = match layer {
                    Layer::Session => {
                        let mut client = self.layers.session_erasure.clone();
                        let identity = open.identity(Level::Session, self.fresh_epoch());
                        tokio::time::timeout(PART, client.erase_content(signed(request, identity))).await
                    }
                    Layer::Working => {
                        let mut client = self.layers.working_erasure.clone();
                        let identity = open.identity(Level::Task, self.fresh_epoch());
                        tokio::time::timeout(PART, client.erase_content(placed(request, identity))).await
                    }
                };
                let part = answer(part.map_err(|_| Fault::unavailable("a layer"))?)?;
                sums.add(part.stores);
                cursor = part.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        }
        let found = self.find_in_layer(open, layer).await?;
        sums.look_again(&found);
        Ok(sums.into_stores())
    }

    async fn find_in_layer(&self, open: &Open, layer: Layer) -> Result<Sums, Fault> {
        let mut sums = Sums::default();
        for scope in &open.scopes {
            let mut cursor = String::new();
            for _ in 0..PARTS {
                let request = internal::FindContentRequest { scope: Some(scope.clone()), cursor };
                let identity = reading(&open.principal, &open.owner).as_of(open.epoch.max(1));
                let part = match layer {
                    Layer::Session => {
                        let mut client = self.layers.session_erasure.clone();
                        let identity = identity.writing(Level::Session, self.fresh_epoch());
                        tokio::time::timeout(PART, client.find_content(signed(request, identity))).await
                    }
                    Layer::Working => {
                        let mut client = self.layers.working_erasure.clone();
                        let identity = identity.writing(Level::Task, self.fresh_epoch());
                        tokio::time::timeout(PART, client.find_content(placed(request, identity))).await
                    }
                };
                let part = answer(part.map_err(|_| Fault::unavailable("a layer"))?)?;
                sums.add(part.stores);
                cursor = part.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
        }
        Ok(sums)
    }

    /// Cancels promotions that are about what is erased, signs the owner's others again, blanks the journal, and drops claims
    /// and marks of the keys.
    async fn erase_ledger(self: &Arc<Self>, open: &Open) -> Result<Vec<internal::StoreErasure>, Fault> {
        let sight = Sight::of(open);
        let (mut found, mut removed) = (0, 0);
        for entry in self.journal_list(&open.owner).await? {
            if !sight.matches(&entry)? {
                if entry.promotion.is_open() && entry.signed_at < open.epoch {
                    let mut again = entry;
                    again.signed_at = open.epoch;
                    self.replace(again).await?;
                }
                continue;
            }
            found += 1;
            removed += u64::from(self.cancel(entry).await?);
        }
        let remaining =
            self.journal_list(&open.owner).await?.iter().map(|entry| sight.matches(entry)).collect::<Result<Vec<_>, _>>()?;
        let remaining = remaining.into_iter().filter(|matches| *matches).count() as u64;
        let (claims, left) = self.erase_claims(open, &sight).await?;
        let decisions = self.erase_decisions(open, &sight).await?;
        let told = self.find_decisions(open, &sight).await?;
        let (waiting, still) = self.erase_observations(open, &sight, true).await?;
        let purge = if removed + claims + decisions + waiting > 0 { Purge::Anew } else { Purge::Again };
        let medium = self.ledger.medium(&open.owner.user_key(), purge).await?;
        let physical = match medium.state {
            Physical::Gone => internal::PhysicalState::Gone,
            Physical::Pending => internal::PhysicalState::Pending,
            Physical::NotPermitted => internal::PhysicalState::NotPermitted,
        };
        let row = |store: &str, found, removed, remaining| internal::StoreErasure {
            store: store.to_owned(),
            found,
            removed,
            remaining,
            physical: physical.into(),
            gone_by: None,
            detail: medium.detail.to_owned(),
        };
        Ok(vec![
            row("ledger.promotions", found, removed, remaining),
            row("ledger.claims", claims, claims, left),
            row("ledger.decisions", decisions + told, decisions, told),
            row("ledger.observations", waiting, waiting, still),
        ])
    }

    /// Takes the decisions away, kept for Explain, that name what is erased.
    async fn erase_decisions(&self, open: &Open, sight: &Sight) -> Result<u64, Fault> {
        let Some(log) = self.ledger.decisions() else { return Ok(0) };
        let user = open.owner.user_key();
        // What was decided before and is not stored yet would come in behind.
        self.keeper.flush().await;
        if sight.everything && sight.agent.is_none() {
            return log.erase(&user, None).await;
        }
        log.erase(&user, Some(&sight.named_in_decisions())).await
    }

    /// How many decisions of before the erasure name what is erased. What was decided since then tells of ids that lead nowhere.
    async fn find_decisions(&self, open: &Open, sight: &Sight) -> Result<u64, Fault> {
        let Some(log) = self.ledger.decisions() else { return Ok(0) };
        let all = Wanted::After(String::new());
        let kept = log.kept(&open.owner.user_key(), &all, DECISIONS_PER_USER, self.ports.clock.now()).await?;
        let names = sight.named_in_decisions();
        let everything = sight.everything && sight.agent.is_none();
        let named = kept.entries.into_iter().filter(|entry| everything || names.iter().any(|name| entry.contains(name)));
        let before = |decision: &Decision| u64::try_from(decision.time.micros()).unwrap_or(0) <= sight.epoch;
        Ok(crate::explain::decode(named).filter(before).count() as u64)
    }

    /// What waits to be observed and holds it, or is about turns that do: taken out, or only counted. With what is left.
    async fn erase_observations(&self, open: &Open, sight: &Sight, change: bool) -> Result<(u64, u64), Fault> {
        let Some(queue) = self.ledger.queue() else { return Ok((0, 0)) };
        let user = open.owner.user_key();
        let mut found = 0;
        for waiting in queue.head(&user, OBSERVE_PER_USER, self.ports.clock.now()).await? {
            if sight.waits(&waiting.entry) {
                found += 1;
                if change {
                    queue.done(&user, &waiting.place).await?;
                }
            }
        }
        Ok((found, if change { 0 } else { found }))
    }

    async fn erase_claims(&self, open: &Open, sight: &Sight) -> Result<(u64, u64), Fault> {
        if sight.everything && sight.agent.is_none() {
            self.owners.forget_late(&open.owner, None);
            return Ok((self.ledger.forget_user(&open.owner.user_key()).await?, 0));
        }
        let keys: BTreeSet<String> = sight.keys.iter().map(|key| self.registry.resolve_alias(key).to_owned()).collect();
        self.owners.forget_late(&open.owner, Some(&keys));
        let (mut claims, mut left) = (0, 0);
        for key in &keys {
            claims += self.owners.erase_key(&open.owner, key).await?;
            left += u64::from(self.owners.has_key(&open.owner, key).await?);
        }
        Ok((claims, left))
    }

    async fn journal_list(&self, owner: &Owner) -> Result<Vec<Entry>, Fault> {
        let rows = self.ledger.journal_list(&owner.user_key(), self.ports.clock.now()).await?;
        rows.iter().map(promote::decode).collect()
    }

    /// Writes an entry in place of the one it was made from; another router may be faster.
    async fn replace(&self, mut entry: Entry) -> Result<Option<Entry>, Fault> {
        let seen = entry.promotion.revision;
        entry.promotion.revision += 1;
        Ok(self.write_entry(&entry, Some(seen)).await?.then_some(entry))
    }

    /// Ends a promotion and takes its content out of the journal. False: its source or its target does not answer; it is over
    /// for good all the same, and tried again.
    async fn cancel(self: &Arc<Self>, entry: Entry) -> Result<bool, Fault> {
        let now = self.ports.clock.now();
        let mut entry = entry;
        if entry.promotion.is_open() {
            let p = &mut entry.promotion;
            // Past its deadline the saga aborts at the target and unseals the source; one that was never sent just ends.
            p.deadline = p.deadline.min(now);
            p.findings = vec![finding("E2", "ERASED", "the user erased what it is about")];
            if p.state == State::Deferred {
                p.state = State::Aborted;
                p.hold = if p.hold == Hold::Sealed { Hold::Sealed } else { Hold::Settled };
            }
            p.update_time = now;
            entry.signed_at = u64::try_from(now.micros()).unwrap_or(0);
            let Some(written) = self.replace(entry).await? else {
                return Err(Fault::new(Reason::Overloaded, "a promotion moves on").retry_after(100));
            };
            entry = self.drive(written).await?;
            if entry.promotion.is_open() {
                return Err(Fault::unavailable("the source or the target of a promotion"));
            }
        }
        entry.blank();
        Ok(self.replace(entry).await?.is_some())
    }

    /// Looks for what was erased in the layers and in the ledger again; adds to what long-term memory found.
    pub(crate) async fn find_outside(
        &self,
        request: &longterm::VerifyErasureRequest,
        mut found: longterm::VerifyErasureResponse,
    ) -> longterm::VerifyErasureResponse {
        let asked = internal::ListOpenErasuresRequest { erasure_id: request.erasure_id.clone(), closed: true };
        let open = match self.open_erasures(asked).await {
            Ok(open) => open.into_iter().next(),
            Err(_) => None,
        };
        let Some(mut open) = open else {
            found.unanswered.extend(["ledger", "session", "working"].map(str::to_owned));
            found.absent = false;
            return found;
        };
        if !open.scopes.iter().any(|scope| scope.everything) && !request.texts.is_empty() {
            let first = open.scopes.first().cloned().unwrap_or_default();
            open.scopes.push(internal::ErasureScope {
                texts: request.texts.clone(),
                turns: Vec::new(),
                memory_ids: Vec::new(),
                keys: Vec::new(),
                short_texts: Vec::new(),
                ..first
            });
        }
        let row = |store: String, remaining| longterm::ErasedStore { store, remaining, verified: true, ..Default::default() };
        let (session, working, ledger) = futures::join!(
            self.find_in_layer(&open, Layer::Session),
            self.find_in_layer(&open, Layer::Working),
            self.journal_list(&open.owner),
        );
        for (name, answered) in [("session", session), ("working", working)] {
            match answered {
                Ok(sums) => found.stores.extend(sums.0.into_values().map(|store| row(store.store, store.found))),
                Err(_) => found.unanswered.push(name.to_owned()),
            }
        }
        let sight = Sight::of(&open);
        match ledger.and_then(|entries| entries.iter().map(|entry| sight.matches(entry)).collect::<Result<Vec<_>, _>>()) {
            Ok(matches) => {
                let remaining = matches.into_iter().filter(|matches| *matches).count() as u64;
                found.stores.push(row("ledger.promotions".to_owned(), remaining));
            }
            Err(_) => found.unanswered.push("ledger".to_owned()),
        }
        let waiting = self.erase_observations(&open, &sight, false).await.map(|(waiting, _)| waiting);
        for (name, answered) in [("observations", waiting), ("decisions", self.find_decisions(&open, &sight).await)] {
            match answered {
                Ok(remaining) => found.stores.push(row(format!("ledger.{name}"), remaining)),
                Err(_) => found.unanswered.push("ledger".to_owned()),
            }
        }
        found.stores.sort_by(|a, b| a.store.cmp(&b.store));
        found.unanswered.sort();
        found.unanswered.dedup();
        found.absent = found.unanswered.is_empty() && found.stores.iter().all(|store| store.remaining == 0);
        found
    }
}
