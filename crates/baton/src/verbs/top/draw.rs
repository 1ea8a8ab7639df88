//! The screen of `baton top`: what the state looks like on so many columns and lines. Pure.

use baton_control::verdict::duration;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::app::{self, App, Mode};
use super::stats::Kind;

/// Columns of the terminal that are the least to show anything in.
const WIDTH_MIN: u16 = 30;
/// Lines of the terminal.
const HEIGHT_MIN: u16 = 5;
/// Lines above the rows: title, totals, heading.
const HEAD: u16 = 3;
/// Columns of the name, at least and at most.
const NAME: (usize, usize) = (12, 40);

/// A column besides the name.
struct Column {
    title: &'static str,
    width: usize,
    text: fn(&app::Line) -> String,
}

/// From left to right; those that do not fit are left out.
const COLUMNS: [Column; 11] = [
    Column { title: "STATUS", width: 12, text: |line| line.row.status.clone() },
    Column { title: "SESS", width: 7, text: |line| count(line.row.sessions as f64) },
    Column { title: "SESS/s", width: 7, text: |line| count(line.row.rate as f64) },
    Column { title: "5xx/s", width: 7, text: |line| count(line.failed) },
    Column { title: "ERR/s", width: 7, text: |line| count(line.errors) },
    Column { title: "QUEUE", width: 6, text: |line| count(line.row.queue as f64) },
    Column { title: "IN/s", width: 7, text: |line| count(line.bytes_in) },
    Column { title: "OUT/s", width: 7, text: |line| count(line.bytes_out) },
    Column { title: "RETRY", width: 7, text: |line| count(line.row.retries as f64) },
    Column { title: "SINCE", width: 8, text: |line| line.row.since.map(duration).unwrap_or_default() },
    Column { title: "CHECK", width: 30, text: |line| line.row.check.clone() },
];

const KEYS: &str = "q quit  h help  / filter  Tab kinds  s sort  r reverse  d drain  e enable  x disable";

const HELP: [&str; 12] = [
    "up, down, j, k, PgUp, PgDn, Home, End",
    "            choose a row",
    "Tab         all, frontends, backends, servers",
    "/           filter by name or status; Esc clears it",
    "s, r        next order, turn it round",
    "d           drain the chosen server",
    "e           enable it (ready)",
    "x           disable it (maintenance)",
    "q, Ctrl-C   quit",
    "",
    "Changes need a socket of level admin.",
    "Any key ends this help.",
];

/// Draws the state; notes how many rows fit.
pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        frame.render_widget(Paragraph::new("baton top: the terminal is too small"), area);
        return;
    }
    let page = usize::from(area.height - HEAD - 1);
    let (first, lines) = {
        let rows = app.rows();
        let at = app.position(&rows);
        let first = app.first.min(at).max((at + 1).saturating_sub(page)).min(rows.len().saturating_sub(1));
        let name = name_width(&rows, usize::from(area.width));
        let mut lines = vec![title(app), totals(app), heading(name, usize::from(area.width))];
        for (number, line) in rows.iter().enumerate().skip(first).take(page) {
            lines.push(row(line, name, usize::from(area.width), number == at, app.lost.is_some()));
        }
        (first, lines)
    };
    (app.first, app.page) = (first, page);
    frame.render_widget(Paragraph::new(Text::from(lines)), Rect { height: area.height - 1, ..area });
    frame.render_widget(Paragraph::new(foot(app)), Rect { y: area.bottom() - 1, height: 1, ..area });
    match &app.mode {
        Mode::Help => popup(frame, " Help ", &HELP.map(String::from)),
        Mode::Confirm(action) => {
            let question = format!("{} server {}?", action.verb, action.server);
            popup(frame, " Confirm ", &[question, String::new(), "y: yes   any other key: no".into()]);
        }
        Mode::Browse | Mode::Filter => {}
    }
}

