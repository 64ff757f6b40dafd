//! What operators set while the service runs: modes (rule D1) and API keys. Each is one entry with a version; of two entries of
//! one name the higher version holds, so that stores which lost sight of each other agree again by comparing.

use super::authz::{Layer, Principal, Role};
use super::modes::{Mode, Modes};
use crate::limits::{API_KEY_NAME_BYTES, API_KEYS_TENANT, CONTROL_ENTRIES, REASON_CHARS};
use crate::time::DAY;
use crate::{Fault, Reason, TenantId, Timestamp, UserId, id};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// How long a revoked or expired key is still listed.
pub const KEPT_MICROS: i64 = 90 * DAY;

/// One entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Unique name.
    pub name: String,
    /// Grows with every change: microseconds of the setter's clock, or more.
    pub version: u64,
    /// A [`Setting`] in JSON.
    pub value: String,
}

impl Entry {
    /// Whether this one holds against another of its name. A tie is decided alike everywhere.
    #[must_use]
    pub fn beats(&self, other: &Self) -> bool {
        (self.version, &self.value) > (other.version, &other.value)
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setting {
    /// A mode.
    Mode(ModeSetting),
    /// An API key.
    Key(KeySetting),
}

/// A mode that an operator set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeSetting {
    /// For whose calls.
    pub tenant: TenantId,
    /// Of which layer.
    pub layer: Layer,
    /// The mode.
    pub mode: Mode,
    /// Who set it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// When.
    pub time: Timestamp,
    /// The request that set it.
    pub request_id: Option<Uuid>,
}

/// An API key. The key itself is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySetting {
    /// Name, unique in the tenant.
    pub key_id: String,
    /// Its bearer's tenant.
    pub tenant: TenantId,
    /// Its bearer's user; without one any user of the tenant may be named.
    pub user: Option<UserId>,
    /// What its bearer may do.
    pub roles: BTreeSet<Role>,
    /// BLAKE3 of the key, 64 hexadecimal digits.
    pub hash: String,
    /// Who made it.
    pub created_by: String,
    /// When.
    pub created: Timestamp,
    /// Refused from then on.
    pub expires: Option<Timestamp>,
    /// Refused since then, by whom and why.
    pub revoked: Option<Revocation>,
    /// The request that made it.
    pub request_id: Option<Uuid>,
}

/// The end of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// When.
    pub time: Timestamp,
    /// By whom.
    pub actor: String,
    /// Why.
    pub reason: String,
}

impl KeySetting {
    /// Who its bearer is.
    #[must_use]
    pub fn principal(&self) -> Principal {
        Principal {
            id: format!("key:{}", self.key_id),
            tenant: self.tenant.clone(),
            user: self.user.clone(),
            roles: self.roles.clone(),
        }
    }

    /// Whether it opens anything at `now`.
    #[must_use]
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }

    /// When it stopped being good, if it has.
    fn ended(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked.as_ref().map(|revoked| revoked.time).or(self.expires.filter(|expires| *expires <= now))
    }
}

impl Setting {
    /// The name of its entry.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Mode(mode) => id::join(&["mode", mode.tenant.as_str(), mode.layer.name()]),
            Self::Key(key) => id::join(&["key", key.tenant.as_str(), &key.key_id]),
        }
    }
}

/// All entries, merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    entries: BTreeMap<String, (Entry, Setting)>,
}

impl Settings {
    /// Takes an entry in if it holds against what is there; false when it does not, or cannot be read: an entry of a newer
    /// release changes nothing here.
    pub fn merge(&mut self, entry: Entry) -> bool {
        if self.entries.get(&entry.name).is_some_and(|(there, _)| !entry.beats(there)) {
            return false;
        }
        let Ok(setting) = serde_json::from_str::<Setting>(&entry.value) else { return false };
        if setting.name() != entry.name {
            return false;
        }
        self.entries.insert(entry.name.clone(), (entry, setting));
        true
    }

