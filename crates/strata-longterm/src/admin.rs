//! Administration of the role: what the router passes on of `AdminService`.

use crate::backup::Backups;
use crate::maintenance::{Maintenance, Steps, rescan};
use crate::metadata::{ledger, query};
use crate::quality;
use crate::state::State;
use crate::verify::{Cursor, Kind, Verify};
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::sync::Arc;
use strata_api::admin::v1 as pb;
use strata_api::admin::v1::admin_service_server::AdminService;
use strata_api::convert::common;
use strata_api::error::status;
use strata_core::limits;
use strata_core::{Fault, Reason};
use strata_runtime::Claims;
use tonic::{Request, Response, Status};

/// What a page token of VerifyConsistency is bound to: the check covers the store, not an owner.
const VERIFY: [&str; 1] = ["VerifyConsistency"];

/// The part of `AdminService` that long-term memory does itself.
#[derive(Clone, Debug)]
pub struct Admin {
    state: Arc<State>,
    backups: Backups,
    maintenance: Maintenance,
}

impl Admin {
    /// Over the role's state.
    #[must_use]
    pub const fn new(state: Arc<State>, backups: Backups, maintenance: Maintenance) -> Self {
        Self { state, backups, maintenance }
    }

    /// What only this role knows of itself; the router adds it to its own.
    async fn report(&self, request: &Request<pb::GetStatusRequest>) -> Result<pb::GetStatusResponse, Fault> {
        Claims::of(request)?;
        let relay = self.state.relay.status().await?;
        let records: u64 = self.state.database.read(query::count).await?;
        let mut settings = BTreeMap::from([
            ("records".to_owned(), records.to_string()),
            ("generation".to_owned(), self.state.database.generation().to_string()),
            ("index.pending".to_owned(), relay.pending.to_string()),
            ("maintenance".to_owned(), self.maintenance.status().await?),
        ]);
        let state = if relay.index_down {
            format!("down: {}", relay.problem)
        } else if relay.reindexing {
            format!("{} of {} records are in it again", relay.reindex_done, relay.reindex_total)
        } else {
            "complete".to_owned()
        };
        settings.insert("index.state".to_owned(), state);
        Ok(pb::GetStatusResponse { version: String::new(), layers: Vec::new(), settings: settings.into_iter().collect() })
    }

    async fn rebuild(&self, request: &Request<pb::ReindexRequest>) -> Result<pb::ReindexResponse, Fault> {
        Claims::of(request)?.require_write()?;
        self.state.note(&Claims::of(request)?.caller, "REINDEX", "", self.state.relay.model()).await?;
        let records = self.state.relay.reindex().await?;
        let embedding_model = self.state.relay.model();
        tracing::info!(records, embedding_model, "the index is rebuilt");
        Ok(pb::ReindexResponse { records, embedding_model })
    }

    async fn copy(&self, request: &Request<pb::BackupRequest>) -> Result<pb::BackupResponse, Fault> {
        Claims::of(request)?.require_write()?;
        let asked = common::request_id(&request.get_ref().request_id)?;
        let id = asked.unwrap_or_else(|| self.state.ports.ids.next());
        let now = self.state.ports.clock.now();
        let (backup, contents) = self.backups.make(id, now).await?;
        let file = backup.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        self.state.note(&Claims::of(request)?.caller, "BACKUP", "", file).await?;
        tracing::info!(path = %backup.path.display(), bytes = backup.bytes, "a backup is made");
        Ok(pb::BackupResponse {
            path: backup.path.display().to_string(),
            bytes: backup.bytes,
            checksum: backup.checksum,
            generation: contents.generation,
            revision: contents.revision,
            records: contents.records,
        })
    }

