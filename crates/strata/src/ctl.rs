//! `strata ctl`: calls a running server and prints what people need first; `call` prints the whole answer as JSON.

use crate::{
    cli::{CtlArgs, CtlCommand, KeysCommand, MaintenanceCommand, ModeCommand, OwnerArgs, ServerArgs},
    client::{Api, Credential, no_answer, path, refused},
    explain, maintenance, transfer,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
    time::Duration,
};
use strata_core::{Clock as _, IdSource as _, time::DAY};
use strata_runtime::{
    channel::transport_failure,
    ports::{RandomIds, SystemClock},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

fn api(server: &ServerArgs) -> Result<Api> {
    Credential::resolve(&server.credential)?.api(&server.server, Duration::from_secs(server.timeout))
}

/// Runs one command. The exit code is 1 when the server refused, with its reason on standard error.
///
/// # Errors
/// When the server cannot be reached or the request is malformed.
pub async fn run(args: CtlArgs) -> Result<ExitCode> {
    let api = api(&args.server)?;
    let mut out = std::io::stdout();
    let owned = |owner: &OwnerArgs, mut request: Value| {
        request["user_id"] = json!(owner.user);
        request["agent_id"] = json!(owner.agent);
        request
    };
    let answer = match &args.command {
        CtlCommand::Health => return health(&args.server, &api).await,
        CtlCommand::Methods => {
            for method in api.methods() {
                writeln!(out, "{}", path(&method))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        CtlCommand::Status => api.call("strata.admin.v1.AdminService/GetStatus", json!({})).await,
        CtlCommand::Mode { command } => return mode(&api, command.as_ref()).await.or_else(refusal),
        CtlCommand::Keys { command } => return keys(&api, command).await.or_else(refusal),
        CtlCommand::Backup => api.call("strata.admin.v1.AdminService/Backup", json!({})).await,
        CtlCommand::Verify { repair } => match verify(&api, *repair).await {
            Ok(code) => return Ok(code),
            Err(error) => Err(error),
        },
        CtlCommand::Maintenance { command } => {
            let (args, dry_run) = match command {
                MaintenanceCommand::Run(args) => (args, false),
                MaintenanceCommand::DryRun(args) => (args, true),
            };
            return maintenance::run(&api, args, dry_run).await.or_else(refusal);
        }
        CtlCommand::Rescan { dry_run, user } => return maintenance::rescan(&api, user, *dry_run).await.or_else(refusal),
        CtlCommand::Recall { owner, query, k, explain } => {
            api.call("LongTermMemoryService/Recall", owned(owner, json!({"query": query, "k": k, "explain": explain}))).await
        }
        CtlCommand::Lookup { owner, key } => api.call("LookupMemory", owned(owner, json!({"key": key}))).await,
        CtlCommand::History { owner, name } => {
            let by = if uuid::Uuid::parse_str(name).is_ok() { "memory_id" } else { "key" };
            let mut request = json!({});
            request[by] = json!(name);
            api.call("GetHistory", owned(owner, request)).await
        }
        CtlCommand::Forget { owner, reason, memory_ids } => {
            api.call("ForgetMemories", owned(owner, json!({"memory_ids": memory_ids, "reason": reason}))).await
        }
        CtlCommand::Erase(args) => {
            let request = json!({
                "memory_ids": args.memory_ids,
                "mentions": args.mention,
                "everything": args.everything,
                "reason": args.reason,
                "request_id": args.request_id.map(|id| id.to_string()).unwrap_or_default(),
            });
            let answer = api.call("EraseMemories", owned(&args.owner, request)).await;
            return answer.and_then(|answer| erasure(&answer)).or_else(refusal);
        }
        CtlCommand::Erasure { owner, verify: false, erasure_id, .. } => {
            let answer = api.call("GetErasure", json!({"user_id": owner.user, "erasure_id": erasure_id})).await;
            return answer.and_then(|answer| erasure(&answer)).or_else(refusal);
        }
        CtlCommand::Erasure { owner, verify: true, text, erasure_id } => {
            let request = json!({"user_id": owner.user, "erasure_id": erasure_id, "texts": text});
            match api.call("VerifyErasure", request).await {
                Ok(answer) => {
                    writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
                    return Ok(if answer["absent"] == json!(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
                }
                Err(error) => Err(error),
            }
        }
        CtlCommand::Audit { verify: true, .. } => api.call("strata.admin.v1.AdminService/VerifyAudit", json!({})).await,
        CtlCommand::Audit { user, action, .. } => {
            let request = json!({"user_id": user, "action": action});
            return audit(&api, request).await.or_else(refusal);
        }
        CtlCommand::Export(args) => return transfer::export(&api, args).await.or_else(refusal),
        CtlCommand::Import(args) => return transfer::import(&api, args).await.or_else(refusal),
        CtlCommand::Window { owner, session } => {
            // A look is no use of the session: it does not renew its time to live.
            api.call("GetWindow", owned(owner, json!({"session_id": session, "no_renew": true}))).await
        }
        CtlCommand::Task { owner, task } => api.call("GetTask", owned(owner, json!({"task_id": task}))).await,
        CtlCommand::Explain { owner, trace } => return explain::explain(&api, owner, trace).await.or_else(refusal),
        CtlCommand::Decisions { user, trace, only_new } => {
            return explain::watch(&api, user, trace, *only_new).await.or_else(refusal);
        }
        CtlCommand::Call { method, request } => {
            let text = if request == "-" {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("standard input")?;
                text
            } else {
                request.clone()
            };
            api.call(method, serde_json::from_str(&text).context("the request is no JSON")?).await
        }
    };
    match answer {
        Ok(answer) => {
            writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
            // An empty list is left out of JSON, which reads as if something were missing.
            if matches!(args.command, CtlCommand::Recall { .. } | CtlCommand::Lookup { .. }) && answer.get("items").is_none() {
                writeln!(std::io::stderr(), "nothing is remembered that answers this")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => refusal(error),
    }
}

/// Prints a receipt; the exit code says whether something is left to do.
fn erasure(answer: &Value) -> Result<ExitCode> {
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(answer)?)?;
    let running = answer.pointer("/erasure/state") == Some(&json!("ERASURE_STATE_RUNNING"));
    Ok(if running { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

/// `ctl audit`: one entry a line.
async fn audit(api: &Api, request: Value) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let mut entries = api.download("strata.admin.v1.AdminService/ListAudit", request).await?;
    while let Some(mut entry) = entries.next().await? {
        entry.sort_all_objects();
        writeln!(out, "{entry}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `ctl mode`: sets if asked, then a line per layer.
async fn mode(api: &Api, command: Option<&ModeCommand>) -> Result<ExitCode> {
    if let Some(ModeCommand::Set { layer, mode, reason, expected_version }) = command {
        let mut request = json!({
            "layer": layer, "mode": mode.to_ascii_uppercase().replace('-', "_"), "reason": reason,
            "request_id": RandomIds.next().to_string(),
        });
        if let Some(version) = expected_version {
            request["expected_version"] = json!(version);
        }
        api.call("strata.admin.v1.AdminService/SetMode", request).await?;
    }
    let answer = api.call("strata.admin.v1.AdminService/GetModes", json!({})).await?;
    let mut out = std::io::stdout();
    for one in answer["modes"].as_array().into_iter().flatten() {
        let text = |name: &str| one[name].as_str().unwrap_or_default().trim_start_matches("MODE_").to_owned();
        write!(out, "{:<9} {}", text("layer"), text("mode"))?;
        if text("configured") != "NORMAL" {
            write!(out, "  configuration: {}", text("configured"))?;
        }
        if !text("actor").is_empty() {
            let version = one["version"].as_u64().unwrap_or_default();
            write!(
                out,
                "  set: {} by {} at {} (version {version}): {}",
                text("set"),
                text("actor"),
                text("set_time"),
                text("reason")
            )?;
        }
        writeln!(out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `ctl keys`.
async fn keys(api: &Api, command: &KeysCommand) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let text = |key: &Value, name: &str| key[name].as_str().unwrap_or_default().to_owned();
    match command {
        KeysCommand::Create { id, user, roles, days } => {
            let roles: Vec<String> = roles.iter().map(|role| role.to_ascii_uppercase().replace('-', "_")).collect();
            let mut request = json!({
                "key_id": id, "user_id": user.as_deref().unwrap_or_default(), "roles": roles,
                "request_id": RandomIds.next().to_string(),
            });
            if let Some(days) = days {
                let end = SystemClock.now().plus(i64::from(*days) * DAY);
                let end = jiff::Timestamp::from_microsecond(end.micros()).context("the end of the key")?;
                request["expire_time"] = json!(end.to_string());
            }
            let answer = api.call("strata.admin.v1.AdminService/CreateApiKey", request).await?;
            writeln!(out, "{}", text(&answer, "secret"))?;
            writeln!(std::io::stderr(), "{id} is made; the line above is its secret and is stored nowhere: keep it now")?;
        }
        KeysCommand::List { all } => {
            let mut token = String::new();
            loop {
                let request = json!({"include_ended": all, "page_token": token});
                let page = api.call("strata.admin.v1.AdminService/ListApiKeys", request).await?;
                for key in page["keys"].as_array().into_iter().flatten() {
                    let role = |role: &Value| role.as_str().unwrap_or_default().trim_start_matches("CALLER_ROLE_").to_lowercase();
                    let roles: Vec<String> = key["roles"].as_array().into_iter().flatten().map(role).collect();
                    let user = text(key, "user_id");
                    let user = if user.is_empty() { "any user" } else { &user };
                    write!(out, "{:<20} {:<16} {}", text(key, "key_id"), user, roles.join(","))?;
                    for (name, says) in [("expire_time", "until"), ("revoke_time", "revoked")] {
                        if !text(key, name).is_empty() {
                            write!(out, "  {says} {}", text(key, name))?;
                        }
                    }
                    writeln!(out)?;
                }
                page["next_page_token"].as_str().unwrap_or_default().clone_into(&mut token);
                if token.is_empty() {
                    break;
                }
            }
        }
        KeysCommand::Revoke { id, reason } => {
            api.call("strata.admin.v1.AdminService/RevokeApiKey", json!({"key_id": id, "reason": reason})).await?;
            writeln!(out, "{id} is revoked")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Records and entries a page of the check looks at: a call stays short.
const VERIFY_PAGE: u32 = 500;

/// `ctl verify`: every page; one line per difference, then the sums.
async fn verify(api: &Api, repair: bool) -> Result<ExitCode> {
    let mut out = std::io::stdout();
    let (mut records, mut points, mut pending, mut differences) = (0, 0, 0, 0_u64);
    let mut token = String::new();
    loop {
        let request = json!({"repair": repair, "page_size": VERIFY_PAGE, "page_token": token});
        let page = api.call("strata.admin.v1.AdminService/VerifyConsistency", request).await?;
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or_default();
        records += number(&page, "records");
        points += number(&page, "points");
        pending += number(&page, "pending");
        for one in page["differences"].as_array().into_iter().flatten() {
            differences += 1;
            let kind = one["kind"].as_str().unwrap_or_default().trim_start_matches("DIFFERENCE_KIND_");
            let (record, index) = (number(one, "record_version"), number(one, "index_version"));
            let id = one["memory_id"].as_str().unwrap_or_default();
            writeln!(out, "{id}  {kind:<13}  record version {record}, index version {index}")?;
        }
        page["next_page_token"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    writeln!(out, "{records} records and {points} entries of the index compared, {pending} on their way, {differences} differ")?;
    if differences > 0 && repair {
        writeln!(out, "the repair is under way; run the check again to see that nothing differs")?;
    }
    Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `strata reindex`.
///
/// # Errors
/// When the server cannot be reached.
pub async fn reindex(server: &ServerArgs) -> Result<ExitCode> {
    match api(server)?.call("strata.admin.v1.AdminService/Reindex", json!({})).await {
        Ok(answer) => {
            writeln!(
                std::io::stdout(),
                "{} records are queued for the index; `strata ctl status` shows how far it is",
                answer["records"]
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => refusal(error),
    }
}

fn refusal(error: anyhow::Error) -> Result<ExitCode> {
    let Some(fault) = refused(&error) else { return Err(error) };
    let mut err = std::io::stderr();
    writeln!(err, "strata: {}: {}", fault.reason.name(), fault.message)?;
    for p in &fault.preconditions {
        writeln!(err, "  {} {}", p.rule, p.description)?;
    }
    // One field is in the message already.
    for field in fault.fields.iter().filter(|_| fault.fields.len() > 1) {
        writeln!(err, "  {}: {}", field.field, field.description)?;
    }
    if fault.reason.retry_safe() {
        writeln!(err, "  retrying is safe{}", fault.retry_after_ms.map(|ms| format!(" after {ms} ms")).unwrap_or_default())?;
    }
    Ok(ExitCode::FAILURE)
}

async fn health(server: &ServerArgs, api: &Api) -> Result<ExitCode> {
    let channel = Credential::resolve(&server.credential)?.dial(&server.server)?;
    let mut services: Vec<String> = api.methods().map(|m| m.parent_service().full_name().to_owned()).collect();
    services.dedup();
    services.insert(0, String::new());
    let mut serving = true;
    for service in services {
        let mut request = tonic::Request::new(HealthCheckRequest { service: service.clone() });
        request.set_timeout(Duration::from_secs(server.timeout));
        let answer = HealthClient::new(channel.clone()).check(request).await;
        let state = match answer {
            Ok(answer) => {
                ServingStatus::try_from(answer.into_inner().status).unwrap_or(ServingStatus::Unknown).as_str_name().to_owned()
            }
            Err(status) if status.code() == tonic::Code::NotFound => "NOT_RUN_HERE".to_owned(),
            Err(status) if transport_failure(&status).is_some() => return Err(no_answer(&server.server, &status)),
            Err(status) => anyhow::bail!("{} does not answer: {}", server.server, status.message()),
        };
        serving &= matches!(state.as_str(), "SERVING" | "NOT_RUN_HERE");
        let name = if service.is_empty() { "all" } else { &service };
        writeln!(std::io::stdout(), "{name:<45} {state}")?;
    }
    Ok(if serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
