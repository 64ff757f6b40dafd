//! Modes and API keys in the long-term database: for routers over the wire, and for the process itself.

use crate::metadata::control;
use async_trait::async_trait;
use strata_api::error::status;
use strata_api::internal::v1 as pb;
use strata_api::internal::v1::control_service_server::ControlService;
use strata_core::policy::control::Entry;
use strata_core::{Fault, limits};
use strata_runtime::Claims;
use strata_runtime::control::{ControlStore, stamp};
use strata_runtime::sqlite::Database;
use tonic::{Request, Response, Status};

/// The table.
#[derive(Clone, Debug)]
pub struct DatabaseControl(pub(crate) Database);

#[async_trait]
impl ControlStore for DatabaseControl {
    async fn list(&self, known: u64) -> Result<Option<Vec<Entry>>, Fault> {
        let entries: Vec<Entry> = self.0.read(control::list).await?;
        Ok((stamp(entries.iter()) != known).then_some(entries))
    }

    async fn put(&self, entries: &[Entry]) -> Result<(), Fault> {
        let entries = entries.to_vec();
        self.0.write(move |db| control::put(db, &entries)).await
    }

    async fn remove(&self, names: &[String]) -> Result<(), Fault> {
        let names = names.to_vec();
        self.0.write(move |db| control::remove(db, &names)).await
    }

    fn name(&self) -> &'static str {
        "longterm"
    }
}

impl DatabaseControl {
    async fn answer(&self, request: &Request<pb::ListControlRequest>) -> Result<pb::ListControlResponse, Fault> {
        Claims::of(request)?;
        let entries = self.list(request.get_ref().known).await?;
        let unchanged = entries.is_none();
        let wire = |entry: Entry| pb::ControlEntry { name: entry.name, version: entry.version, value: entry.value };
        Ok(pb::ListControlResponse { unchanged, entries: entries.into_iter().flatten().map(wire).collect() })
    }

    async fn keep(&self, request: Request<pb::PutControlRequest>) -> Result<pb::PutControlResponse, Fault> {
        Claims::of(&request)?.require_write()?;
        let body = request.into_inner();
        if body.entries.len().max(body.forget.len()) > limits::CONTROL_ENTRIES {
            return Err(Fault::limit("entries", limits::CONTROL_ENTRIES, "modes and keys"));
        }
        if body.entries.iter().any(|entry| entry.name.len() + entry.value.len() > limits::CONTROL_ENTRY_BYTES) {
            return Err(Fault::limit("entries", limits::CONTROL_ENTRY_BYTES, "bytes"));
        }
        let entry = |wire: pb::ControlEntry| Entry { name: wire.name, version: wire.version, value: wire.value };
        let entries: Vec<Entry> = body.entries.into_iter().map(entry).collect();
        if !entries.is_empty() {
            self.put(&entries).await?;
        }
        if !body.forget.is_empty() {
            self.remove(&body.forget).await?;
        }
        Ok(pb::PutControlResponse {})
    }
}

#[tonic::async_trait]
impl ControlService for DatabaseControl {
    async fn list_control(&self, request: Request<pb::ListControlRequest>) -> Result<Response<pb::ListControlResponse>, Status> {
        self.answer(&request).await.map(Response::new).map_err(status)
    }

    async fn put_control(&self, request: Request<pb::PutControlRequest>) -> Result<Response<pb::PutControlResponse>, Status> {
        self.keep(request).await.map(Response::new).map_err(status)
    }
}
