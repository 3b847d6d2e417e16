//! Logging: off, unless `SOFTRNIC_LOG` names a level.

use tracing::level_filters::LevelFilter;

/// Sends what is logged at `SOFTRNIC_LOG` or above (error, warn, info, debug, trace) to stderr.
pub(crate) fn start() {
    let Some(level) = std::env::var("SOFTRNIC_LOG").ok().and_then(|level| level.parse::<LevelFilter>().ok())
    else {
        return;
    };
    // Another copy of this library may have been first; then its subscriber stays.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
