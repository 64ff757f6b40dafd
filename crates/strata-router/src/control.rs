//! Modes and API keys (rules D1, Q5): the administration of what operators set, over [`strata_runtime::control`].

use crate::gate::Core;
use crate::layers::signed;
use async_trait::async_trait;
use std::sync::Arc;
use strata_api::admin::v1 as pb;
use strata_api::convert::{admin as convert, common};
use strata_api::internal::v1 as internal;
use strata_api::internal::v1::control_service_client::ControlServiceClient;
use strata_core::id::Level;
use strata_core::policy::authz::{Layer, Principal};
use strata_core::policy::control::{Entry, KeySetting, ModeSetting, Revocation, create_key, revoke_key, set_mode};
use strata_core::policy::modes::Mode;
use strata_core::policy::ownership::next_epoch;
use strata_core::{Clock, Fault, Reason, TenantId, UserId, limits};
use strata_runtime::control::ControlStore;
use strata_runtime::layer::auth::{hash_key, mint_key};
use strata_runtime::{CallIdentity, RpcChannel};
use tonic::Request;

/// What a page token of ListApiKeys is bound to, beside the tenant.
const LIST: &str = "ListApiKeys";
/// Layers that have a mode.
const LAYERS: [Layer; 3] = [Layer::Working, Layer::Session, Layer::Longterm];

/// The long-term database as a router reaches it.
#[derive(Clone, Debug)]
pub struct RemoteControl {
    client: ControlServiceClient<RpcChannel>,
    clock: Arc<dyn Clock>,
    principal: Principal,
}

impl RemoteControl {
    /// Over the signing channel to long-term memory.
    ///
    /// # Errors
    /// Never, as long as the router's own name is an id.
    pub fn new(channel: RpcChannel, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let tenant = TenantId::new("strata.router")?;
        let principal = Principal { id: "router".to_owned(), tenant, user: None, roles: std::collections::BTreeSet::new() };
        let client = ControlServiceClient::new(channel)
            .max_decoding_message_size(limits::MESSAGE_BYTES)
            .max_encoding_message_size(limits::MESSAGE_BYTES);
        Ok(Self { client, clock, principal })
    }

    fn outgoing<T>(&self, body: T) -> Request<T> {
        let identity = CallIdentity::new(self.principal.clone(), None);
        let mut request = signed(body, identity.writing(Level::User, next_epoch(0, self.clock.now())));
        request.set_timeout(std::time::Duration::from_secs(2));
        request
    }

    async fn keep(&self, body: internal::PutControlRequest) -> Result<(), Fault> {
        crate::layers::answer(self.client.clone().put_control(self.outgoing(body)).await).map(drop)
    }
}

/// Who sets the modes that reviews suggest.
const AUTOMATIC: &str = "automatic";

#[async_trait]
impl ControlStore for RemoteControl {
    async fn list(&self, known: u64) -> Result<Option<Vec<Entry>>, Fault> {
        let asked = self.outgoing(internal::ListControlRequest { known });
        let answer = crate::layers::answer(self.client.clone().list_control(asked).await)?;
        let entry = |wire: internal::ControlEntry| Entry { name: wire.name, version: wire.version, value: wire.value };
        Ok((!answer.unchanged).then(|| answer.entries.into_iter().map(entry).collect()))
    }

    async fn put(&self, entries: &[Entry]) -> Result<(), Fault> {
        let wire = |entry: &Entry| internal::ControlEntry {
            name: entry.name.clone(),
            version: entry.version,
            value: entry.value.clone(),
        };
        self.keep(internal::PutControlRequest { entries: entries.iter().map(wire).collect(), forget: Vec::new() }).await
    }

    async fn remove(&self, names: &[String]) -> Result<(), Fault> {
        self.keep(internal::PutControlRequest { entries: Vec::new(), forget: names.to_vec() }).await
    }

    fn name(&self) -> &'static str {
        "longterm"
    }
}

impl Core {
    /// The mode of a layer for the caller's tenant.
    fn layer_mode(&self, principal: &Principal, layer: Layer) -> pb::LayerMode {
        let board = self.control.board();
        let settings = self.control.settings();
        let set = settings.mode(&principal.tenant, layer);
        convert::layer_mode(layer, board.of(layer, &principal.tenant), board.configured(layer), set)
    }

    /// Modes of all layers.
    pub(crate) fn modes_of(&self, principal: &Principal) -> pb::GetModesResponse {
        pb::GetModesResponse { modes: LAYERS.iter().map(|layer| self.layer_mode(principal, *layer)).collect() }
    }

    /// Sets a mode (rule D1).
    pub(crate) async fn set_mode(
        &self,
        principal: &Principal,
        request: pb::SetModeRequest,
    ) -> Result<pb::SetModeResponse, Fault> {
        let layer = LAYERS.iter().find(|layer| layer.name() == request.layer);
        let layer = *layer.ok_or_else(|| Fault::field("layer", "must be working, session or longterm"))?;
        let mode: Mode = common::enumeration("mode", request.mode, convert::mode)?;
        let set = ModeSetting {
            tenant: principal.tenant.clone(),
            layer,
            mode,
            actor: principal.id.clone(),
            reason: common::text("reason", &request.reason, limits::REASON_CHARS)?,
            time: self.ports.clock.now(),
            request_id: common::request_id(&request.request_id)?,
        };
        self.control.set(|settings| Ok(((), set_mode(settings, &set, request.expected_version)?))).await?;
        tracing::warn!(
            target: "strata::audit",
            action = "SET_MODE",
            actor = principal.id,
            layer = layer.name(),
            mode = mode.name(),
            "an operator set a mode"
        );
        Ok(pb::SetModeResponse { mode: Some(self.layer_mode(principal, layer)) })
    }

