//! Configuration in layers: defaults, file, environment, command line; later ones win. A wrong value is refused with
//! its field and the place it came from, and without repeating it: it may be a secret.

use figment::error::{Actual, Kind};
use figment::providers::{Env, Format, Serialized, Toml};
use figment::{Figment, Profile};
use notify::Watcher as _;
use serde::de::DeserializeOwned;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Prefix of the environment variables that are configuration: `STRATA_LONGTERM__READERS` is `longterm.readers`.
pub const ENV_PREFIX: &str = "STRATA_";
/// Variables with the prefix that are not configuration: the name of the file itself.
const ENV_IGNORED: [&str; 1] = ["CONFIG"];

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Dotted path of the field; empty when the whole file cannot be read.
    pub field: String,
    /// Where the value came from: a file, the environment, the command line.
    pub source: String,
    /// What is wrong, and what would be right. Never repeats the value.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}", self.message)?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

impl std::error::Error for ConfigProblem {}

/// Reads a configuration. `env_prefix` is [`ENV_PREFIX`]; a double underscore nests. `overrides` are dotted keys with values
/// as the environment spells them (`"readers"`, `"4"`). Unknown fields are refused if `T` is `deny_unknown_fields`.
///
/// # Errors
/// The first problem found.
pub fn load<T: DeserializeOwned>(file: Option<&Path>, env_prefix: &str, overrides: &[(String, String)]) -> Result<T, ConfigProblem> {
    let mut figment = Figment::new();
    if let Some(path) = file {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigProblem {
            field: String::new(),
            source: path.display().to_string(),
            message: format!("the file cannot be read: {}", error.kind()),
        })?;
        // Parsed here and not by path, so that a watched file cannot change between two reads.
        figment = figment.merge(Named { inner: Toml::string(&text), name: path.display().to_string() });
    }
    let env = Env::prefixed(env_prefix).filter(|key| !ENV_IGNORED.iter().any(|ignored| key == *ignored) && !is_service_link(key.as_str()));
    figment = figment.merge(env.split("__"));
    for (key, value) in overrides {
        let value: figment::value::Value = value.parse().unwrap_or_else(|never| match never {});
        figment = figment.merge(Named { inner: Serialized::default(key, value), name: "command line".into() });
    }
    figment.extract().map_err(problem)
}

/// Kubernetes gives every pod variables such as `STRATA_ROUTER_PORT_50051_TCP` for each service of its namespace; a
/// service named `strata-router` must not look like configuration.
fn is_service_link(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    !key.contains("__")
        && (key.ends_with("_SERVICE_HOST")
            || key.contains("_SERVICE_PORT")
            || key.ends_with("_PORT")
            || key.contains("_PORT_") && ["_TCP", "_UDP"].iter().any(|protocol| key.contains(protocol)))
}

/// A provider with a name for people.
struct Named<P> {
    inner: P,
    name: String,
}

impl<P: figment::Provider> figment::Provider for Named<P> {
    fn metadata(&self) -> figment::Metadata {
        figment::Metadata::named(self.name.clone())
    }

    fn data(&self) -> Result<figment::value::Map<Profile, figment::value::Dict>, figment::Error> {
        self.inner.data()
    }
}

fn problem(error: figment::Error) -> ConfigProblem {
    let source = error.metadata.as_ref().map(|metadata| metadata.name.to_string()).unwrap_or_default();
    let mut field = error.path.join(".");
    let message = match &error.kind {
        Kind::InvalidType(actual, expected) => format!("is {}, must be {expected}", kind_of(actual)),
        Kind::InvalidValue(_, expected) => format!("must be {expected}"),
        Kind::InvalidLength(_, expected) => format!("must have {expected}"),
        Kind::UnknownVariant(_, expected) => format!("must be one of {}", expected.join(", ")),
        Kind::UnknownField(name, expected) => {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(name);
            format!("there is no such field; there are {}", expected.join(", "))
        }
        Kind::MissingField(name) => {
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(name);
            "is required".into()
        }
        Kind::DuplicateField(_) => "is there twice".into(),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "is out of range".into(),
        Kind::Unsupported(_) | Kind::UnsupportedKey(_, _) => "cannot be of this type".into(),
        // The TOML parser's text (it names line and column, and may quote the line), or a validator's own.
        Kind::Message(text) => text.lines().next().unwrap_or_default().to_owned(),
    };
    ConfigProblem { field, source, message }
}

const fn kind_of(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "an integer",
        Actual::Float(_) => "a number with a fraction",
        Actual::Char(_) | Actual::Str(_) => "text",
        Actual::Bytes(_) => "bytes",
        Actual::Unit | Actual::Option => "nothing",
        Actual::NewtypeStruct | Actual::Map => "a table",
        Actual::Seq => "a list",
        Actual::Enum | Actual::UnitVariant | Actual::NewtypeVariant | Actual::TupleVariant | Actual::StructVariant => "a variant",
        Actual::Other(_) => "something else",
    }
}

/// Watches files until it is dropped.
pub struct Watch {
    _watcher: notify::RecommendedWatcher,
}

/// A burst of events (an editor's save, a symlink swap) is over when none came for this long.
const QUIET: Duration = Duration::from_millis(100);
/// A burst is taken as over after this many quiet periods, whatever still comes.
const MAX_QUIETS: u32 = 20;

/// Calls `changed` from a thread of its own each time the content of `path` has changed and it can be read. Watches the
/// directory, not the file: Kubernetes replaces a mounted file by swapping a symlink beside it, editors by renaming.
///
/// # Errors
/// When the directory cannot be watched.
pub fn watch(path: &Path, changed: impl Fn() + Send + 'static) -> Result<Watch, ConfigProblem> {
    let failed = |what: &str| ConfigProblem { field: String::new(), source: path.display().to_string(), message: what.to_owned() };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let (events, wakeups): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let mut watcher = notify::recommended_watcher(move |_| {
        // Full means that a wake-up is on its way already.
        let _ = events.try_send(());
    })
    .map_err(|_| failed("no file watcher can be made"))?;
    watcher.watch(directory, notify::RecursiveMode::NonRecursive).map_err(|_| failed("the directory cannot be watched"))?;
    let path = PathBuf::from(path);
    let mut known = digest(&path);
    let observe = move || {
        while wakeups.recv().is_ok() {
            for _ in 0..MAX_QUIETS {
                match wakeups.recv_timeout(QUIET) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            let now = digest(&path);
            // Absent for a moment while it is being replaced: the old content stays in force.
            if now.is_some() && now != known {
                known = now;
                changed();
            }
        }
    };
    std::thread::Builder::new().name("config watch".into()).spawn(observe).map_err(|_| failed("no thread can be made"))?;
    Ok(Watch { _watcher: watcher })
}

fn digest(path: &Path) -> Option<blake3::Hash> {
    std::fs::read(path).ok().map(|bytes| blake3::hash(&bytes))
}
