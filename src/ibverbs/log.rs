//! Logging: what `SOFTRNIC_LOG` asks for. Without it, only what a programmer would want to be told anyway.

use std::{fmt, io};

use softrnic_diagnosis::ALWAYS;
use softrnic_sys::environment;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::OptionalWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Sends log messages at `SOFTRNIC_LOG` or above (error, warn, info, debug, trace) to stderr.
pub(crate) fn start() {
    // Another copy of this library may have been first; then its subscriber stays.
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let _ = match environment::text("SOFTRNIC_LOG") {
        Some(level) => {
            let Ok(level) = level.parse::<LevelFilter>() else { return };
            subscriber.with_max_level(level).with_writer(|| Stderr).try_init()
        }
        None => subscriber
            .with_max_level(LevelFilter::WARN)
            .event_format(Sentence)
            .with_writer(AlwaysAlone)
            .try_init(),
    };
}

/// The message and whom it is from.
struct Sentence;

impl<S, N> FormatEvent<S, N> for Sentence
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("softrnic: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writer.write_char('\n')
    }
}

/// Writes what is shown in any case, and nothing else.
struct AlwaysAlone;

impl<'a> MakeWriter<'a> for AlwaysAlone {
    type Writer = OptionalWriter<Stderr>;

    fn make_writer(&'a self) -> OptionalWriter<Stderr> {
        OptionalWriter::none()
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> OptionalWriter<Stderr> {
        if metadata.target() == ALWAYS { OptionalWriter::some(Stderr) } else { OptionalWriter::none() }
    }
}

/// The descriptor, without Rust's lock: a child whose parent was logging at the fork would wait for ever.
struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the kernel reads the bytes. Through `syscall`, since the caller may hold the NIC, and must not be
        // cancelled.
        let written =
            unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, bytes.as_ptr(), bytes.len()) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
