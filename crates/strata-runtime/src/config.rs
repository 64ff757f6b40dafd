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
/// Variables with the prefix that are not configuration: the name of the file itself, and what the client commands read.
const ENV_IGNORED: [&str; 7] = ["CONFIG", "SERVER", "API_KEY", "API_KEY_FILE", "CA_FILE", "CERTIFICATE_FILE", "PRIVATE_KEY_FILE"];
/// Ending of a variable that names a file which holds the value: `STRATA_REDIS__URL__FILE` for `redis.url`. For secrets that
/// are mounted; a line end at the end of the file is not part of the value.
const ENV_FILE: &str = "__FILE";

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
pub fn load<T: DeserializeOwned>(
    file: Option<&Path>,
    env_prefix: &str,
    overrides: &[(String, String)],
) -> Result<T, ConfigProblem> {
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
    let env = Env::prefixed(env_prefix).filter(|key| {
        let key = key.as_str();
        !ENV_IGNORED.iter().any(|ignored| key.eq_ignore_ascii_case(ignored))
            && !is_service_link(key)
            && setting_in_file(key).is_none()
    });
    figment = figment.merge(env.split("__"));
    for (name, path) in std::env::vars_os() {
        let Some(setting) = name.to_str().and_then(|name| setting_in_file(name.strip_prefix(env_prefix)?)) else { continue };
        let source = format!("{}, named by the environment", Path::new(&path).display());
        let text = std::fs::read_to_string(&path).map_err(|error| ConfigProblem {
            field: setting.clone(),
            source: source.clone(),
            message: format!("the file cannot be read: {}", error.kind()),
        })?;
        let value = text.trim_end_matches(['\r', '\n']).to_owned();
        figment = figment.merge(Named { inner: Serialized::default(&setting, value), name: source });
    }
    for (key, value) in overrides {
        let value: figment::value::Value = value.parse().unwrap_or_else(|never| match never {});
        figment = figment.merge(Named { inner: Serialized::default(key, value), name: "command line".into() });
    }
    figment.extract().map_err(problem)
}

/// The setting whose value stands in the file that a variable names.
fn setting_in_file(key: &str) -> Option<String> {
    let key = key.to_ascii_uppercase();
    let setting = key.strip_suffix(ENV_FILE).filter(|setting| !setting.is_empty())?;
    Some(setting.to_ascii_lowercase().replace("__", "."))
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
    let mut path = error.path.clone();
    if let Some(name) = unnamed(&error.kind)
        && path.last().is_none_or(|last| last != name)
    {
        path.push(name.into());
    }
    let message = match &error.kind {
        Kind::InvalidType(actual, expected) => format!("is {}, must be {expected}", kind_of(actual)),
        Kind::InvalidValue(_, expected) => format!("must be {expected}"),
        Kind::InvalidLength(_, expected) => format!("must have {expected}"),
        Kind::UnknownVariant(_, expected) => format!("must be one of {}", expected.join(", ")),
        Kind::UnknownField(_, expected) => format!("there is no such field; there are {}", expected.join(", ")),
        Kind::MissingField(_) => "is required".into(),
        Kind::DuplicateField(_) => "is there twice".into(),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "is out of range".into(),
        Kind::Unsupported(_) | Kind::UnsupportedKey(_, _) => "cannot be of this type".into(),
        // The TOML parser's text (it names line and column, and may quote the line), or a validator's own.
        Kind::Message(text) => text.lines().next().unwrap_or_default().to_owned(),
    };
    ConfigProblem { field: path.join("."), source, message }
}

