//! What the role keeps for its erasures: their log and its copy, where backups lie, and how far what is looked at now and then has
//! come. The saga itself is in [`crate::erase`].

use crate::erasure_log::{ErasureLog, LogCopy};
use parking_lot::Mutex;
use std::path::PathBuf;
use strata_core::Timestamp;
use strata_runtime::ports::Stopwatch;

/// What an erasure needs beside the state of the role.
#[derive(Debug, Default)]
pub struct Erasing {
    /// The log of rule E8; none: backups of the database are all there is.
    pub log: Option<ErasureLog>,
    /// Its copy in Redis.
    pub copy: Option<LogCopy>,
    /// When what is not looked at every second was last looked at.
    pub level: Mutex<Level>,
    /// Folder of the backups.
    pub backups: Option<PathBuf>,
    /// Days after which a backup is deleted by whoever runs the deployment; none: nobody said.
    pub backup_days: Option<u32>,
    /// Days after a close within which an index server's files are rid of it; none: nobody sees to it.
    pub index_days: Option<u32>,
    /// One saga at a time: its transactions would only wait for each other.
    pub alone: tokio::sync::Mutex<()>,
    /// There is something to do.
    pub wake: tokio::sync::Notify,
}

/// How the erasure log and its copy stand to each other, and the index server to what was erased.
#[derive(Debug, Default)]
pub struct Level {
    /// What the copy had is in the file.
    pub(crate) taken_over: bool,
    /// When the copy was last seen to have all of the file; none: it may lack something.
    pub(crate) since: Option<Stopwatch>,
    /// When it was last looked whether an index server's files are rid of what was erased, by the clock port.
    pub(crate) looked: Option<Timestamp>,
}
