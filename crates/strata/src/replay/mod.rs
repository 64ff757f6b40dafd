//! `strata replay`: the main job. Plays a conversation through the gRPC API of a running server, or of an embedded one
//! started for the run, and shows what each layer did and by which rule.

mod dialogue;
mod player;
mod report;

use crate::{assemble, cli::ReplayArgs, client::Credential, config::Config};
use anyhow::{Context as _, Result};
use report::Report;
use std::time::Duration;

/// Seconds an RPC of a replay may take: generous, since a dialogue is played in order.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Plays the files; false when an expectation failed.
///
/// # Errors
/// When a file is malformed, the server cannot be reached, or it refuses what no dialogue may cause.
pub async fn run(args: ReplayArgs) -> Result<bool> {
    let mut report = Report::new(args.json, args.quiet);
    let dialogues = args.files.iter().map(|file| Ok((file, dialogue::read(file)?))).collect::<Result<Vec<_>>>()?;
    let mut embedded = None;
    let api = match &args.server {
        Some(url) => Credential::resolve(&args.credential)?.api(url, TIMEOUT)?,
        None => {
            let (config, scratch) = embedded_config(&args)?;
            let server = assemble::start(config, None).await.context("the embedded server does not start")?;
            server.ready().await;
            let url = format!("http://{}", server.public_address().context("the embedded server has no public address")?);
            embedded = Some((server, scratch));
            Credential::default().api(&url, TIMEOUT)?
        }
    };
    let status = api.call("strata.admin.v1.AdminService/GetStatus", serde_json::json!({})).await.ok();
    report.header(args.server.as_deref(), status.as_ref());
    let mut met = true;
    let outcome = async {
        for (file, dialogues) in &dialogues {
            let run = args
                .run
                .clone()
                .unwrap_or_else(|| file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default());
            for dialogue in dialogues {
                met &= player::play(&api, dialogue, &run, &args, &mut report).await?;
            }
        }
        anyhow::Ok(())
    }
    .await;
    if let Some((server, scratch)) = embedded {
        server.stop().await;
        drop(scratch);
    }
    outcome?;
    report.finish(met)?;
    Ok(met)
}

fn embedded_config(args: &ReplayArgs) -> Result<(Config, Option<tempfile::TempDir>)> {
    let scratch = if args.data_dir.is_none() { Some(tempfile::tempdir().context("no temporary folder")?) } else { None };
    let dir = args.data_dir.clone().or_else(|| scratch.as_ref().map(|s| s.path().to_owned())).unwrap_or_default();
    let mut config = Config::load(&crate::cli::ServeArgs { data_dir: Some(dir), ..Default::default() })?;
    config.server.listen = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    Ok((config, scratch))
}
