//! What `baton top` shows and what keys do: a state, events, and what follows from them. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::stats::{Kind, Row, Sample};

/// The longest filter.
const FILTER_MAX: usize = 64;

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A key is pressed.
    Key(Key),
    /// The terminal has another size, or is to be drawn again.
    Resized,
    /// The process replied; after so many seconds since the reply before.
    Read(Box<Sample>, f64),
    /// It did not.
    Lost(String),
    /// What came of a command.
    Commanded(Result<String, String>),
    /// The terminal is gone.
    Closed,
}

/// A key that means something here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// One up.
    Up,
    /// One down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// Ctrl-C.
    Interrupt,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Nothing but drawing.
    None,
    /// This command is to be sent.
    Send(String),
    /// The end.
    Quit,
}

/// What keys mean at the moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mode {
    /// They move and choose.
    Browse,
    /// They are a filter that is being typed.
    Filter,
    /// `y` does it, everything else does not.
    Confirm(Action),
    /// Everything ends the help.
    Help,
}

/// What can be done to a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Action {
    /// `backend/server`.
    pub server: String,
    /// What it is called.
    pub verb: &'static str,
    /// The state that it is set to.
    pub state: &'static str,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sort {
    /// That of the process.
    #[default]
    Natural,
    /// Sessions, the most first.
    Sessions,
    /// Sessions a second.
    Rate,
    /// Responses 5xx and errors.
    Errors,
    /// Requests that wait.
    Queue,
    /// What is down, then what was taken out.
    Status,
    /// The name.
    Name,
}

impl Sort {
    const ALL: [Sort; 7] =
        [Sort::Natural, Sort::Sessions, Sort::Rate, Sort::Errors, Sort::Queue, Sort::Status, Sort::Name];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Natural => "file",
            Sort::Sessions => "sessions",
            Sort::Rate => "rate",
            Sort::Errors => "errors",
            Sort::Queue => "queue",
            Sort::Status => "status",
            Sort::Name => "name",
        }
    }
}

/// Which rows are shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shown {
    /// All.
    #[default]
    All,
    /// Of this kind.
    Only(Kind),
}

impl Shown {
    const ALL: [Shown; 4] =
        [Shown::All, Shown::Only(Kind::Frontend), Shown::Only(Kind::Backend), Shown::Only(Kind::Server)];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Shown::All => "all",
            Shown::Only(Kind::Frontend) => "frontends",
            Shown::Only(Kind::Backend) => "backends",
            Shown::Only(Kind::Server) => "servers",
        }
    }
}

/// A row with what happened to it since the reading before.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The row.
    pub row: Row,
    /// Responses 5xx a second.
    pub failed: f64,
    /// Errors a second.
    pub errors: f64,
    /// Bytes a second from clients.
    pub bytes_in: f64,
    /// Bytes a second to clients.
    pub bytes_out: f64,
}

/// Everything.
#[derive(Debug)]
pub struct App {
    /// Where the figures come from.
    pub source: String,
    /// The last reading.
    pub sample: Sample,
    /// Its rows.
    lines: Vec<Line>,
    /// What keys mean.
    pub mode: Mode,
    /// The order.
    pub sort: Sort,
    /// The order is turned round.
    pub is_reversed: bool,
    /// Which rows.
    pub shown: Shown,
    /// A part of the name or status of all rows that are shown.
    pub filter: String,
    /// The name and kind of the row that keys are about.
    selected: Option<(Kind, String)>,
    /// The first row on the screen.
    pub first: usize,
    /// Rows on the screen, as it was drawn last.
    pub page: usize,
    /// What came of the last command.
    pub message: Option<Result<String, String>>,
    /// Why there is no newer reading.
    pub lost: Option<String>,
}

impl App {
    /// Nothing is known yet.
    pub fn new(source: String) -> App {
        App {
            source,
            sample: Sample::default(),
            lines: Vec::new(),
            mode: Mode::Browse,
            sort: Sort::default(),
            is_reversed: false,
            shown: Shown::default(),
            filter: String::new(),
            selected: None,
            first: 0,
            page: 1,
            message: None,
            lost: None,
        }
    }

    /// Takes an event.
    pub fn step(&mut self, event: Event) -> Effect {
        match event {
            Event::Key(Key::Interrupt) | Event::Closed => return Effect::Quit,
            Event::Key(key) => return self.press(key),
            Event::Resized => {}
            Event::Read(sample, elapsed) => self.take(*sample, elapsed),
            Event::Lost(reason) => self.lost = Some(reason),
            Event::Commanded(outcome) => self.message = Some(outcome),
        }
        Effect::None
    }