    /// The entry of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|(entry, _)| entry)
    }

    /// Every entry.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|(entry, _)| entry)
    }

    /// The mode an operator set for a tenant's layer, with its version.
    #[must_use]
    pub fn mode(&self, tenant: &TenantId, layer: Layer) -> Option<(&ModeSetting, u64)> {
        match self.entries.get(&id::join(&["mode", tenant.as_str(), layer.name()])) {
            Some((entry, Setting::Mode(mode))) => Some((mode, entry.version)),
            Some((_, Setting::Key(_))) | None => None,
        }
    }

    /// Modes per tenant.
    #[must_use]
    pub fn modes(&self) -> BTreeMap<TenantId, Modes> {
        let mut all: BTreeMap<TenantId, Modes> = BTreeMap::new();
        for (_, setting) in self.entries.values() {
            if let Setting::Mode(set) = setting {
                let modes = all.entry(set.tenant.clone()).or_default();
                *modes = modes.with(set.layer, set.mode);
            }
        }
        all
    }

    /// Every key, of every tenant.
    pub fn keys(&self) -> impl Iterator<Item = &KeySetting> {
        self.entries.values().filter_map(|(_, setting)| match setting {
            Setting::Key(key) => Some(key),
            Setting::Mode(_) => None,
        })
    }

    /// A tenant's key.
    #[must_use]
    pub fn key(&self, tenant: &TenantId, key_id: &str) -> Option<&KeySetting> {
        match self.entries.get(&id::join(&["key", tenant.as_str(), key_id])) {
            Some((_, Setting::Key(key))) => Some(key),
            Some((_, Setting::Mode(_))) | None => None,
        }
    }

    /// The entry of a setting, newer than the one that is there.
    ///
    /// # Errors
    /// `LIMIT_REACHED` when there are [`CONTROL_ENTRIES`] of other names.
    pub fn next(&self, setting: &Setting, now: Timestamp) -> Result<Entry, Fault> {
        let name = setting.name();
        let before = self.get(&name).map(|entry| entry.version);
        if before.is_none() && self.entries.len() >= CONTROL_ENTRIES {
            return Err(Fault::limit("settings", CONTROL_ENTRIES, "modes and keys"));
        }
        let clock = u64::try_from(now.micros()).unwrap_or(0);
        let version = before.map_or(clock, |before| clock.max(before.saturating_add(1)));
        let value = serde_json::to_string(setting).map_err(|_| Fault::new(Reason::Internal, "a setting cannot be written"))?;
        Ok(Entry { name, version, value })
    }

    /// Names of entries that nobody needs any more: keys that ended long ago, modes back to normal for as long.
    #[must_use]
    pub fn stale(&self, now: Timestamp) -> Vec<String> {
        let since = now.plus(-KEPT_MICROS);
        let stale = |setting: &Setting| match setting {
            Setting::Key(key) => key.ended(now).is_some_and(|ended| ended < since),
            Setting::Mode(mode) => mode.mode == Mode::Normal && mode.time < since,
        };
        self.entries.iter().filter(|(_, (_, setting))| stale(setting)).map(|(name, _)| name.clone()).collect()
    }
}

/// Checks a new mode against what is there (rule D1): the answer is the entry to store, or none when the same request set it
/// before.
///
/// # Errors
/// `INVALID_FIELD` without a reason or for the router; `VERSION_MISMATCH` when `expected` is not the version that is there;
/// `REQUEST_ID_REUSED`.
pub fn set_mode(settings: &Settings, set: &ModeSetting, expected: Option<u64>) -> Result<Option<Entry>, Fault> {
    reason(&set.reason)?;
    if set.layer == Layer::Router {
        return Err(Fault::field("layer", "must be working, session or longterm"));
    }
    let there = settings.mode(&set.tenant, set.layer);
    if let Some((there, _)) = there
        && set.request_id.is_some()
        && there.request_id == set.request_id
    {
        return if there.mode == set.mode && there.reason == set.reason { Ok(None) } else { Err(reused()) };
    }
    let version = there.map_or(0, |(_, version)| version);
    if let Some(expected) = expected
        && expected != version
    {
        return Err(Fault::new(Reason::VersionMismatch, "expected_version: another mode was set meanwhile; read it again")
            .with("version", version.to_string()));
    }
    settings.next(&Setting::Mode(set.clone()), set.time).map(Some)
}