    fn audited(&self, request: &Request<pb::ListAuditRequest>) -> Result<AuditStream, Fault> {
        let tenant = Claims::of(request)?.caller.tenant.as_str().to_owned();
        Claims::of(request)?.require_write()?;
        let r = request.get_ref();
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let asked = ledger::AuditAsked { user: text(&r.user_id), action: text(&r.action) };
        let after = i64::try_from(r.after_seq).unwrap_or(i64::MAX);
        let left = if r.limit == 0 { u64::MAX } else { r.limit };
        let database = self.state.database.clone();
        // A page at a time, each in a snapshot of its own: entries are only ever added.
        let pages = futures::stream::try_unfold((after, left), move |(after, left)| {
            let (database, tenant, asked) = (database.clone(), tenant.clone(), asked.clone());
            async move {
                let limit = left.min(u64::from(limits::PAGE_MAX));
                if limit == 0 {
                    return Ok(None);
                }
                let page = database.read(move |db| ledger::audited(db, &tenant, &asked, after, limit)).await.map_err(status)?;
                let Some(last) = page.last().map(|entry| entry.seq) else { return Ok(None) };
                let taken = page.len() as u64;
                let entries = page.into_iter().map(|entry| Ok::<_, Status>(wire_audited(entry)));
                Ok::<_, Status>(Some((futures::stream::iter(entries), (last, left - taken))))
            }
        });
        Ok(Box::pin(pages.try_flatten()))
    }

    async fn chain(&self, request: &Request<pb::VerifyAuditRequest>) -> Result<pb::VerifyAuditResponse, Fault> {
        Claims::of(request)?.require_write()?;
        let (entries, head) = self.state.database.read(ledger::verify_audit).await?;
        Ok(pb::VerifyAuditResponse { entries, head: blake3::Hash::from_bytes(head).to_hex().to_string() })
    }

    async fn verify(&self, request: &Request<pb::VerifyConsistencyRequest>) -> Result<pb::VerifyConsistencyResponse, Fault> {
        Claims::of(request)?.require_write()?;
        let r = request.get_ref();
        let limit = limits::page("page_size", r.page_size, limits::PAGE, limits::PAGE_MAX)?;
        let stale = || Fault::new(Reason::InvalidPageToken, "page_token: not a token of this check; start again without it");
        let cursor = match self.state.tokens.open(&VERIFY, &r.page_token)? {
            None => Cursor::Rows(None),
            Some(text) => Cursor::from_text(&text).ok_or_else(stale)?,
        };
        if r.repair && r.page_token.is_empty() {
            self.state.note(&Claims::of(request)?.caller, "INDEX_REPAIR", "", String::new()).await?;
        }
        let State { database, relay, ports, .. } = &*self.state;
        let verify = Verify { database, relay, now: ports.clock.now() };
        let page = verify.page(cursor, limit.size, r.repair).await?;
        let repaired = page.differences.iter().filter(|one| one.repaired).count();
        if repaired > 0 {
            self.state.note(&Claims::of(request)?.caller, "INDEX_REPAIRED", "", repaired.to_string()).await?;
        }
        if !page.differences.is_empty() {
            tracing::warn!(differences = page.differences.len(), repair = r.repair, "records and index differ");
        }
        let kind = |kind| match kind {
            Kind::Missing => pb::DifferenceKind::Missing,
            Kind::Stale => pb::DifferenceKind::Stale,
            Kind::Ahead => pb::DifferenceKind::Ahead,
            Kind::ForeignOwner => pb::DifferenceKind::ForeignOwner,
            Kind::Altered => pb::DifferenceKind::Altered,
            Kind::NoVector => pb::DifferenceKind::NoVector,
            Kind::NoTerms => pb::DifferenceKind::NoTerms,
            Kind::Extra => pb::DifferenceKind::Extra,
        };
        let differences = page.differences.iter().map(|one| pb::Difference {
            memory_id: one.memory_id.to_string(),
            kind: kind(one.kind).into(),
            record_version: one.record_version,
            index_version: one.index_version,
            repaired: one.repaired,
        });
        Ok(pb::VerifyConsistencyResponse {
            records: page.records,
            points: page.points,
            pending: page.pending,
            differences: differences.collect(),
            next_page_token: page.next.map(|next| self.state.tokens.mint(&VERIFY, &next.text())).unwrap_or_default(),
        })
    }
}

/// Entries of the audit as they are sent.
pub type AuditStream = BoxStream<'static, Result<pb::ListAuditResponse, Status>>;

fn wire_audited(entry: ledger::Audited) -> pb::ListAuditResponse {
    pb::ListAuditResponse {
        seq: u64::try_from(entry.seq).unwrap_or_default(),
        time: Some(common::wire_time(entry.time)),
        user_id: entry.user,
        action: entry.action,
        memory_id: entry.memory_id.map(|id| id.to_string()).unwrap_or_default(),
        subject: entry.subject,
        actor: entry.actor,
        rule: entry.rule,
        reason: entry.reason,
        hash: blake3::Hash::from_bytes(entry.hash).to_hex().to_string(),
    }
}

