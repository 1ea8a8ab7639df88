//! Latency over time: a mark at every event, the longest and the mean latency of each column, and the failures below.

use crate::{
    proof::{
        Event, Measured,
        chart::{Sign, event_class, event_mark, latency_axis, legend},
        columns::{Column, Columns, Mark, marks},
        draw::{Anchor, Path, Scale, Svg},
        words::{count, plural},
    },
    report::time,
};

/// The most columns; each is about a pixel wide.
pub(in crate::proof) const COLUMNS_MAX: usize = 900;

/// The most marks of events; closer ones are drawn as one.
const MARKS_MAX: u32 = 220;

/// Up to so many marks each have a line through the plot, so that one sees what is below it.
const GUIDES_MAX: usize = 60;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 370.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 985.0;
/// The strip of the events.
const EVENTS: f64 = 30.0;
/// The plot.
const TOP: f64 = 58.0;
const BOTTOM: f64 = 270.0;
/// The strip of the failures.
const FAILED_TOP: f64 = 284.0;
const FAILED_BOTTOM: f64 = 326.0;

/// The chart of a row that is called `name`.
pub(in crate::proof) fn latency(measured: &Measured, name: &str) -> String {
    let columns = Columns::new(measured, COLUMNS_MAX);
    let seconds = columns.time().as_secs_f64();
    let marks = marks(&measured.events, columns.time() / MARKS_MAX);
    let x = Scale::linear(seconds, LEFT, RIGHT);

    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("Latency over time: {name}"), &describe(measured));
    key(&mut svg, &columns, measured);
    axes(&mut svg, &x);
    guides(&mut svg, &marks, &x);
    plot(&mut svg, &columns, &x);
    failures(&mut svg, &columns, &x);
    events(&mut svg, &marks, &measured.events, &x);
    svg.finish()
}

/// How many marks the events of a row are drawn as.
pub(in crate::proof) fn marks_of(measured: &Measured) -> usize {
    marks(&measured.events, Columns::new(measured, COLUMNS_MAX).time() / MARKS_MAX).len()
}

fn describe(measured: &Measured) -> String {
    let report = &measured.report;
    let longest = measured.series.slots().iter().map(|slot| slot.max_us).max().unwrap_or(0);
    format!(
        "{} in {:.1} s, {} failed, {}; the longest response took {}.",
        plural(report.requests, "request"),
        report.seconds,
        count(report.failed),
        plural(measured.events.len() as u64, "event"),
        time(longest)
    )
}

fn key(svg: &mut Svg, columns: &Columns, measured: &Measured) {
    let each = time(u64::try_from(columns.length.as_micros()).unwrap_or(u64::MAX));
    let mut entries = vec![
        (Sign::Line("mean"), format!("mean of each {each}")),
        (Sign::Area("band"), "from there to the longest".to_owned()),
        (Sign::Area("failed-sign"), "requests that failed".to_owned()),
    ];
    if let Some(event) = measured.events.first() {
        entries.push((Sign::Event(false), event.what.clone()));
    }
    if measured.events_failed() > 0 {
        entries.push((Sign::Event(true), "one that failed".to_owned()));
    }
    legend(svg, (LEFT, 14.0), &entries);
}

fn axes(svg: &mut Svg, x: &Scale) {
    let ticks = x.ticks(12);
    let digits = match ticks.get(1) {
        Some(..0.1) => 2,
        Some(..1.0) => 1,
        _ => 0,
    };
    for tick in ticks {
        let at = x.at(tick);
        svg.line("axis", (at, FAILED_BOTTOM), (at, FAILED_BOTTOM + 5.0));
        svg.text("tick", Anchor::Middle, (at, FAILED_BOTTOM + 18.0), &format!("{tick:.digits$}"));
    }
    svg.line("axis", (LEFT, FAILED_BOTTOM), (RIGHT, FAILED_BOTTOM));
    svg.text("label", Anchor::Middle, ((LEFT + RIGHT) / 2.0, HEIGHT - 8.0), "seconds after the start of the load");
    svg.text("label", Anchor::End, (LEFT - 8.0, EVENTS + 8.0), "events");
    svg.text("label", Anchor::End, (LEFT - 8.0, (FAILED_TOP + FAILED_BOTTOM) / 2.0 + 4.0), "failed");
}

fn guides(svg: &mut Svg, marks: &[Mark], x: &Scale) {
    if marks.len() > GUIDES_MAX {
        return;
    }
    let mut path = Path::default();
    for mark in marks {
        let at = x.at(mark.at.as_secs_f64());
        path.start((at, TOP)).down(FAILED_BOTTOM);
    }
    svg.path("guide", &path);
}