/// The field that an error is about beside its path.
fn unnamed(kind: &Kind) -> Option<&str> {
    match kind {
        Kind::UnknownField(name, _) => Some(name),
        Kind::MissingField(name) => Some(name),
        Kind::Message(_)
        | Kind::InvalidType(..)
        | Kind::InvalidValue(..)
        | Kind::InvalidLength(..)
        | Kind::UnknownVariant(..)
        | Kind::DuplicateField(_)
        | Kind::ISizeOutOfRange(_)
        | Kind::USizeOutOfRange(_)
        | Kind::Unsupported(_)
        | Kind::UnsupportedKey(..) => None,
    }
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
    let failed =
        |what: &str| ConfigProblem { field: String::new(), source: path.display().to_string(), message: what.to_owned() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use strata_testkit::eventually;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        listen: String,
        longterm: Longterm,
        password: secrecy_like::Secret,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Longterm {
        readers: u8,
        path: Option<String>,
    }

    mod secrecy_like {
        #[derive(Debug, Default, PartialEq, serde::Deserialize)]
        pub struct Secret(pub u64);
    }

    impl Default for Config {
        fn default() -> Self {
            Self { listen: "127.0.0.1:0".into(), longterm: Longterm::default(), password: secrecy_like::Secret(0) }
        }
    }

    impl Default for Longterm {
        fn default() -> Self {
            Self { readers: 4, path: None }
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), text).expect("write");
        file
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's jail asks for its error type")]
    fn file_then_environment_then_command_line() {
        figment::Jail::expect_with(|jail| {
            jail.create_file("strata.toml", "listen = '1.1.1.1:1'\n[longterm]\nreaders = 1\npath = '/data'\n")?;
            jail.set_env("STRATA_LONGTERM__READERS", "2");
            jail.set_env("STRATA_LISTEN", "2.2.2.2:2");
            jail.set_env("STRATA_CONFIG", "strata.toml");
            // What Kubernetes sets when a service is named strata-router.
            for (name, value) in [
                ("STRATA_ROUTER_SERVICE_HOST", "10.0.0.1"),
                ("STRATA_ROUTER_SERVICE_PORT", "7700"),
                ("STRATA_ROUTER_SERVICE_PORT_GRPC", "7700"),
                ("STRATA_ROUTER_PORT", "tcp://10.0.0.1:7700"),
                ("STRATA_ROUTER_PORT_7700_TCP_ADDR", "10.0.0.1"),
            ] {
                jail.set_env(name, value);
            }
            let overrides = [("longterm.readers".to_owned(), "3".to_owned())];
            let config: Config = load(Some(Path::new("strata.toml")), ENV_PREFIX, &overrides).expect("loads");
            assert_eq!(config.longterm, Longterm { readers: 3, path: Some("/data".into()) });
            assert_eq!(config.listen, "2.2.2.2:2");
            Ok(())
        });
    }

    #[test]
    #[expect(clippy::result_large_err, reason = "figment's jail asks for its error type")]
    fn a_variable_may_name_the_file_that_holds_the_value() {
        figment::Jail::expect_with(|jail| {
            jail.create_file("secret", "s3cret:with=signs\n")?;
            jail.set_env("STRATA_LONGTERM__PATH__FILE", "secret");
            let config: Config = load(None, ENV_PREFIX, &[]).expect("loads");
            assert_eq!(config.longterm.path.as_deref(), Some("s3cret:with=signs"));
            jail.set_env("STRATA_LONGTERM__PATH__FILE", "absent");
            let problem = load::<Config>(None, ENV_PREFIX, &[]).expect_err("absent");
            assert_eq!(problem.field, "longterm.path");
            assert!(problem.source.starts_with("absent"), "{problem}");
            Ok(())
        });
    }

    #[test]
    fn a_problem_names_field_and_source_and_not_the_value() {
        let of = |text: &str| {
            let file = file(text);
            let problem = load::<Config>(Some(file.path()), "STRATA_NONE_", &[]).expect_err(text);
            assert_eq!(problem.source, file.path().display().to_string(), "{problem}");
            assert!(!problem.to_string().contains("hunter2"), "{problem}");
            problem
        };
        assert_eq!(of("[longterm]\nreaders = 'hunter2'").field, "longterm.readers");
        assert_eq!(of("[longterm]\nreaders = 300").field, "longterm.readers");
        assert_eq!(of("password = 'hunter2'").field, "password");
        let unknown = of("[longterm]\nreader = 1");
        assert_eq!(unknown.field, "longterm.reader");
        assert!(unknown.message.contains("readers"), "it says what there is: {unknown}");
        of("password = 'hunter2");
        of("hunter2");
        let overrides = [("longterm.readers".to_owned(), "many".to_owned())];
        let problem = load::<Config>(None, "STRATA_NONE_", &overrides).expect_err("override");
        assert_eq!((problem.field.as_str(), problem.source.as_str()), ("longterm.readers", "command line"));
        let absent = load::<Config>(Some(Path::new("/nonexistent/strata.toml")), "STRATA_NONE_", &[]).expect_err("absent");
        assert!(absent.source.contains("nonexistent"));
    }

    #[test]
    fn a_missing_field_is_named_with_its_path() {
        #[derive(Debug, Deserialize)]
        struct Outer {
            #[expect(dead_code, reason = "read by serde alone")]
            inner: Inner,
        }
        #[derive(Debug, Deserialize)]
        struct Inner {
            #[expect(dead_code, reason = "read by serde alone")]
            url: String,
        }
        for (text, field) in [("", "inner"), ("[inner]\nother = 1", "inner.url")] {
            let problem = load::<Outer>(Some(file(text).path()), "STRATA_NONE_", &[]).expect_err(text);
            assert_eq!((problem.field.as_str(), problem.message.as_str()), (field, "is required"));
        }
    }

    #[test]
    fn only_service_links_are_skipped() {
        for link in
            ["ROUTER_SERVICE_HOST", "ROUTER_SERVICE_PORT", "ROUTER_PORT", "ROUTER_PORT_7700_TCP", "ROUTER_PORT_7700_TCP_PROTO"]
        {
            assert!(is_service_link(link), "{link}");
        }
        for ours in ["LISTEN", "LONGTERM__READERS", "ROUTER__PORT", "ROUTER__SERVICE_HOST", "PORTS"] {
            assert!(!is_service_link(ours), "{ours}");
        }
    }

    fn counted(path: &Path) -> (Watch, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let watch = watch(path, move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        (watch.expect("watch"), calls)
    }

    async fn reaches(calls: &AtomicUsize, n: usize) {
        eventually(Duration::from_secs(10), || async { calls.load(Ordering::SeqCst) >= n }).await;
    }

    #[tokio::test]
    async fn a_file_replaced_by_rename_is_seen_once_and_the_same_content_not_at_all() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.toml");
        std::fs::write(&path, "a = 1").expect("write");
        let (_watch, calls) = counted(&path);
        let replace = |text: &str| {
            let next = folder.path().join("next");
            std::fs::write(&next, text).expect("write");
            std::fs::rename(&next, &path).expect("rename");
        };
        replace("a = 2");
        reaches(&calls, 1).await;
        replace("a = 2");
        std::fs::write(folder.path().join("other"), "noise").expect("write");
        replace("a = 3");
        reaches(&calls, 2).await;
        assert_eq!(calls.load(Ordering::SeqCst), 2, "the same content is no change");
    }

    #[tokio::test]
    async fn a_kubernetes_mount_is_seen_when_its_symlink_is_swapped() {
        let folder = tempfile::tempdir().expect("folder");
        let at = |name: &str| folder.path().join(name);
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, at(from)).expect("symlink");
        for (version, text) in [("..1", "a = 1"), ("..2", "a = 2")] {
            std::fs::create_dir(at(version)).expect("folder");
            std::fs::write(at(version).join("strata.toml"), text).expect("write");
        }
        link("..1", "..data");
        link("..data/strata.toml", "strata.toml");
        let (_watch, calls) = counted(&at("strata.toml"));
        link("..2", "..data_tmp");
        std::fs::rename(at("..data_tmp"), at("..data")).expect("swap");
        reaches(&calls, 1).await;
        assert_eq!(std::fs::read_to_string(at("strata.toml")).expect("read"), "a = 2");
    }

    #[tokio::test]
    async fn the_callback_runs_no_more_when_the_watch_is_dropped() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("strata.toml");
        std::fs::write(&path, "a = 1").expect("write");
        let owner = Arc::new(());
        let held = Arc::clone(&owner);
        let watch = watch(&path, move || drop(Arc::clone(&held))).expect("watch");
        drop(watch);
        eventually(Duration::from_secs(10), || async { Arc::strong_count(&owner) == 1 }).await;
    }
}