/// Served by the router alone.
fn of_the_router<T>() -> Result<Response<T>, Status> {
    Err(status(Fault::new(Reason::NotServed, "the router serves this method")))
}

#[tonic::async_trait]
impl AdminService for Admin {
    type ListAuditStream = AuditStream;

    async fn list_audit(&self, request: Request<pb::ListAuditRequest>) -> Result<Response<AuditStream>, Status> {
        self.audited(&request).map(Response::new).map_err(status)
    }

    async fn verify_audit(&self, request: Request<pb::VerifyAuditRequest>) -> Result<Response<pb::VerifyAuditResponse>, Status> {
        self.chain(&request).await.map(Response::new).map_err(status)
    }

    async fn get_modes(&self, _: Request<pb::GetModesRequest>) -> Result<Response<pb::GetModesResponse>, Status> {
        of_the_router()
    }

    async fn set_mode(&self, _: Request<pb::SetModeRequest>) -> Result<Response<pb::SetModeResponse>, Status> {
        of_the_router()
    }

    async fn create_api_key(&self, _: Request<pb::CreateApiKeyRequest>) -> Result<Response<pb::CreateApiKeyResponse>, Status> {
        of_the_router()
    }

    async fn list_api_keys(&self, _: Request<pb::ListApiKeysRequest>) -> Result<Response<pb::ListApiKeysResponse>, Status> {
        of_the_router()
    }

    async fn revoke_api_key(&self, _: Request<pb::RevokeApiKeyRequest>) -> Result<Response<pb::RevokeApiKeyResponse>, Status> {
        of_the_router()
    }

    async fn sample_for_review(
        &self,
        request: Request<pb::SampleForReviewRequest>,
    ) -> Result<Response<pb::SampleForReviewResponse>, Status> {
        quality::sample(&self.state, &request).await.map(Response::new).map_err(status)
    }

    async fn submit_review(
        &self,
        request: Request<pb::SubmitReviewRequest>,
    ) -> Result<Response<pb::SubmitReviewResponse>, Status> {
        quality::review(&self.state, &request).await.map(Response::new).map_err(status)
    }

    async fn get_quality(&self, request: Request<pb::GetQualityRequest>) -> Result<Response<pb::GetQualityResponse>, Status> {
        quality::report(&self.state, &request).await.map(Response::new).map_err(status)
    }

    type WatchDecisionsStream = futures::stream::Empty<Result<pb::WatchDecisionsResponse, Status>>;

    async fn watch_decisions(
        &self,
        _request: Request<pb::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        of_the_router()
    }

    async fn get_status(&self, request: Request<pb::GetStatusRequest>) -> Result<Response<pb::GetStatusResponse>, Status> {
        self.report(&request).await.map(Response::new).map_err(status)
    }

    async fn reindex(&self, request: Request<pb::ReindexRequest>) -> Result<Response<pb::ReindexResponse>, Status> {
        self.rebuild(&request).await.map(Response::new).map_err(status)
    }

    async fn backup(&self, request: Request<pb::BackupRequest>) -> Result<Response<pb::BackupResponse>, Status> {
        self.copy(&request).await.map(Response::new).map_err(status)
    }

    async fn verify_consistency(
        &self,
        request: Request<pb::VerifyConsistencyRequest>,
    ) -> Result<Response<pb::VerifyConsistencyResponse>, Status> {
        self.verify(&request).await.map(Response::new).map_err(status)
    }

    type RunMaintenanceStream = Steps;

    async fn run_maintenance(
        &self,
        request: Request<pb::RunMaintenanceRequest>,
    ) -> Result<Response<Self::RunMaintenanceStream>, Status> {
        let claims = Claims::of(&request).and_then(|claims| claims.require_write().map(|_| claims.clone()));
        let steps = claims.and_then(|claims| self.maintenance.stream(&claims, request.get_ref()));
        steps.map(Response::new).map_err(status)
    }

    type RescanStream = rescan::Steps;

    async fn rescan(&self, request: Request<pb::RescanRequest>) -> Result<Response<Self::RescanStream>, Status> {
        let claims = Claims::of(&request).and_then(|claims| claims.require_write().map(|_| claims.clone()));
        let steps = claims.and_then(|claims| self.maintenance.rescan(&claims, request.get_ref()));
        steps.map(Response::new).map_err(status)
    }
}
