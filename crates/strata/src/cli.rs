//! The command line: every command teaches by its `--help`.

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::{net::SocketAddr, path::PathBuf};

/// Layered memory for AI agents, served over gRPC.
///
/// `strata serve` runs the whole product in one process with no other server. `strata replay examples/story.en.jsonl`
/// plays a conversation through it and shows what each layer did, and by which rule.
#[derive(Debug, Parser)]
#[command(name = "strata", version, max_term_width = 110, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the server: all roles in one process, or the ones named by --roles.
    #[command(after_long_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Plays dialogues through the gRPC API and shows, turn by turn, what each layer did and by which rule.
    #[command(after_long_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Calls a running server.
    #[command(after_long_help = CTL_HELP)]
    Ctl(CtlArgs),
    /// Checks or prints the configuration.
    Config(ConfigArgs),
    /// Asks a running server to rebuild the vector index from its records.
    Reindex(ServerArgs),
    /// Brings a backup of long-term memory back, while no server runs.
    #[command(after_long_help = RESTORE_HELP)]
    Restore(RestoreArgs),
    /// Checks the audit of long-term memory in its file.
    Audit(AuditArgs),
    /// Prints a completion script for a shell.
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

const SERVE_HELP: &str = "\
Examples:
  strata serve                                   all roles, embedded stores under ./strata-data, on 127.0.0.1:7420
  strata serve --redis-url redis://127.0.0.1/    the same with session memory on Redis
  strata serve --roles longterm --internal-listen 127.0.0.1:7423
  strata serve --config strata.toml              everything else: see `strata config print`

Settings come from defaults, then the file, then the environment (STRATA_SERVER__LISTEN for server.listen), then flags.
A listener that is not on loopback is refused until [auth] has credentials.";

const REPLAY_HELP: &str = "\
Examples:
  strata replay examples/story.en.jsonl                       starts an embedded server for this run
  strata replay examples/story.zh.jsonl --server http://127.0.0.1:7420
  strata replay dialogue.jsonl --json | jq .                  one JSON object a line

A file holds one JSON object a line: `meta` starts a dialogue, `turn` is something said, `call` is an RPC the agent makes
(any of `strata ctl methods`, in JSON), `query` is a question. A query with `expect` must be met: the command exits with 1
when an expectation fails. Running a file again with the same --run id repeats the same request ids: nothing doubles.";

const RESTORE_HELP: &str = "\
Examples:
  strata ctl backup                                       a running server writes one to storage.backup_dir
  strata restore backups/longterm-2026-11-30T060534Z-0192....sqlite --data-dir strata-data

The file must have the checksum it was made with: that of the .b3 file beside it, or --checksum. It is checked before
anything is replaced, and the replaced database is kept beside the new one. A server that has the database open makes the
command refuse. Backups hold long-term memory; sessions, boards and the secret of the deployment are not in them.

What was erased since the backup is erased again before the command ends, from the erasure log (storage.erasure_log_dir).
Without the log nothing is restored, unless --accept-lost-erasures says that what was erased may come back.";

const CTL_HELP: &str = "\
Examples:
  strata ctl health
  strata ctl recall --user ada \"how should invoices be booked?\"
  strata ctl history --user ada work.cost_centre
  strata ctl erase --user ada --reason \"left the company\" --everything
  strata ctl audit --action ERASED
  strata ctl explain --user ada 4bf92f3577b34da6a3ce929d0e0e4736
  strata ctl backup --timeout 600
  strata ctl verify --repair
  strata ctl export --user ada --output ada.jsonl
  strata ctl import --user ada ada.jsonl
  strata ctl mode                                            what each layer may do now, and who said so
  strata ctl mode set longterm write-off --reason \"wrong values since noon\"
  strata ctl keys create ci --roles reader,session_manager --user ada
  strata ctl keys revoke ci --reason \"leaked\"
  strata ctl methods
  strata ctl call ListMemories '{\"user_id\": \"ada\", \"page_size\": 10}'";