/// Checks a new key against what is there. The same request makes a new secret for the same key: the first was shown once and is
/// stored nowhere.
///
/// # Errors
/// `INVALID_FIELD` naming the field; `LIMIT_REACHED` with [`API_KEYS_TENANT`] keys that are good; `REQUEST_ID_REUSED`.
pub fn create_key(settings: &Settings, key: &KeySetting, now: Timestamp) -> Result<Entry, Fault> {
    id::check_id("key_id", &key.key_id)?;
    if key.key_id.len() > API_KEY_NAME_BYTES {
        return Err(Fault::field("key_id", format!("is longer than {API_KEY_NAME_BYTES} bytes")));
    }
    if key.roles.is_empty() {
        return Err(Fault::field("roles", "name at least one: a key without a role opens nothing"));
    }
    if key.expires.is_some_and(|expires| expires <= now) {
        return Err(Fault::field("expire_time", "lies in the past"));
    }
    if let Some(there) = settings.key(&key.tenant, &key.key_id) {
        if key.request_id.is_none() || there.request_id != key.request_id {
            return Err(Fault::field("key_id", "is in use or was until lately; choose another"));
        }
        if there.revoked.is_some() || (&there.user, &there.roles, there.expires) != (&key.user, &key.roles, key.expires) {
            return Err(reused());
        }
    }
    let good = settings.keys().filter(|other| other.tenant == key.tenant && other.is_good(now));
    if good.filter(|other| other.key_id != key.key_id).count() >= API_KEYS_TENANT {
        return Err(Fault::limit("api_keys", API_KEYS_TENANT, "keys of a tenant"));
    }
    settings.next(&Setting::Key(key.clone()), now)
}

/// Ends a key. None when it had ended before: its first end stays.
///
/// # Errors
/// `NOT_FOUND`; `INVALID_FIELD` without a reason.
pub fn revoke_key(
    settings: &Settings,
    tenant: &TenantId,
    key_id: &str,
    revocation: &Revocation,
) -> Result<(KeySetting, Option<Entry>), Fault> {
    reason(&revocation.reason)?;
    let there = settings.key(tenant, key_id).ok_or_else(|| Fault::not_found("api key", key_id))?;
    if there.revoked.is_some() {
        return Ok((there.clone(), None));
    }
    let key = KeySetting { revoked: Some(revocation.clone()), ..there.clone() };
    let entry = settings.next(&Setting::Key(key.clone()), revocation.time)?;
    Ok((key, Some(entry)))
}

fn reused() -> Fault {
    Fault::new(Reason::RequestIdReused, "request_id: was used for another change of this setting")
}