    /// Takes the mode that reviews suggest (rule D3), where that is configured. What a person has set stays: only a mode that
    /// this set is left again, and only NORMAL is replaced.
    pub(crate) async fn follow_reviews(&self, principal: &Principal, suggested: pb::Mode) {
        let Some(suggested) = convert::mode(suggested).filter(|_| self.settings.load().quality.automatic) else { return };
        let settings = self.control.settings();
        let own = settings.mode(&principal.tenant, Layer::Longterm);
        let (set, actor) = own.map_or((Mode::Normal, String::new()), |(setting, _)| (setting.mode, setting.actor.clone()));
        if set == suggested || !(set == Mode::Normal || actor == AUTOMATIC) {
            return;
        }
        let by = Principal { id: AUTOMATIC.to_owned(), ..principal.clone() };
        let request = pb::SetModeRequest {
            layer: Layer::Longterm.name().to_owned(),
            mode: convert::wire_mode(suggested).into(),
            reason: "D3: the newest reviews suggest it".to_owned(),
            ..pb::SetModeRequest::default()
        };
        if let Err(fault) = self.set_mode(&by, request).await {
            tracing::warn!(reason = fault.reason.name(), "the mode that reviews suggest could not be set");
        }
    }

    /// Makes an API key.
    pub(crate) async fn create_api_key(
        &self,
        principal: &Principal,
        request: pb::CreateApiKeyRequest,
    ) -> Result<pb::CreateApiKeyResponse, Fault> {
        let user = if request.user_id.is_empty() { principal.user.clone() } else { Some(UserId::new(&request.user_id)?) };
        if principal.user.is_some() && principal.user != user {
            return Err(Fault::new(Reason::OwnerMismatch, "user_id: the credential belongs to another user"));
        }
        let roles = request.roles.iter().map(|role| common::enumeration("roles", *role, convert::role));
        let now = self.ports.clock.now();
        let secret = mint_key(&*self.ports.ids);
        let text = secrecy::ExposeSecret::expose_secret(&secret).to_owned();
        let key = KeySetting {
            key_id: request.key_id,
            tenant: principal.tenant.clone(),
            user,
            roles: roles.collect::<Result<_, _>>()?,
            hash: hash_key(&text).to_hex().to_string(),
            created_by: principal.id.clone(),
            created: now,
            expires: common::optional_time("expire_time", request.expire_time.as_ref())?,
            revoked: None,
            request_id: common::request_id(&request.request_id)?,
        };
        self.control.set(|settings| Ok(((), Some(create_key(settings, &key, now)?)))).await?;
        tracing::warn!(target: "strata::audit", action = "CREATE_API_KEY", actor = principal.id, key = key.key_id, "an API key was made");
        Ok(pb::CreateApiKeyResponse { key: Some(convert::api_key(&key)), secret: text })
    }

    /// Lists the tenant's API keys.
    pub(crate) fn list_api_keys(
        &self,
        principal: &Principal,
        request: &pb::ListApiKeysRequest,
    ) -> Result<pb::ListApiKeysResponse, Fault> {
        let page = limits::page("page_size", request.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let all = if request.include_ended { "all" } else { "good" };
        let binding = [LIST, principal.tenant.as_str(), all];
        let after = self.tokens.open(&binding, &request.page_token)?.unwrap_or_default();
        let now = self.ports.clock.now();
        let settings = self.control.settings();
        let mut keys: Vec<&KeySetting> = settings
            .keys()
            .filter(|key| key.tenant == principal.tenant && key.key_id > after && (request.include_ended || key.is_good(now)))
            .collect();
        keys.sort_by(|a, b| a.key_id.cmp(&b.key_id));
        let size = page.size as usize;
        let next = if keys.len() > size { keys.get(size - 1).map(|last| self.tokens.mint(&binding, &last.key_id)) } else { None };
        keys.truncate(size);
        Ok(pb::ListApiKeysResponse {
            keys: keys.into_iter().map(convert::api_key).collect(),
            next_page_token: next.unwrap_or_default(),
        })
    }

    /// Ends an API key.
    pub(crate) async fn revoke_api_key(
        &self,
        principal: &Principal,
        request: pb::RevokeApiKeyRequest,
    ) -> Result<pb::RevokeApiKeyResponse, Fault> {
        common::request_id(&request.request_id)?;
        let end = Revocation {
            time: self.ports.clock.now(),
            actor: principal.id.clone(),
            reason: common::text("reason", &request.reason, limits::REASON_CHARS)?,
        };
        let key = self.control.set(|settings| revoke_key(settings, &principal.tenant, &request.key_id, &end)).await?;
        tracing::warn!(target: "strata::audit", action = "REVOKE_API_KEY", actor = principal.id, key = key.key_id, "an API key was revoked");
        Ok(pb::RevokeApiKeyResponse { key: Some(convert::api_key(&key)) })
    }
}
