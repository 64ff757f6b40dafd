//! Administration: modes and API keys.

use crate::admin::v1 as pb;
use crate::convert::common::wire_time;
use strata_core::policy::authz::{Layer, Role};
use strata_core::policy::control::{KeySetting, ModeSetting};
use strata_core::policy::modes::Mode;

/// A mode of the wire; none for the unspecified one.
#[must_use]
pub const fn mode(wire: pb::Mode) -> Option<Mode> {
    match wire {
        pb::Mode::Unspecified => None,
        pb::Mode::Normal => Some(Mode::Normal),
        pb::Mode::RecallOff => Some(Mode::RecallOff),
        pb::Mode::WriteOff => Some(Mode::WriteOff),
        pb::Mode::Bypass => Some(Mode::Bypass),
    }
}

/// A mode on the wire.
#[must_use]
pub const fn wire_mode(mode: Mode) -> pb::Mode {
    match mode {
        Mode::Normal => pb::Mode::Normal,
        Mode::RecallOff => pb::Mode::RecallOff,
        Mode::WriteOff => pb::Mode::WriteOff,
        Mode::Bypass => pb::Mode::Bypass,
    }
}

/// A role of the wire; none for the unspecified one.
#[must_use]
pub const fn role(wire: pb::CallerRole) -> Option<Role> {
    match wire {
        pb::CallerRole::Unspecified => None,
        pb::CallerRole::TaskExecutor => Some(Role::TaskExecutor),
        pb::CallerRole::SessionManager => Some(Role::SessionManager),
        pb::CallerRole::MemoryWriter => Some(Role::MemoryWriter),
        pb::CallerRole::RecordSystem => Some(Role::RecordSystem),
        pb::CallerRole::Reader => Some(Role::Reader),
        pb::CallerRole::Eraser => Some(Role::Eraser),
        pb::CallerRole::Operator => Some(Role::Operator),
        pb::CallerRole::Auditor => Some(Role::Auditor),
    }
}

/// A role on the wire.
#[must_use]
pub const fn wire_role(role: Role) -> pb::CallerRole {
    match role {
        Role::TaskExecutor => pb::CallerRole::TaskExecutor,
        Role::SessionManager => pb::CallerRole::SessionManager,
        Role::MemoryWriter => pb::CallerRole::MemoryWriter,
        Role::RecordSystem => pb::CallerRole::RecordSystem,
        Role::Reader => pb::CallerRole::Reader,
        Role::Eraser => pb::CallerRole::Eraser,
        Role::Operator => pb::CallerRole::Operator,
        Role::Auditor => pb::CallerRole::Auditor,
    }
}

/// The mode of a layer: what is in force, what the configuration says, what was set with its version.
#[must_use]
pub fn layer_mode(layer: Layer, in_force: Mode, configured: Mode, set: Option<(&ModeSetting, u64)>) -> pb::LayerMode {
    let (setting, version) = set.unzip();
    pb::LayerMode {
        layer: layer.name().to_owned(),
        mode: wire_mode(in_force).into(),
        configured: wire_mode(configured).into(),
        set: wire_mode(setting.map_or(Mode::Normal, |setting| setting.mode)).into(),
        actor: setting.map(|setting| setting.actor.clone()).unwrap_or_default(),
        reason: setting.map(|setting| setting.reason.clone()).unwrap_or_default(),
        set_time: setting.map(|setting| wire_time(setting.time)),
        version: version.unwrap_or(0),
    }
}

/// An API key, without its hash.
#[must_use]
pub fn api_key(key: &KeySetting) -> pb::ApiKey {
    let revoked = key.revoked.as_ref();
    pb::ApiKey {
        key_id: key.key_id.clone(),
        user_id: key.user.as_ref().map(|user| user.as_str().to_owned()).unwrap_or_default(),
        roles: key.roles.iter().map(|role| wire_role(*role).into()).collect(),
        created_by: key.created_by.clone(),
        create_time: Some(wire_time(key.created)),
        expire_time: key.expires.map(wire_time),
        revoke_time: revoked.map(|revoked| wire_time(revoked.time)),
        revoked_by: revoked.map(|revoked| revoked.actor.clone()).unwrap_or_default(),
        revoke_reason: revoked.map(|revoked| revoked.reason.clone()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_and_role_has_its_value_on_the_wire() {
        for of in Mode::ALL {
            assert_eq!(mode(wire_mode(*of)), Some(*of));
            assert!(wire_mode(*of).as_str_name().ends_with(of.name()));
        }
        for of in Role::ALL {
            assert_eq!(role(wire_role(*of)), Some(*of));
            assert!(wire_role(*of).as_str_name().ends_with(of.name()));
        }
    }
}
