//! What `softrnic check` asks for, in environment variables.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use softrnic_check::Suppressions;
use softrnic_sys::environment::{path, text, variable};

/// See `docs/environment.md`.
#[derive(Default)]
pub(crate) struct Settings {
    /// Where reports are written, if not to stderr.
    pub log: Option<PathBuf>,
    /// Where the report for machines is written at exit.
    pub json: Option<PathBuf>,
    pub suppressions: Suppressions,
    /// The exit status if something was found.
    pub exit_code: Option<i32>,
    /// Whether the program ends with the first finding.
    pub halts: bool,
    /// Whether objects that are left at exit are findings.
    pub leaks: Leaks,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Leaks {
    No,
    #[default]
    Summary,
    Full,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

pub(crate) fn is_wanted() -> bool {
    variable("SOFTRNIC_CHECK").is_some_and(|value| value != "0")
}

pub(crate) fn get() -> &'static Settings {
    SETTINGS.get_or_init(Settings::default)
}

impl Settings {
    /// Reads them.
    pub fn read() -> Result<(), String> {
        let mut settings = Settings {
            log: path("SOFTRNIC_CHECK_LOG").map(named),
            json: path("SOFTRNIC_CHECK_REPORT").map(named),
            halts: variable("SOFTRNIC_CHECK_HALT").is_some_and(|value| value != "0"),
            ..Settings::default()
        };
        if let Some(code) = text("SOFTRNIC_CHECK_EXITCODE") {
            settings.exit_code = Some(code.parse().map_err(|_| format!("{code} is no exit status"))?);
        }
        settings.leaks = match text("SOFTRNIC_CHECK_LEAKS").as_deref() {
            None | Some("summary") => Leaks::Summary,
            Some("no") => Leaks::No,
            Some("full") => Leaks::Full,
            Some(other) => return Err(format!("SOFTRNIC_CHECK_LEAKS is no, summary or full, not {other}")),
        };
        if let Some(file) = path("SOFTRNIC_CHECK_SUPPRESSIONS") {
            let read =
                std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            settings.suppressions =
                Suppressions::parse(&read).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let _ = SETTINGS.set(settings);
        Ok(())
    }
}

/// `%p` becomes the process id.
pub fn named(path: PathBuf) -> PathBuf {
    match path.to_str() {
        Some(text) if path.as_os_str().as_bytes().windows(2).any(|two| two == b"%p") => {
            text.replace("%p", &std::process::id().to_string()).into()
        }
        _ => path,
    }
}