    /// The rows that are to be shown, in order.
    pub fn rows(&self) -> Vec<&Line> {
        let filter = self.filter.to_lowercase();
        let is_shown = |line: &&Line| {
            let row = &line.row;
            let is_kind = match self.shown {
                Shown::All => true,
                Shown::Only(kind) => row.kind == kind,
            };
            let text = || format!("{} {}", row.name(), row.status).to_lowercase();
            is_kind && (filter.is_empty() || text().contains(&filter))
        };
        let mut rows: Vec<&Line> = self.lines.iter().filter(is_shown).collect();
        match self.sort {
            Sort::Natural => {}
            Sort::Sessions => rows.sort_by_key(|line| Reverse(line.row.sessions)),
            Sort::Rate => rows.sort_by_key(|line| Reverse(line.row.rate)),
            Sort::Errors => rows.sort_by(|one, other| {
                let errors = |line: &Line| line.failed + line.errors;
                let now = errors(other).total_cmp(&errors(one));
                now.then((other.row.failed + other.row.errors).cmp(&(one.row.failed + one.row.errors)))
            }),
            Sort::Queue => rows.sort_by_key(|line| Reverse(line.row.queue)),
            Sort::Status => rows.sort_by_key(|line| (!line.row.is_down(), !line.row.is_out())),
            Sort::Name => rows.sort_by_key(|line| line.row.name()),
        }
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Where the chosen row is among those.
    pub fn position(&self, rows: &[&Line]) -> usize {
        let is_selected = |line: &&Line| {
            self.selected.as_ref().is_some_and(|(kind, name)| *kind == line.row.kind && *name == line.row.name())
        };
        rows.iter().position(is_selected).unwrap_or_default()
    }

    fn take(&mut self, sample: Sample, elapsed: f64) {
        self.lost = None;
        let before: HashMap<(&str, &str, u8), &Row> =
            self.sample.rows.iter().map(|row| ((&*row.proxy, &*row.server, row.kind as u8), row)).collect();
        let line = |row: &Row| {
            let was = before.get(&(&*row.proxy, &*row.server, row.kind as u8)).filter(|_| elapsed > 0.0);
            // A counter that became smaller was reset.
            let rate = |of: fn(&Row) -> u64| was.map_or(0.0, |was| of(row).saturating_sub(of(was)) as f64 / elapsed);
            Line {
                failed: rate(|row| row.failed),
                errors: rate(|row| row.errors),
                bytes_in: rate(|row| row.bytes_in),
                bytes_out: rate(|row| row.bytes_out),
                row: row.clone(),
            }
        };
        self.lines = sample.rows.iter().map(line).collect();
        self.sample = sample;
    }

    fn press(&mut self, key: Key) -> Effect {
        match &self.mode {
            Mode::Browse => self.browse(key),
            Mode::Filter => self.type_filter(key),
            Mode::Confirm(action) => {
                let command = format!("set server {} state {}", action.server, action.state);
                self.mode = Mode::Browse;
                match key {
                    Key::Char('y' | 'Y') => return Effect::Send(command),
                    _ => self.message = Some(Ok("nothing changed".into())),
                }
                Effect::None
            }
            Mode::Help => {
                self.mode = Mode::Browse;
                Effect::None
            }
        }
    }

    fn browse(&mut self, key: Key) -> Effect {
        self.message = None;
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Escape => self.filter.clear(),
            Key::Char('h' | '?') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('s') => self.sort = next(&Sort::ALL, self.sort),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Tab => self.shown = next(&Shown::ALL, self.shown),
            Key::Char('d') => self.ask("Drain", "drain"),
            Key::Char('e') => self.ask("Enable", "ready"),
            Key::Char('x') => self.ask("Disable", "maint"),
            Key::Up | Key::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|at, _| at.saturating_add(1)),
            Key::PageUp => self.go(|at, page| at.saturating_sub(page)),
            Key::PageDown => self.go(usize::saturating_add),
            Key::Home | Key::Char('g') => self.go(|_, _| 0),
            Key::End | Key::Char('G') => self.go(|_, _| usize::MAX),
            Key::Char(_) | Key::Enter | Key::Backspace | Key::Interrupt => {}
        }
        Effect::None
    }

    fn type_filter(&mut self, key: Key) -> Effect {
        match key {
            Key::Char(character) if self.filter.len() < FILTER_MAX => self.filter.push(character),
            Key::Backspace => drop(self.filter.pop()),
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::Browse;
            }
            Key::Enter => self.mode = Mode::Browse,
            _ => {}
        }
        Effect::None
    }

    /// Chooses another row.
    fn go(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let rows = self.rows();
        let at = to(self.position(&rows), self.page.max(1)).min(rows.len().saturating_sub(1));
        self.selected = rows.get(at).map(|line| (line.row.kind, line.row.name()));
    }

    /// Asks whether the chosen server is to be in another state.
    fn ask(&mut self, verb: &'static str, state: &'static str) {
        let rows = self.rows();
        let chosen = rows.get(self.position(&rows)).map(|line| (line.row.kind, line.row.name()));
        match chosen {
            Some((Kind::Server, server)) => {
                self.selected = Some((Kind::Server, server.clone()));
                self.mode = Mode::Confirm(Action { server, verb, state });
            }
            Some(_) | None => self.message = Some(Err("choose a server first".into())),
        }
    }
}

