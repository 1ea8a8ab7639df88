//! `baton top`: a screen that shows the objects of a process and changes the states of its servers, of Baton or of HAProxy.
//!
//! `stats` reads what the runtime API says, `app` decides, `draw` shows, all three without I/O; `link` is the socket, and here are the threads:
//! one waits for keys, one asks the process every interval and sends commands, and both send events to the one that draws.

mod app;
mod draw;
mod link;
mod stats;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use baton_control::printable;
use baton_control::protocol::{Reply, Request};
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::crossterm::{Command, execute};

use self::app::{App, Effect, Event, Key};
use self::link::Link;
use self::stats::Sample;
use super::whom::TargetProcess;

/// What is asked every interval.
const QUERY: &str = "show info; show stat";
/// The shortest and the longest interval, in seconds.
const INTERVAL: (f64, f64) = (0.1, 3600.0);

/// Watch frontends, backends and servers, and drain, enable or disable servers.
///
/// Uses the runtime API of a process, of Baton or of HAProxy: a `stats socket` of any level to watch, of level admin to change servers.
#[derive(Args, Debug)]
#[command(
    after_help = "Keys: h shows them\n\nExample:\n  baton top\n  baton top /run/haproxy/admin.sock\n  baton top --interval 5 \
                        127.0.0.1:9999"
)]
pub struct TopCommand {
    /// Socket of the runtime API, a path or HOST:PORT [default: the first one of the running Baton]
    #[arg(value_name = "SOCKET", conflicts_with_all = ["pid", "pid_file"])]
    socket: Option<String>,
    /// Time between two readings
    #[arg(short = 'n', long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    #[command(flatten)]
    process: TargetProcess,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    let (least, most) = INTERVAL;
    (least..=most).contains(&seconds).then_some(seconds).ok_or_else(|| format!("must be between {least} and {most}"))
}

/// Shows the screen until the end is asked for.
///
/// # Errors
/// A sentence, when it cannot begin.
pub fn run(command: &TopCommand) -> Result<ExitCode, String> {
    let link = match &command.socket {
        Some(socket) => Link::of(socket),
        None => own_socket(&command.process)?,
    };
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("top needs a terminal; 'baton status' prints the state once".into());
    }
    // Whatever is wrong at the beginning is said in plain text.
    let first = read(&link).map_err(|reason| format!("{link}: {reason}"))?;
    let (events, next) = channel();
    let commands = ask_regularly(link.clone(), Duration::from_secs_f64(command.interval), events.clone());
    let mut app = App::new(link.to_string());
    app.step(Event::Read(Box::new(first), 0.0));
    show(&mut app, &events, &next, &commands).map_err(|error| format!("terminal: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The socket of the running Baton, by its own word.
fn own_socket(process: &TargetProcess) -> Result<Link, String> {
    let status = match process.ask(Request::Status)? {
        Reply::Status(status) => status,
        Reply::Failed { reason } => return Err(reason),
        other => return Err(format!("unexpected reply: {other:?}")),
    };
    let socket = status.stats_sockets.first().ok_or_else(|| {
        format!(
            "process {} has no runtime API: add 'stats socket /run/baton.sock level admin' to the global section and reload",
            status.pid
        )
    })?;
    Ok(Link::of(socket))
}

fn read(link: &Link) -> Result<Sample, String> {
    link.ask(QUERY).and_then(|text| Sample::read(&text))
}

/// Asks the process every interval, and sends it commands, on another thread; it ends when nobody listens.
fn ask_regularly(link: Link, interval: Duration, events: Sender<Event>) -> Sender<String> {
    let (commands, next) = channel::<String>();
    thread::spawn(move || {
        let mut last = Instant::now();
        loop {
            let event = match next.recv_timeout(interval.saturating_sub(last.elapsed())) {
                Ok(command) => {
                    let reply = link.ask(&command).and_then(|text| told(&command, &text));
                    if events.send(Event::Commanded(reply)).is_err() {
                        return;
                    }
                    reading(&link, &mut last)
                }
                Err(RecvTimeoutError::Timeout) => reading(&link, &mut last),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
    commands
}

fn reading(link: &Link, last: &mut Instant) -> Event {
    let sample = read(link);
    let elapsed = last.elapsed().as_secs_f64();
    *last = Instant::now();
    sample.map_or_else(Event::Lost, |sample| Event::Read(Box::new(sample), elapsed))
}

/// What came of a command: nothing is said of what is done.
fn told(command: &str, reply: &str) -> Result<String, String> {
    match reply.trim() {
        "" => Ok(format!("done: {command}")),
        text => Err(printable::line(text).into_owned()),
    }
}

/// Draws after every event.
fn show(app: &mut App, events: &Sender<Event>, next: &Receiver<Event>, commands: &Sender<String>) -> io::Result<()> {
    let screen = Screen::take()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(screen.output.try_clone()?))?;
    wait_for_keys(events.clone());
    loop {
        terminal.draw(|frame| draw::draw(frame, app))?;
        let Ok(event) = next.recv() else { return Ok(()) };
        match app.step(event) {
            Effect::None => {}
            Effect::Send(command) => drop(commands.send(command)),
            Effect::Quit => return Ok(()),
        }
    }
}

/// Reads keys on another thread, which ends with the process.
fn wait_for_keys(events: Sender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => key_of(key).map(Event::Key),
                Ok(event::Event::Resize(..)) => Some(Event::Resized),
                Ok(_) => None,
                Err(_) => Some(Event::Closed),
            };
            let is_closed = event == Some(Event::Closed);
            if event.is_some_and(|event| events.send(event).is_err()) || is_closed {
                return;
            }
        }
    });
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Interrupt),
        KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => None,
        KeyCode::Char(character) => Some(Key::Char(character)),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Escape),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Tab => Some(Key::Tab),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        _ => None,
    }
}

/// The terminal, which is as it was before when this is dropped, also by a panic.
struct Screen {
    output: File,
}

impl Screen {
    fn take() -> io::Result<Screen> {
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut screen = Screen { output };
        enable_raw_mode()?;
        screen.send(EnterAlternateScreen)?;
        Ok(screen)
    }

    fn send(&mut self, command: impl Command) -> io::Result<()> {
        execute!(self.output, command)?;
        self.output.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = disable_raw_mode();
        let _ = self.send(LeaveAlternateScreen);
        let _ = self.send(Show);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_to_commands_are_told_apart() {
        assert_eq!(told("set x", "\n\n"), Ok("done: set x".into()));
        assert_eq!(told("set x", "Permission denied\n\n"), Err("Permission denied".into()));
        assert_eq!(told("set x", "a\u{1b}b\n"), Err("a\\u{1b}b".into()));
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!((interval("2"), interval("0.5")), (Ok(2.0), Ok(0.5)));
        assert!(["0", "x", "nan", "inf", "4000"].iter().all(|text| interval(text).is_err()));
    }
}
