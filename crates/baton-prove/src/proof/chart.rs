//! The drawings of one row of a proof. Each has a name and a description in words, and tells its parts apart by place, form and
//! label, not by colour alone. The looks are in `page/style.css`.

mod latency;
mod percentiles;

pub(super) use latency::{COLUMNS_MAX, latency, marks_of};
pub(super) use percentiles::percentiles;

use crate::proof::draw::{Anchor, Path, Scale, Svg};

/// The size of a chart's letters, as the style sheet has it.
const LETTER: f64 = 12.0;

/// The width of a text, estimated: letters differ, and who draws it has fonts of its own.
fn width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER * 0.54
}

/// Microseconds that are a tick: no digits that say nothing.
pub(super) fn tick(micros: f64) -> String {
    let short = |value: f64| ((value * 1e3).round() / 1e3).to_string();
    match micros {
        ..1e3 => format!("{} us", short(micros)),
        ..1e6 => format!("{} ms", short(micros / 1e3)),
        _ => format!("{} s", short(micros / 1e6)),
    }
}

/// Grid lines and names of a latency axis on the left of `left..right`.
fn latency_axis(svg: &mut Svg, scale: &Scale, left: f64, right: f64) {
    for micros in scale.ticks(9) {
        let y = scale.at(micros);
        svg.line("grid", (left, y), (right, y));
        svg.text("tick", Anchor::End, (left - 8.0, y + 4.0), &tick(micros));
    }
}

/// What a sign of the legend looks like.
enum Sign {
    /// A filled rectangle of this class.
    Area(&'static str),
    /// A line of this class.
    Line(&'static str),
    /// The mark of an event, and whether it is the one of an event that failed.
    Event(bool),
}

/// Signs with their meaning in one line, from `(x, y)` on.
fn legend(svg: &mut Svg, (mut x, y): (f64, f64), entries: &[(Sign, String)]) {
    for (sign, text) in entries {
        match sign {
            Sign::Area(class) => svg.rect(class, (x, y - 9.0), 16.0, 10.0),
            Sign::Line(class) => svg.line(class, (x, y - 4.0), (x + 18.0, y - 4.0)),
            Sign::Event(failed) => svg.path(event_class(*failed), &event_mark((x + 8.0, y - 8.0), *failed)),
        }
        svg.text("label", Anchor::Start, (x + 24.0, y), text);
        x += 24.0 + width(text) + 22.0;
    }
}

fn event_class(failed: bool) -> &'static str {
    if failed { "event bad" } else { "event" }
}

/// A triangle that points down at its instant; a cross for an event that failed. `(x, y)` is its top.
fn event_mark((x, y): (f64, f64), failed: bool) -> Path {
    let mut path = Path::default();
    if failed {
        path.start((x - 4.0, y)).to((x + 4.0, y + 8.0)).start((x + 4.0, y)).to((x - 4.0, y + 8.0));
    } else {
        path.start((x - 4.0, y)).to((x + 4.0, y)).to((x, y + 8.0)).close();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let cases = [(0.5, "0.5 us"), (200.0, "200 us"), (1e3, "1 ms"), (5e5, "500 ms"), (2e6, "2 s"), (1e9, "1000 s")];
        for (micros, expect) in cases {
            assert_eq!(tick(micros), expect);
        }
    }
}
