//! The distribution of latency: for each share of the requests the time they stayed within, during events and outside of them.

use hdrhistogram::Histogram;

use crate::{
    proof::{
        Measured,
        chart::{Sign, latency_axis, legend},
        draw::{Anchor, Path, Scale, Svg},
        words::plural,
    },
    report::time,
};

/// Points of a line for each power of ten of requests.
const POINTS: i32 = 24;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 272.0;

/// The chart of a row that is called `name`.
pub(in crate::proof) fn percentiles(measured: &Measured, name: &str) -> String {
    let parts = [("outside", &measured.outside, "outside events"), ("during", &measured.during, "during events")];
    let parts: Vec<_> = parts.into_iter().filter(|(_, histogram, _)| !histogram.is_empty()).collect();
    let described: Vec<String> = parts.iter().map(|(_, histogram, label)| describe(histogram, label)).collect();
    let mut svg = Svg::new(WIDTH, HEIGHT, &format!("Distribution of latency: {name}"), &described.join(" "));

    let lowest = parts.iter().map(|(_, histogram, _)| histogram.min()).min();
    let longest = parts.iter().map(|(_, histogram, _)| histogram.max()).max();
    let most = parts.iter().map(|(_, histogram, _)| histogram.len()).max();
    let (Some(lowest), Some(longest), Some(most)) = (lowest, longest, most) else {
        svg.text("none", Anchor::Middle, (WIDTH / 2.0, HEIGHT / 2.0), "no request was completed");
        return svg.finish();
    };
    let x = Scale::log_exact(1.0, (most as f64).max(10.0), LEFT, RIGHT);
    let y = Scale::log(lowest as f64, longest as f64, 1.0, BOTTOM, TOP);
    latency_axis(&mut svg, &y, LEFT, RIGHT);
    shares(&mut svg, &x, most);

    let mut signs = Vec::new();
    for (class, histogram, label) in parts {
        svg.path(class, &line(histogram, &x, &y));
        let end = (x.at(histogram.len() as f64), y.at(histogram.max() as f64));
        svg.rect(&format!("{class} dot"), (end.0 - 3.0, end.1 - 3.0), 6.0, 6.0);
        signs.push((Sign::Line(class), label.to_owned()));
    }
    legend(&mut svg, (LEFT, 16.0), &signs);
    svg.finish()
}

fn describe(histogram: &Histogram<u64>, label: &str) -> String {
    let at = |quantile| time(histogram.value_at_quantile(quantile).min(histogram.max()));
    let count = plural(histogram.len(), "request");
    format!(
        "Of {count} {label} half took {} at most, 99% {}, the longest {}.",
        at(0.5),
        at(0.99),
        time(histogram.max())
    )
}

/// The axis of shares: 90% is one in ten that takes longer, 99% one in a hundred.
fn shares(svg: &mut Svg, x: &Scale, most: u64) {
    let names = [(1.0, "0"), (2.0, "50%"), (10.0, "90%"), (100.0, "99%"), (1e3, "99.9%"), (1e4, "99.99%")];
    let more = [(1e5, "99.999%"), (1e6, "99.9999%"), (1e7, "99.99999%")];
    // Nine decades of names would overlap: of a load that long every second one is told.
    let each = if most >= 10_000_000 { 2 } else { 1 };
    let names = names.into_iter().chain(more).take_while(|(longer, _)| *longer <= (most as f64).max(10.0) * 1.001);
    for (number, (longer, name)) in names.enumerate() {
        let at = x.at(longer);
        svg.line("grid", (at, TOP), (at, BOTTOM));
        if number % each == 0 {
            svg.text("tick", Anchor::Middle, (at, BOTTOM + 18.0), name);
        }
    }
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    svg.text(
        "label",
        Anchor::Middle,
        ((LEFT + RIGHT) / 2.0, HEIGHT - 8.0),
        "share of the requests that took at most this long",
    );
}

/// The line from the shortest latency to the longest one, which only one request of all had.
fn line(histogram: &Histogram<u64>, x: &Scale, y: &Scale) -> Path {
    let most = histogram.len() as f64;
    let mut path = Path::default();
    path.start((x.at(1.0), y.at(histogram.min() as f64)));
    for point in 1.. {
        let longer = 10f64.powf(f64::from(point) / f64::from(POINTS));
        if longer >= most {
            break;
        }
        let micros = histogram.value_at_quantile(1.0 - 1.0 / longer).min(histogram.max());
        path.to((x.at(longer), y.at(micros as f64)));
    }
    path.to((x.at(most), y.at(histogram.max() as f64)));
    path
}