/// Where the configuration comes from.
#[derive(Args, Debug, Clone, Default)]
pub struct ConfigSource {
    /// Configuration file (TOML). Without it: defaults, environment and flags.
    #[arg(long, env = "STRATA_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

/// Flags of `serve`: each overrides one setting.
#[derive(Args, Debug, Clone, Default)]
pub struct ServeArgs {
    /// Configuration.
    #[command(flatten)]
    pub source: ConfigSource,
    /// Roles to run in this process, comma-separated: router, working, session, longterm. Default: all.
    #[arg(long, value_delimiter = ',')]
    pub roles: Vec<String>,
    /// Public address of the router.
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// Internal address of the layers, for routers in other processes.
    #[arg(long)]
    pub internal_listen: Option<SocketAddr>,
    /// Folder of the embedded stores.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// Redis for session memory, ledger and checkpoints, such as redis://127.0.0.1/0. Default: embedded.
    #[arg(long)]
    pub redis_url: Option<String>,
    /// Qdrant's gRPC address for the vectors, such as http://127.0.0.1:6334. Default: embedded exact index.
    #[arg(long)]
    pub qdrant_url: Option<String>,
    /// Form of the log lines on standard error.
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
}

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// How to reach a running server.
#[derive(Args, Debug, Clone)]
pub struct ServerArgs {
    /// Address of the router.
    #[arg(long, global = true, env = "STRATA_SERVER", default_value = "http://127.0.0.1:7420")]
    pub server: String,
    /// Credential and TLS.
    #[command(flatten)]
    pub credential: CredentialArgs,
    /// Seconds to wait for an answer.
    #[arg(long, global = true, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
}

/// How the caller shows who it is, and whom it trusts. What no flag says is taken from the environment
/// ([`crate::client::Credential`]): flags that exclude or need each other may stand before and after a subcommand, and a flag
/// overrides a variable of its sibling, neither of which clap can say of global arguments.
#[derive(Args, Debug, Clone, Default)]
pub struct CredentialArgs {
    /// API key or JWT; not needed on a loopback server without credentials. [env: STRATA_API_KEY]
    #[arg(long, global = true)]
    pub api_key: Option<String>,
    /// File with it instead: a flag can be seen by everyone on the host. [env: STRATA_API_KEY_FILE]
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub api_key_file: Option<PathBuf>,
    /// Authorities that the certificate of an https:// server must come from, in PEM. Default: the host's. [env: STRATA_CA_FILE]
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// Certificate to show to the server (mutual TLS), in PEM; needs its key. [env: STRATA_CERTIFICATE_FILE]
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub certificate_file: Option<PathBuf>,
    /// Its private key. [env: STRATA_PRIVATE_KEY_FILE]
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub private_key_file: Option<PathBuf>,
}

/// Arguments of `replay`.
#[derive(Args, Debug, Clone)]
pub struct ReplayArgs {
    /// Dialogue files.
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Server to play against. Without it an embedded one is started for this run.
    #[arg(long, env = "STRATA_SERVER")]
    pub server: Option<String>,
    /// Credential and TLS for --server.
    #[command(flatten)]
    pub credential: CredentialArgs,
    /// Folder for the embedded server's stores; default: a temporary one, removed at the end.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// One JSON object a line on standard output instead of text.
    #[arg(long)]
    pub json: bool,
    /// Questions to ask at most for each dialogue.
    #[arg(long, default_value_t = 5)]
    pub questions: usize,
    /// Turns to play at most for each dialogue.
    #[arg(long)]
    pub turns: Option<usize>,
    /// Names the run: the same name repeats the same request ids, so that nothing is doubled. Default: the file's name.
    #[arg(long)]
    pub run: Option<String>,
    /// Show only stored, refused and superseded statements and the answers, not every turn.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Arguments of `restore`.
#[derive(Args, Debug, Clone)]
pub struct RestoreArgs {
    /// The backup.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Configuration.
    #[command(flatten)]
    pub source: ConfigSource,
    /// Folder of the embedded stores, where the database is.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub data_dir: Option<PathBuf>,
    /// BLAKE3 digest the backup must have, as the backup answered. Default: the one in the .b3 file beside it.
    #[arg(long)]
    pub checksum: Option<String>,
    /// Go on although the erasure log is lost or incomplete: what was erased since the backup comes back. The audit says so.
    #[arg(long)]
    pub accept_lost_erasures: bool,
}

/// Arguments of `audit`.
#[derive(Args, Debug, Clone)]
pub struct AuditArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// What `audit` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Recomputes the hash chain from its first entry: exit code 1 when an entry was altered, removed or inserted. Prints the hash
    /// of the last entry; keep it, and a chain that was cut short is found out. A running server does not mind.
    Verify {
        /// Configuration.
        #[command(flatten)]
        source: ConfigSource,
        /// Folder of the embedded stores, where the database is.
        #[arg(long, value_hint = ValueHint::DirPath)]
        data_dir: Option<PathBuf>,
        /// A hash that was printed before: it must still stand in the chain.
        #[arg(long)]
        contains: Option<String>,
    },
}

impl RestoreArgs {
    /// As the flags of the server whose database it is.
    #[must_use]
    pub fn serve(&self) -> ServeArgs {
        ServeArgs { source: self.source.clone(), data_dir: self.data_dir.clone(), ..ServeArgs::default() }
    }
}

/// Arguments of `ctl`.
#[derive(Args, Debug, Clone)]
pub struct CtlArgs {
    /// Server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What to call.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// Whose memory a command is about.
#[derive(Args, Debug, Clone)]
pub struct OwnerArgs {
    /// User; may be left out when the credential names one.
    #[arg(long, short, default_value = "")]
    pub user: String,
    /// Agent.
    #[arg(long, default_value = "")]
    pub agent: String,
}

/// What `ctl` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum CtlCommand {
    /// Health per service.
    Health,
    /// Version, stores, embedder, modes and the state of every layer.
    Status,
    /// Recalls what is relevant to a question.
    Recall {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// The question.
        query: String,
        /// Items at most.
        #[arg(short, default_value_t = 5)]
        k: u32,
        /// Show how each score came about.
        #[arg(long)]
        explain: bool,
    },
    /// The value in force of a key.
    Lookup {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Key.
        key: String,
    },
    /// What a key or a record was, what replaced it, when and why.
    History {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Key or memory id.
        name: String,
    },
    /// Forgets records softly, by id.
    Forget {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Why; kept in the history.
        #[arg(long)]
        reason: String,
        /// Memory ids.
        #[arg(required = true)]
        memory_ids: Vec<String>,
    },
    /// Erases for good, in every layer: by id, by words, or everything. Prints the receipt; exit code 2 while something is left
    /// to do, which goes on by itself.
    Erase(EraseArgs),
    /// The receipt of an erasure as far as it is. Exit code 2 while something is left to do.
    Erasure {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Look for what was erased again instead: exit code 1 when something is found.
        #[arg(long)]
        verify: bool,
        /// With --verify: words to look for too; nothing of what was erased is kept.
        #[arg(long, requires = "verify")]
        text: Vec<String>,
        /// Erasure.
        erasure_id: String,
    },
    /// Prints the audit of the tenant, one JSON object a line.
    Audit {
        /// Only about this user.
        #[arg(long, short, default_value = "")]
        user: String,
        /// Only this action, such as ERASED.
        #[arg(long, default_value = "")]
        action: String,
        /// Recompute the chain of the whole audit instead.
        #[arg(long)]
        verify: bool,
    },
    /// Writes a memory out as JSONL: a header line, then a line per record, with evidence and history.
    Export(ExportArgs),
    /// Takes an export over: what was there stays, lines that the gate refuses are named by number.
    Import(ImportArgs),
    /// The window of a session.
    Window {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Session.
        session: String,
    },
    /// A task's board.
    Task {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// Task.
        task: String,
    },
    /// Copies the long-term database to the server's backup folder, and says where and with which checksum.
    Backup,
    /// Compares records and index. Exit code 1 when they differ.
    Verify {
        /// Tells the index again what differs, and takes out what no record stands for.
        #[arg(long)]
        repair: bool,
    },
    /// Modes of the layers: what each may do now. Without a command: shows them.
    Mode {
        /// What to do.
        #[command(subcommand)]
        command: Option<ModeCommand>,
    },
    /// API keys of the tenant, made and ended while the service runs.
    Keys {
        /// What to do.
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Everything that was decided under one trace: gate, owners, candidates with scores, what was injected, what was used.
    Explain {
        /// Whose.
        #[command(flatten)]
        owner: OwnerArgs,
        /// W3C trace id, x-request-id or recall id.
        trace: String,
    },
    /// The decisions of a user as they are kept, then as they come.
    Decisions {
        /// User; may be left out when the credential names one.
        #[arg(long, short, default_value = "")]
        user: String,
        /// Only those of this trace, request or recall.
        #[arg(long, default_value = "")]
        trace: String,
        /// Only what comes from now on.
        #[arg(long)]
        only_new: bool,
    },
    /// What forgets by itself: expiry, consolidation, archive, purge.
    Maintenance {
        /// Run it, or list what a run would do.
        #[command(subcommand)]
        command: MaintenanceCommand,
    },
    /// Runs today's gate over what is in force: what it would not let in becomes a candidate again.
    Rescan {
        /// Lists it and changes nothing.
        #[arg(long)]
        dry_run: bool,
        /// Only this user.
        #[arg(long, short, default_value = "")]
        user: String,
    },
    /// Lists every RPC.
    Methods,
    /// Calls any RPC with a JSON request; `-` reads it from standard input.
    Call {
        /// Name of the RPC, such as Recall.
        method: String,
        /// Request in JSON.
        #[arg(default_value = "{}")]
        request: String,
    },
}

/// Arguments of `ctl erase`.
#[derive(Args, Debug, Clone)]
pub struct EraseArgs {
    /// Whose.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Why, without what is to be erased; kept in the audit.
    #[arg(long)]
    pub reason: String,
    /// All memory of the user, or of the agent.
    #[arg(long, conflicts_with_all = ["mention", "memory_ids"])]
    pub everything: bool,
    /// Every record, entity and skill that holds these words.
    #[arg(long, conflicts_with = "memory_ids")]
    pub mention: Vec<String>,
    /// Memory ids.
    #[arg(required_unless_present_any = ["everything", "mention"])]
    pub memory_ids: Vec<String>,
    /// UUID; the same id answers with the same erasure for 24 h.
    #[arg(long)]
    pub request_id: Option<uuid::Uuid>,
}

/// What `ctl mode` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum ModeCommand {
    /// Sets the mode of a layer for the tenant; it survives restarts.
    Set {
        /// working, session or longterm.
        layer: String,
        /// normal, recall-off, write-off or bypass.
        mode: String,
        /// Why; kept with the mode.
        #[arg(long)]
        reason: String,
        /// Only if nobody set another one since this version was shown.
        #[arg(long)]
        expected_version: Option<u64>,
    },
}

/// What `ctl keys` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Makes a key and prints it, once.
    Create {
        /// Name.
        id: String,
        /// The one user it may act for; without it any user of the tenant.
        #[arg(long)]
        user: Option<String>,
        /// Roles, comma-separated.
        #[arg(long, value_delimiter = ',', required = true)]
        roles: Vec<String>,
        /// Days until it ends; without it: never.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
    },
    /// Lists them, without their secrets.
    List {
        /// Also those that have ended, for 90 days.
        #[arg(long)]
        all: bool,
    },
    /// Ends a key.
    Revoke {
        /// Name.
        id: String,
        /// Why; kept with the key.
        #[arg(long)]
        reason: String,
    },
}