/// The one after this; after the last comes the first.
fn next<T: Copy + PartialEq>(all: &[T], this: T) -> T {
    let at = all.iter().position(|one| *one == this).unwrap_or_default();
    all[(at + 1) % all.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::top::stats::tests::RESPONSE;

    fn app() -> App {
        let mut app = App::new("test".into());
        app.step(Event::Read(Box::new(Sample::read(RESPONSE).unwrap()), 0.0));
        app
    }

    fn names(app: &App) -> String {
        app.rows().iter().map(|line| line.row.name()).collect::<Vec<_>>().join(" ")
    }

    fn type_keys(app: &mut App, keys: &str) -> Effect {
        let mut last = Effect::None;
        for key in keys.chars() {
            let key = match key {
                '\n' => Key::Enter,
                '\t' => Key::Tab,
                'v' => Key::Down,
                '^' => Key::Up,
                key => Key::Char(key),
            };
            last = app.step(Event::Key(key));
        }
        last
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let check = |keys: &str, expect: &str| {
            let mut app = app();
            type_keys(&mut app, keys);
            assert_eq!(names(&app), expect, "{keys}");
        };
        check("", "web app/s1 app/s2 app");
        check("s", "web app/s1 app app/s2");
        check("sr", "app/s2 app app/s1 web");
        check("sssss", "app/s2 web app/s1 app");
        check("ssssss", "app app/s1 app/s2 web");
        check("\t", "web");
        check("\t\t\t", "app/s1 app/s2");
        check("/s1\n", "app/s1");
        check("/DOWN\n", "app/s2");
        check("/nothing\n", "");
    }

    #[test]
    fn a_server_is_changed_after_a_confirmation_only() {
        let mut app = app();
        assert_eq!(type_keys(&mut app, "d"), Effect::None);
        assert_eq!(app.message, Some(Err("choose a server first".into())));
        type_keys(&mut app, "vd");
        let drain = Action { server: "app/s1".into(), verb: "Drain", state: "drain" };
        assert_eq!(app.mode, Mode::Confirm(drain));
        assert_eq!(type_keys(&mut app, "n"), Effect::None);
        assert_eq!((&app.mode, &app.message), (&Mode::Browse, &Some(Ok("nothing changed".into()))));
        assert_eq!(type_keys(&mut app, "dy"), Effect::Send("set server app/s1 state drain".into()));
        assert_eq!(type_keys(&mut app, "vxy"), Effect::Send("set server app/s2 state maint".into()));
        assert_eq!(type_keys(&mut app, "eY"), Effect::Send("set server app/s2 state ready".into()));
        app.step(Event::Commanded(Err("Permission denied".into())));
        assert_eq!(app.message, Some(Err("Permission denied".into())));
    }

    #[test]
    fn the_chosen_row_stays_chosen_wherever_it_moves() {
        let mut app = app();
        type_keys(&mut app, "vv");
        let chosen = |app: &App| app.rows().get(app.position(&app.rows())).map(|line| line.row.name());
        assert_eq!(chosen(&app), Some("app/s2".into()));
        type_keys(&mut app, "sssss");
        assert_eq!((chosen(&app), app.position(&app.rows())), (Some("app/s2".into()), 0));
        type_keys(&mut app, "^^^");
        assert_eq!(chosen(&app), Some("app/s2".into()));
        app.step(Event::Key(Key::End));
        assert_eq!(chosen(&app), Some("app".into()));
        app.step(Event::Read(Box::default(), 1.0));
        assert_eq!(chosen(&app), None);
    }

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let mut app = app();
        let later = RESPONSE.replace(
            "app,s1,0,0,2,4,,20,500,1000,,0,,2,1,4,0,UP,1,1,0,0,0,61,2,6,1",
            "app,s1,0,0,2,4,,20,1500,900,,0,,4,1,4,0,UP,1,1,0,0,0,61,2,6,5",
        );
        app.step(Event::Read(Box::new(Sample::read(&later).unwrap()), 2.0));
        let rows = app.rows();
        assert_eq!((rows[1].failed, rows[1].errors, rows[1].bytes_in, rows[1].bytes_out), (2.0, 1.0, 500.0, 0.0));
    }

    #[test]
    fn a_lost_process_keeps_its_rows_until_it_is_back() {
        let mut app = app();
        app.step(Event::Lost("Connection refused".into()));
        assert_eq!((app.lost.as_deref(), app.rows().len()), (Some("Connection refused"), 4));
        app.step(Event::Read(Box::new(Sample::read(RESPONSE).unwrap()), 1.0));
        assert_eq!(app.lost, None);
        assert_eq!(app.step(Event::Closed), Effect::Quit);
        assert_eq!(type_keys(&mut app, "q"), Effect::Quit);
    }
}
