//! The terminal while we use it: restored however the program ends.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anstream::ColorChoice;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM};
use signal_hook::low_level;

use super::view::Line;

/// How long a signal may take to be noticed.
const NOTICE: Duration = Duration::from_millis(100);

/// Keys and other events.
pub enum Key {
    Quit,
    Refresh,
    /// Scroll down by this many lines.
    Scroll(isize),
    /// The terminal was resized, or is ours again.
    Redraw,
}

/// The terminal, until dropped.
pub struct Screen {
    colours: bool,
    /// The signal that should end this process, or 0.
    signal: Arc<AtomicUsize>,
}

impl Screen {
    /// Takes the terminal over.
    pub fn enter() -> io::Result<Screen> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            signal_hook::flag::register_usize(number, Arc::clone(&signal), number.unsigned_abs() as usize)?;
        }
        restore_before_panics();
        let colours = anstream::AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        // From here on the terminal is restored, even if setting it up fails half way.
        let screen = Screen { colours, signal };
        take_over()?;
        // The first poll starts to listen for resizes: one that comes after the size was read is then seen.
        event::poll(Duration::ZERO)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub fn size(&self) -> io::Result<(usize, usize)> {
        let (columns, rows) = crossterm::terminal::size()?;
        Ok((columns.into(), rows.into()))
    }

    /// Shows these lines from the top, truncated to the screen.
    pub fn draw(&self, lines: &[&Line], columns: usize) -> io::Result<()> {
        let mut out = Vec::new();
        queue!(out, BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().enumerate() {
            let text: String = line.text.chars().take(columns).collect();
            let style = if self.colours { line.style } else { anstyle::Style::new() };
            queue!(out, MoveTo(0, row.try_into().unwrap_or(u16::MAX)))?;
            // Cleared first: after text that ends in the last column there is nothing left to clear.
            queue!(out, Clear(ClearType::UntilNewLine))?;
            write!(out, "{style}{text}{style:#}")?;
        }
        let below = lines.len().try_into().unwrap_or(u16::MAX);
        if usize::from(below) < self.size()?.1 {
            queue!(out, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()
    }

    /// Waits for a key with a meaning, until `due`.
    pub fn key(&mut self, due: Instant) -> io::Result<Option<Key>> {
        loop {
            let signal = self.signal.load(Ordering::Relaxed);
            if signal != 0 {
                give_back();
                // Ends as if the signal had not been caught, so that the parent sees why.
                low_level::emulate_default_handler(signal.try_into().unwrap_or(SIGTERM))?;
                return Ok(Some(Key::Quit));
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if !wait_for_terminal(left.min(NOTICE))? {
                continue;
            }
            match event::read()? {
                Event::Resize(..) => return Ok(Some(Key::Redraw)),
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('z') if control => return self.suspend().map(Some),
                        KeyCode::Char('c' | 'd') if control => return Ok(Some(Key::Quit)),
                        KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Ok(Some(Key::Quit)),
                        KeyCode::Char(' ') => return Ok(Some(Key::Refresh)),
                        KeyCode::Down | KeyCode::Char('j') => return Ok(Some(Key::Scroll(1))),
                        KeyCode::Up | KeyCode::Char('k') => return Ok(Some(Key::Scroll(-1))),
                        KeyCode::PageDown => return Ok(Some(Key::Scroll(self.page()?))),
                        KeyCode::PageUp => return Ok(Some(Key::Scroll(-self.page()?))),
                        KeyCode::Home => return Ok(Some(Key::Scroll(isize::MIN))),
                        KeyCode::End => return Ok(Some(Key::Scroll(isize::MAX))),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    fn page(&self) -> io::Result<isize> {
        Ok(self.size()?.1.saturating_sub(2).try_into().unwrap_or(1))
    }

    /// Stops until the process is continued, as the terminal would have done.
    fn suspend(&mut self) -> io::Result<Key> {
        give_back();
        low_level::raise(SIGSTOP)?;
        take_over()?;
        Ok(Key::Redraw)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Waits until there is an event, at most for this long. A terminal that has gone must not be left to crossterm, which would
/// read its end again and again.
fn wait_for_terminal(at_most: Duration) -> io::Result<bool> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let keys_come_here = stdin.is_terminal();
    let keys = if keys_come_here { PollFlags::IN } else { PollFlags::empty() };
    let mut ends = [PollFd::new(&stdin, keys), PollFd::new(&stdout, PollFlags::empty())];
    let wait = if keys_come_here { at_most } else { Duration::ZERO };
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut ends, Some(&timeout)) {
        // Perhaps that of a resize.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if ends[1].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the terminal has gone"));
    }
    event::poll(at_most.saturating_sub(wait))
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Restores as much of the terminal as is still there.
fn give_back() {
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A message is of no use on a screen that is about to disappear.
fn restore_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