/// What `ctl maintenance` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum MaintenanceCommand {
    /// Runs it now. Ctrl-C pauses it; the next run goes on.
    Run(MaintenanceArgs),
    /// Lists each record that a run would touch, with the rule, and changes nothing.
    DryRun(MaintenanceArgs),
}

/// Arguments of `ctl maintenance`.
#[derive(Args, Debug, Clone)]
pub struct MaintenanceArgs {
    /// Only this user.
    #[arg(long, short, default_value = "")]
    pub user: String,
    /// Only these rules, comma-separated: F1, F2, F10, F5, R11, F3, F4, F7, F6.
    #[arg(long, value_delimiter = ',')]
    pub rules: Vec<String>,
}

/// How much of a memory an export holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportWhat {
    /// What is in force.
    Active,
    /// That, and what was: superseded, expired, archived.
    History,
    /// Everything that was not erased, candidates and forgotten records too.
    All,
}

/// Arguments of `ctl export`.
#[derive(Args, Debug, Clone)]
pub struct ExportArgs {
    /// Whose.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// How much.
    #[arg(long, value_enum, default_value_t = ExportWhat::All)]
    pub what: ExportWhat,
    /// File to write; appears when it is whole. Default: standard output.
    #[arg(long, short, value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
}

/// Arguments of `ctl import`.
#[derive(Args, Debug, Clone)]
pub struct ImportArgs {
    /// Whose.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Validate and judge every line, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Take the export of another user, agent or tenant over as this one's: every line passes the whole gate.
    #[arg(long)]
    pub remap: bool,
    /// UUID; the same id gives the same answer for 24 h.
    #[arg(long)]
    pub request_id: Option<uuid::Uuid>,
    /// File of `ctl export`; `-` reads standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Arguments of `config`.
#[derive(Args, Debug, Clone)]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `config` can do.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Loads and validates; names the bad field and where it came from.
    Check(ServeArgs),
    /// Prints the configuration in force, with every default and without secrets.
    Print(ServeArgs),
    /// Makes an API key: prints the key (once) and the lines for the configuration file.
    NewKey {
        /// Name of the key.
        #[arg(long)]
        id: String,
        /// Tenant it belongs to.
        #[arg(long)]
        tenant: String,
        /// User it belongs to; without it the key may name any user of its tenant.
        #[arg(long)]
        user: Option<String>,
        /// Roles, comma-separated; default: every role.
        #[arg(long, value_delimiter = ',')]
        roles: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }
}