fn title(app: &App) -> Line<'static> {
    let info = |name: &str| app.sample.info.get(name).cloned().unwrap_or_default();
    let uptime = duration(app.sample.number("Uptime_sec"));
    // The name is HAProxy's for either, as clients want it; the version says whose it is.
    let name = if info("Version").contains("-baton") { "Baton".into() } else { info("Name") };
    let text = match app.sample.info.is_empty() {
        true => format!("baton top - {}", app.source),
        false => format!("{name} {} - {} - PID {}, up {uptime}", info("Version"), app.source, info("Pid")),
    };
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn totals(app: &App) -> Line<'static> {
    if let Some(reason) = &app.lost {
        let style = Style::new().fg(Color::White).bg(Color::Red);
        return Line::styled(format!("No reply: {reason}. The figures are old; trying again."), style);
    }
    let number = |name: &str| app.sample.number(name);
    Line::raw(format!(
        "connections {} of {}, {}/s  sessions {}/s  requests {}  TLS {}/s  shown: {}, by {}{}{}",
        number("CurrConns"),
        number("Maxconn"),
        number("ConnRate"),
        number("SessRate"),
        count(number("CumReq") as f64),
        number("SslRate"),
        app.shown.word(),
        app.sort.word(),
        if app.is_reversed { ", reversed" } else { "" },
        if app.filter.is_empty() { String::new() } else { format!(", '{}'", app.filter) },
    ))
}

/// As wide as the longest name, if the columns leave room.
fn name_width(rows: &[&app::Line], width: usize) -> usize {
    let longest = rows.iter().map(|line| label(line).chars().count()).max().unwrap_or_default();
    let free = width.saturating_sub(COLUMNS[0].width + COLUMNS[1].width + 2).max(NAME.0);
    longest.clamp(NAME.0, NAME.1.min(free))
}

fn label(line: &app::Line) -> String {
    match line.row.kind {
        Kind::Frontend => format!("< {}", line.row.name()),
        Kind::Backend => format!("> {}", line.row.name()),
        Kind::Server => format!("  {}", line.row.name()),
    }
}

fn heading(name: usize, width: usize) -> Line<'static> {
    let text = cells("NAME", name, width, |column| column.title.into());
    Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
}

fn row(line: &app::Line, name: usize, width: usize, is_chosen: bool, is_old: bool) -> Line<'static> {
    let text = cells(&label(line), name, width, |column| (column.text)(line));
    let mut style = match () {
        () if is_old => Style::new().fg(Color::DarkGray),
        () if line.row.is_down() => Style::new().fg(Color::Red),
        () if line.row.is_out() => Style::new().fg(Color::Yellow),
        () if line.failed + line.errors > 0.0 => Style::new().fg(Color::Magenta),
        () => Style::new(),
    };
    if is_chosen {
        style = style.add_modifier(Modifier::REVERSED);
    }
    Line::from(Span::styled(text, style))
}

/// Cells beside each other, as many as fit.
fn cells(first: &str, name: usize, width: usize, text: impl Fn(&Column) -> String) -> String {
    let mut out = fit(first, name);
    let mut used = name;
    for column in &COLUMNS {
        if used + 1 + column.width > width {
            break;
        }
        used += 1 + column.width;
        out.push(' ');
        out.push_str(&fit(&text(column), column.width));
    }
    let rest = width.saturating_sub(used);
    out + &" ".repeat(rest)
}

/// A text in so many columns; one that is longer ends with a mark.
fn fit(text: &str, width: usize) -> String {
    let length = text.chars().count();
    match length <= width {
        true => text.to_owned() + &" ".repeat(width - length),
        false => text.chars().take(width.saturating_sub(1)).chain(['~']).collect(),
    }
}

fn foot(app: &App) -> Line<'static> {
    let (good, bad) = (Style::new().fg(Color::Green), Style::new().fg(Color::Red));
    match (&app.mode, &app.message) {
        (Mode::Filter, _) => Line::raw(format!("Filter: {}_", app.filter)),
        (_, Some(Ok(text))) => Line::styled(text.clone(), good),
        (_, Some(Err(text))) => Line::styled(text.clone(), bad),
        (_, None) => Line::raw(KEYS),
    }
}