fn reason(text: &str) -> Result<(), Fault> {
    if text.trim().is_empty() {
        return Err(Fault::field("reason", "is required: it is kept for the audit"));
    }
    if text.chars().count() > REASON_CHARS {
        return Err(Fault::field("reason", format!("is longer than {REASON_CHARS} characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).expect("an id")
    }

    fn mode(mode: Mode, version_time: i64) -> ModeSetting {
        ModeSetting {
            tenant: tenant("t1"),
            layer: Layer::Longterm,
            mode,
            actor: "key:op".into(),
            reason: "a test".into(),
            time: NOW.plus(version_time),
            request_id: None,
        }
    }

    fn key(id: &str) -> KeySetting {
        KeySetting {
            key_id: id.into(),
            tenant: tenant("t1"),
            user: None,
            roles: BTreeSet::from([Role::Reader]),
            hash: "0".repeat(64),
            created_by: "key:op".into(),
            created: NOW,
            expires: None,
            revoked: None,
            request_id: None,
        }
    }

    fn entry(set: &ModeSetting) -> Entry {
        Settings::default().next(&Setting::Mode(set.clone()), set.time).expect("an entry")
    }

    #[test]
    fn a198_a_mode_needs_a_reason_and_the_version_that_was_read() {
        let mut settings = Settings::default();
        let blank = ModeSetting { reason: "  ".into(), ..mode(Mode::WriteOff, 0) };
        assert_eq!(set_mode(&settings, &blank, None).expect_err("refused").fields[0].field, "reason");
        let router = ModeSetting { layer: Layer::Router, ..mode(Mode::WriteOff, 0) };
        assert_eq!(set_mode(&settings, &router, None).expect_err("refused").fields[0].field, "layer");
        let first = set_mode(&settings, &mode(Mode::WriteOff, 0), Some(0)).expect("set").expect("new");
        assert!(settings.merge(first.clone()));
        let late = set_mode(&settings, &mode(Mode::Normal, 1), Some(0)).expect_err("refused");
        assert_eq!(late.reason, Reason::VersionMismatch);
        // A clock that stands still or goes back still makes a newer version.
        let second = set_mode(&settings, &mode(Mode::Normal, -10), Some(first.version)).expect("set").expect("new");
        assert!(second.version > first.version);
        assert!(settings.merge(second));
        assert!(!settings.merge(first), "the older one is late");
        assert_eq!(settings.mode(&tenant("t1"), Layer::Longterm).expect("set").0.mode, Mode::Normal);
        assert!(settings.mode(&tenant("t2"), Layer::Longterm).is_none());
    }

    #[test]
    fn a_repeated_request_sets_nothing_twice() {
        let mut settings = Settings::default();
        let asked = ModeSetting { request_id: Some(Uuid::from_u128(7)), ..mode(Mode::Bypass, 0) };
        let first = set_mode(&settings, &asked, None).expect("set").expect("new");
        settings.merge(first);
        assert_eq!(set_mode(&settings, &asked, None), Ok(None));
        let other = ModeSetting { mode: Mode::Normal, ..asked };
        assert_eq!(set_mode(&settings, &other, None).expect_err("refused").reason, Reason::RequestIdReused);
    }

    #[test]
    fn a_key_is_made_once_and_ends_once() {
        let mut settings = Settings::default();
        let asked = KeySetting { request_id: Some(Uuid::from_u128(1)), ..key("ci") };
        settings.merge(create_key(&settings, &asked, NOW).expect("made"));
        assert_eq!(create_key(&settings, &key("ci"), NOW).expect_err("in use").fields[0].field, "key_id");
        let again = KeySetting { hash: "1".repeat(64), ..asked.clone() };
        settings.merge(create_key(&settings, &again, NOW).expect("the same request: a new secret"));
        assert_eq!(settings.key(&tenant("t1"), "ci").expect("there").hash, "1".repeat(64));
        let wider = KeySetting { roles: Role::ALL.iter().copied().collect(), ..asked };
        assert_eq!(create_key(&settings, &wider, NOW).expect_err("another body").reason, Reason::RequestIdReused);

        let end = Revocation { time: NOW.plus(5), actor: "key:op".into(), reason: "leaked".into() };
        assert_eq!(revoke_key(&settings, &tenant("t2"), "ci", &end).expect_err("another tenant's").reason, Reason::NotFound);
        let (_, ended) = revoke_key(&settings, &tenant("t1"), "ci", &end).expect("revoked");
        settings.merge(ended.expect("a change"));
        assert!(!settings.key(&tenant("t1"), "ci").expect("there").is_good(NOW.plus(6)));
        let later = Revocation { time: NOW.plus(50), ..end.clone() };
        let (key, change) = revoke_key(&settings, &tenant("t1"), "ci", &later).expect("again");
        assert_eq!((key.revoked, change), (Some(end), None));
        assert!(create_key(&settings, &again, NOW).is_err(), "a revoked key does not come back by its first request");
        assert!(settings.stale(NOW.plus(KEPT_MICROS)).is_empty());
        assert_eq!(settings.stale(NOW.plus(KEPT_MICROS + 6)).len(), 1);
    }

    #[test]
    fn keys_are_bounded_and_named_and_have_roles() {
        let mut settings = Settings::default();
        for field in [
            ("key_id", KeySetting { key_id: String::new(), ..key("a") }),
            ("key_id", key(&"x".repeat(API_KEY_NAME_BYTES + 1))),
            ("roles", KeySetting { roles: BTreeSet::new(), ..key("a") }),
            ("expire_time", KeySetting { expires: Some(NOW), ..key("a") }),
        ] {
            assert_eq!(create_key(&settings, &field.1, NOW).expect_err(field.0).fields[0].field, field.0);
        }
        for n in 0..API_KEYS_TENANT {
            settings.merge(create_key(&settings, &key(&format!("k{n}")), NOW).expect("made"));
        }
        assert_eq!(create_key(&settings, &key("more"), NOW).expect_err("full").reason, Reason::LimitReached);
        let elsewhere = KeySetting { tenant: tenant("t2"), ..key("more") };
        assert!(create_key(&settings, &elsewhere, NOW).is_ok(), "one tenant does not use up another's");
    }

    proptest! {
        /// Stores that saw the same entries in any order, some twice, agree.
        #[test]
        fn a_merge_does_not_depend_on_the_order(
            entries in proptest::collection::vec((0_i64..6, proptest::sample::select(Mode::ALL)), 1..12),
            order in any::<proptest::sample::Index>(),
        ) {
            let entries: Vec<Entry> = entries.iter().map(|(time, set)| entry(&mode(*set, *time))).collect();
            let (mut one, mut other) = (Settings::default(), Settings::default());
            for entry in &entries {
                one.merge(entry.clone());
            }
            let at = order.index(entries.len());
            for entry in entries[at..].iter().chain(&entries[..at]).rev().chain(&entries) {
                other.merge(entry.clone());
            }
            prop_assert_eq!(one, other);
        }
    }
}
