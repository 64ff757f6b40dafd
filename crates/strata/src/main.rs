//! Strata: layered memory for AI agents. The executable: reads the command, does it, says in one line what went wrong.

mod assemble;
mod audit;
mod cli;
mod client;
mod config;
mod ctl;
mod explain;
#[cfg(test)]
mod fuzz;
mod maintenance;
mod replay;
mod restore;
mod sampler;
mod transfer;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command, ConfigCommand, ServeArgs};
use config::Config;
use std::{io::Write as _, process::ExitCode};
use strata_core::policy::authz::Role;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            // One line for people, with the causes; a closed pipe is no failure.
            if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(std::io::stderr(), "strata: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(args) => runtime()?.block_on(serve(args)),
        Command::Replay(args) => {
            runtime()?.block_on(async { Ok(if replay::run(args).await? { ExitCode::SUCCESS } else { ExitCode::FAILURE }) })
        }
        Command::Ctl(args) => runtime()?.block_on(ctl::run(args)),
        Command::Reindex(server) => runtime()?.block_on(ctl::reindex(&server)),
        Command::Restore(args) => runtime()?.block_on(restore::run(&args)),
        Command::Audit(args) => audit::run(&args),
        Command::Config(args) => config_command(args.command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "strata", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime does not start")
}

/// Logging, configuration, assembly, announce, wait for a signal, drain with a deadline.
async fn serve(args: ServeArgs) -> Result<ExitCode> {
    let config = Config::load(&args)?;
    let grace = config.grace();
    let telemetry = strata_runtime::telemetry::init(&config.telemetry()).map_err(|fault| anyhow::anyhow!("{}", fault.message))?;
    let prometheus = config.telemetry.prometheus_listen.zip(telemetry.registry());
    let server = assemble::start(config, args.source.config.as_deref()).await?;
    if let Some((address, registry)) = prometheus {
        server.expose(address, registry).await?;
    }
    server.announce();
    let (stop, ()) = tokio::join!(server.wait_for_signal(), server.ready());
    stop?;
    let clean = server.stop().await;
    if !clean {
        tracing::warn!(grace_seconds = grace.as_secs(), "not everything ended within the grace period");
    }
    Ok(ExitCode::SUCCESS)
}

fn config_command(command: ConfigCommand) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match command {
        ConfigCommand::Check(args) => {
            Config::load(&args)?;
            writeln!(out, "the configuration is valid")?;
        }
        ConfigCommand::Print(args) => {
            let config = Config::load(&args)?;
            write!(out, "{}", toml::to_string_pretty(&config).context("the configuration cannot be printed")?)?;
        }
        ConfigCommand::NewKey { id, tenant, user, roles } => {
            let roles = if roles.is_empty() {
                Role::ALL.to_vec()
            } else {
                roles
                    .iter()
                    .map(|name| {
                        let upper = name.to_ascii_uppercase();
                        Role::from_name(&upper).with_context(|| {
                            format!(
                                "there is no role {name}; there are {}",
                                Role::ALL.iter().map(|r| r.name()).collect::<Vec<_>>().join(", ")
                            )
                        })
                    })
                    .collect::<Result<_>>()?
            };
            use secrecy::ExposeSecret as _;
            let key = strata_runtime::layer::auth::mint_key(&strata_runtime::ports::RandomIds);
            let hash = strata_runtime::layer::auth::hash_key(key.expose_secret());
            writeln!(out, "# The key, shown once: {}", key.expose_secret())?;
            writeln!(out, "[[auth.api_keys]]\nid = {id:?}\nhash = \"{}\"\ntenant = {tenant:?}", hash.to_hex())?;
            if let Some(user) = user {
                writeln!(out, "user = {user:?}")?;
            }
            writeln!(out, "roles = [{}]", roles.iter().map(|r| format!("{:?}", r.name())).collect::<Vec<_>>().join(", "))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