/// A box in the middle; on a small terminal as much of it as fits.
fn popup(frame: &mut Frame<'_>, title: &'static str, lines: &[String]) {
    let area = frame.area();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let size = |length: usize, most: u16| u16::try_from(length + 2).unwrap_or(most).min(most);
    let (width, height) = (size(longest, area.width), size(lines.len(), area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    let text: Vec<Line<'_>> = lines.iter().map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(Paragraph::new(Text::from(text)).block(Block::bordered().title(title)), place);
}

/// A number in at most six characters.
fn count(number: f64) -> String {
    match number {
        number if number >= 1e9 => format!("{:.1}G", number / 1e9),
        number if number >= 1e6 => format!("{:.1}M", number / 1e6),
        number if number >= 1e4 => format!("{:.1}k", number / 1e3),
        number if number.fract() > 0.0 && number < 100.0 => format!("{number:.1}"),
        number => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::verbs::top::app::{Event, Key};
    use crate::verbs::top::stats::Sample;
    use crate::verbs::top::stats::tests::RESPONSE;

    fn app() -> App {
        let mut app = App::new("/run/s.sock".into());
        app.step(Event::Read(Box::new(Sample::read(RESPONSE).unwrap()), 0.0));
        app
    }

    /// The lines of a screen, without blanks at their ends.
    fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn a_screen_has_title_totals_rows_and_keys() {
        let lines = screen(&mut app(), 100, 10);
        assert!(lines[0].starts_with("HAProxy 2.6.12 - /run/s.sock - PID , up 1h 6m"), "{}", lines[0]);
        assert!(lines[1].starts_with("connections 7 of 0, 3/s"), "{}", lines[1]);
        assert!(lines[2].starts_with("NAME         STATUS       SESS"), "{}", lines[2]);
        assert!(lines[3].starts_with("< web        OPEN         5       12"), "{}", lines[3]);
        assert!(lines[5].starts_with("  app/s2     DOWN         0       0"), "{}", lines[5]);
        assert!(lines[9].starts_with("q quit"), "{}", lines[9]);
    }

    #[test]
    fn small_terminals_show_less_and_tiny_ones_say_so() {
        let mut app = app();
        let lines = screen(&mut app, 40, 6);
        assert_eq!(lines[2], "NAME         STATUS       SESS");
        assert_eq!((app.page, lines.len()), (2, 6));
        for _ in 0..3 {
            app.step(Event::Key(Key::Down));
        }
        assert!(screen(&mut app, 40, 6)[4].starts_with("> app"), "the chosen row is on the screen");
        assert_eq!(app.first, 2);
        assert!(screen(&mut app, 29, 6)[0].starts_with("baton top: the terminal is to"));
        for (width, height) in [(0, 0), (1, 1), (30, 5), (31, 6), (500, 200)] {
            screen(&mut app, width, height);
            app.step(Event::Key(Key::Char('h')));
            screen(&mut app, width, height);
            app.step(Event::Key(Key::Escape));
        }
    }

    #[test]
    fn questions_messages_and_losses_are_shown() {
        let mut app = app();
        app.step(Event::Key(Key::Down));
        app.step(Event::Key(Key::Char('d')));
        let text = screen(&mut app, 80, 12).join("\n");
        assert!(text.contains("Drain server app/s1?") && text.contains("y: yes"), "{text}");
        app.step(Event::Key(Key::Escape));
        app.step(Event::Commanded(Err("Permission denied".into())));
        assert_eq!(screen(&mut app, 80, 12)[11], "Permission denied");
        app.step(Event::Lost("Connection refused".into()));
        assert!(screen(&mut app, 80, 12)[1].starts_with("No reply: Connection refused."));
        app.step(Event::Key(Key::Char('/')));
        app.step(Event::Key(Key::Char('z')));
        let lines = screen(&mut app, 80, 12);
        assert_eq!((lines[11].as_str(), lines[3].as_str()), ("Filter: z_", ""));
    }

    #[test]
    fn numbers_are_short() {
        let check = |number: f64, expect: &str| assert_eq!(count(number), expect);
        check(0.0, "0");
        check(0.25, "0.2");
        check(9999.0, "9999");
        check(12_345.0, "12.3k");
        check(9.9e6, "9.9M");
        check(1.5e10, "15.0G");
    }
}