/// The band from the mean to the longest latency of each column, and the mean as a line. Where nothing was completed is nothing.
fn plot(svg: &mut Svg, columns: &Columns, x: &Scale) {
    let lowest = columns.list.iter().filter_map(Column::mean_us).min();
    let Some(lowest) = lowest else {
        svg.text("none", Anchor::Middle, ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0), "no request was completed");
        return;
    };
    let longest = columns.list.iter().map(|column| column.max_us).max().unwrap_or(lowest);
    let y = Scale::log(lowest as f64, longest as f64, 1.0, BOTTOM, TOP);
    latency_axis(svg, &y, LEFT, RIGHT);

    let each = columns.length.as_secs_f64();
    let edge = |index: usize| x.at(index as f64 * each);
    let (mut band, mut mean) = (Path::default(), Path::default());
    let mut next = 0;
    for run in columns.list.chunk_by(|one, other| (one.completed > 0) == (other.completed > 0)) {
        let first = next;
        next += run.len();
        let means: Vec<f64> = run.iter().filter_map(Column::mean_us).map(|micros| y.at(micros as f64)).collect();
        if means.len() < run.len() {
            continue;
        }
        band.start((edge(first), means[0]));
        mean.start((edge(first), means[0]));
        for (index, column) in run.iter().enumerate() {
            band.down(y.at(column.max_us as f64)).across(edge(first + index + 1));
            mean.down(means[index]).across(edge(first + index + 1));
        }
        for index in (0..run.len()).rev() {
            band.down(means[index]).across(edge(first + index));
        }
        band.close();
    }
    svg.path("band", &band);
    svg.path("mean", &mean);
}

/// A bar for each column in which something failed, higher for more (logarithmic: one failure is seen as well as a thousand).
fn failures(svg: &mut Svg, columns: &Columns, x: &Scale) {
    let most = columns.list.iter().map(|column| column.failed).max().unwrap_or(0);
    if most == 0 {
        let middle = ((LEFT + RIGHT) / 2.0, (FAILED_TOP + FAILED_BOTTOM) / 2.0 + 4.0);
        svg.text("none", Anchor::Middle, middle, "no request failed");
        return;
    }
    let each = columns.length.as_secs_f64();
    let weight = |failed: u64| 1.0 + (failed as f64).ln();
    let height = |failed: u64| (FAILED_BOTTOM - FAILED_TOP) * weight(failed) / weight(most);
    let half = (x.at(each) - x.at(0.0)).max(1.5) / 2.0;
    let mut bars = Path::default();
    for (index, column) in columns.list.iter().enumerate().filter(|(_, column)| column.failed > 0) {
        let middle = x.at((index as f64 + 0.5) * each);
        bars.start((middle - half, FAILED_BOTTOM)).down(FAILED_BOTTOM - height(column.failed)).across(middle + half);
        bars.down(FAILED_BOTTOM);
    }
    svg.path("failed-bar", &bars);
    svg.text("small", Anchor::End, (LEFT - 8.0, FAILED_BOTTOM - 4.0), &format!("most {}", count(most)));
}

fn events(svg: &mut Svg, marks: &[Mark], events: &[Event], x: &Scale) {
    let mut lengths = Path::default();
    for mark in marks {
        let (from, to) = (x.at(mark.at.as_secs_f64()), x.at(mark.end.as_secs_f64()));
        lengths.start((from, EVENTS + 11.0)).across(to.max(from + 0.5));
    }
    svg.path("took", &lengths);
    for mark in marks {
        let at = (x.at(mark.at.as_secs_f64()), EVENTS);
        let bad = mark.failed > 0;
        svg.titled_path(event_class(bad), &event_mark(at, bad), &mark_title(mark, events));
    }
    if events.is_empty() {
        svg.text("none", Anchor::Middle, ((LEFT + RIGHT) / 2.0, EVENTS + 8.0), "no event");
    }
}

fn mark_title(mark: &Mark, events: &[Event]) -> String {
    let event = &events[mark.first];
    let at = mark.at.as_secs_f64();
    match (mark.count, mark.failed) {
        (1, 0) => format!("{} at {at:.3} s", event.what),
        (1, _) => format!("{} at {at:.3} s: failed", event.what),
        (count, 0) => format!("{count} × {} from {at:.3} s", event.what),
        (count, failed) => format!("{count} × {} from {at:.3} s, {failed} failed", event.what),
    }
}
