//! One picture of a whole proof: for each row the share of requests that failed, and the longest latency beside it.

use crate::{
    proof::{
        Measured, Outcome, Proof, Row,
        draw::{Anchor, Path, Scale, Svg},
        matrix,
        words::count,
    },
    report::time,
};

const WIDTH: f64 = 1000.0;
/// Where the names end, and the ends of the two plots. Right of each is room for a bar's label.
const NAMES: f64 = 292.0;
const FAILED: (f64, f64) = (304.0, 560.0);
const LONGEST: (f64, f64) = (722.0, 900.0);
/// The heights of the head, a group's name, a row, and the foot.
const HEAD: f64 = 58.0;
const GROUP: f64 = 30.0;
const ROW: f64 = 26.0;
const FOOT: f64 = 40.0;

/// The looks of the picture as a file of its own: everywhere the same opaque card, light or dark as the reader has it, so that it
/// can stand on any page.
const STYLE: &str = "
text{font:13px system-ui,'Segoe UI','Liberation Sans',Arial,sans-serif;fill:#1c2128}
.strong{font-weight:600}.tick,.axis-name{fill:#57606a;font-size:12px}
.card{fill:#ffffff;stroke:#d0d7de}.grid{stroke:#e4e8ec}.axis{stroke:#8b949e}
.failed-bar{fill:#c2123a}.longest-bar{fill:#0a4f96}.article-sign{fill:#ffffff;stroke:#1c2128;stroke-width:1.6}
@media (prefers-color-scheme:dark){text{fill:#e6e9ed}.tick,.axis-name{fill:#a0aab4}
.card{fill:#0f1318;stroke:#333b45}.grid{stroke:#232a32}.axis{stroke:#6b7580}
.failed-bar{fill:#ff6f85}.longest-bar{fill:#6db3f2}.article-sign{fill:#0f1318;stroke:#e6e9ed}}
";

impl Proof {
    /// The picture as an SVG file of its own: what changes cost, if every measured row is about that, otherwise failed requests and longest
    /// latencies. Rows that were not measured are told by name with the reason's kind.
    pub fn picture(&self) -> String {
        let mut measured = self.rows.iter().filter_map(Row::measured).peekable();
        if measured.peek().is_some() && measured.all(|measured| measured.held.is_some()) {
            return matrix::standalone(self);
        }
        let (title, description) = (self.picture_title(), self.picture_description());
        self.draw(Svg::standalone(WIDTH, self.height(), &title, &description, STYLE))
    }

    /// The picture as a part of a page that has the looks.
    pub(super) fn drawing(&self) -> String {
        self.draw(Svg::new(WIDTH, self.height(), &self.picture_title(), &self.picture_description()))
    }

    fn picture_title(&self) -> String {
        format!("{}: failed requests and longest latency", self.title)
    }

    /// The picture in words: one sentence a row.
    fn picture_description(&self) -> String {
        let sentence = |row: &Row| match &row.outcome {
            Outcome::Measured(measured) => {
                let report = &measured.report;
                let (failed, all, longest) =
                    (count(report.failed), count(report.requests), time(report.latency_us.max));
                format!("{}, {}: {failed} of {all} requests failed, longest {longest}.", row.experiment, row.server)
            }
            Outcome::Absent(_) => format!("{}, {}: absent.", row.experiment, row.server),
            Outcome::Broken(_) => format!("{}, {}: broken.", row.experiment, row.server),
        };
        self.rows.iter().map(sentence).collect::<Vec<_>>().join(" ")
    }

    /// The rows in runs of the same group.
    fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|one, other| one.group == other.group)
    }

    fn height(&self) -> f64 {
        let named = self.groups().filter(|rows| rows[0].group.is_some()).count();
        HEAD + named as f64 * GROUP + self.rows.len() as f64 * ROW + FOOT
    }

    fn draw(&self, mut svg: Svg) -> String {
        let height = self.height();
        svg.rect("card", (0.5, 0.5), WIDTH - 1.0, height - 1.0);
        let (failed, longest) = self.scales();
        axes(&mut svg, &failed, &longest, height - FOOT + 4.0);
        let mut y = HEAD;
        for rows in self.groups() {
            if let Some(group) = &rows[0].group {
                svg.text("strong", Anchor::Start, (16.0, y + 20.0), group);
                y += GROUP;
            }
            for row in rows {
                add(&mut svg, row, y + ROW / 2.0, &failed, &longest);
                y += ROW;
            }
        }
        if self.rows.iter().any(|row| !row.articles.is_empty()) {
            diamond(&mut svg, (24.0, height - 16.0));
            svg.text("axis-name", Anchor::Start, (36.0, height - 12.0), "what articles report of the same experiment");
        }
        svg.finish()
    }

    /// The scales of both plots, which hold what was measured and what the articles report.
    fn scales(&self) -> (Scale, Scale) {
        let measured = || self.rows.iter().filter_map(Row::measured);
        let articles = || self.rows.iter().flat_map(|row| &row.articles);
        let shares = measured().map(|measured| share(measured.report.failed, measured.report.requests));
        let told = articles().filter_map(|figures| Some(share(figures.failed?, figures.requests)));
        let least = shares.chain(told).filter(|share| *share > 0.0).fold(0.01, f64::min);
        // One less than the least, so that it has a bar.
        let failed = Scale::log_exact(10f64.powf(least.log10().ceil() - 1.0).max(1e-12), 1.0, FAILED.0, FAILED.1);

        let longest = measured().map(|measured| measured.report.latency_us.max).filter(|longest| *longest > 0);
        let told = articles().filter_map(|figures| figures.max_us);
        let all: Vec<u64> = longest.chain(told).collect();
        let (low, high) =
            (all.iter().min().map_or(1e3, |low| *low as f64), all.iter().max().map_or(1e6, |high| *high as f64));
        (failed, Scale::log(low / 2.0, high, 1.0, LONGEST.0, LONGEST.1))
    }
}

fn axes(svg: &mut Svg, failed: &Scale, longest: &Scale, bottom: f64) {
    svg.text("strong", Anchor::Start, (FAILED.0, 24.0), "requests that failed");
    svg.text("strong", Anchor::Start, (LONGEST.0, 24.0), "longest latency");
    for share in failed.ticks(6) {
        let x = failed.at(share);
        svg.line("grid", (x, HEAD - 4.0), (x, bottom));
        svg.text("tick", Anchor::Middle, (x, HEAD - 10.0), &percent(share));
    }
    for micros in longest.ticks(6) {
        let x = longest.at(micros);
        svg.line("grid", (x, HEAD - 4.0), (x, bottom));
        svg.text("tick", Anchor::Middle, (x, HEAD - 10.0), &super::chart::tick(micros));
    }
    for x in [FAILED.0, LONGEST.0] {
        svg.line("axis", (x, HEAD - 4.0), (x, bottom));
    }
}

fn add(svg: &mut Svg, row: &Row, y: f64, failed: &Scale, longest: &Scale) {
    svg.text("label", Anchor::End, (NAMES, y + 4.5), &format!("{} · {}", row.experiment, row.server));
    match &row.outcome {
        Outcome::Measured(measured) => add_bars(svg, row, measured, y, failed, longest),
        Outcome::Absent(_) => svg.text("tick", Anchor::Start, (FAILED.0 + 8.0, y + 4.5), "absent"),
        Outcome::Broken(_) => svg.text("tick", Anchor::Start, (FAILED.0 + 8.0, y + 4.5), "broken"),
    }
    for figures in &row.articles {
        if let Some(share) = figures.failed.map(|failed| share(failed, figures.requests)).filter(|share| *share > 0.0) {
            diamond(svg, (failed.at(share), y));
        }
        if let Some(micros) = figures.max_us {
            diamond(svg, (longest.at(micros as f64), y));
        }
    }
}

fn add_bars(svg: &mut Svg, row: &Row, measured: &Measured, y: f64, failed: &Scale, longest: &Scale) {
    let report = &measured.report;
    let lost = share(report.failed, report.requests);
    let end = if lost > 0.0 { failed.at(lost) } else { FAILED.0 };
    if lost > 0.0 {
        svg.rect("failed-bar", (FAILED.0, y - 8.0), end - FAILED.0, 16.0);
    }
    let label = format!("{} of {}", count(report.failed), count(report.requests));
    let class = if lost > 0.0 { "label" } else { "label strong" };
    let told = row.articles.iter().filter_map(|figures| figures.failed.map(|failed| share(failed, figures.requests)));
    svg.text(class, Anchor::Start, (beside(end, told, failed), y + 4.5), &label);

    if report.latency_us.max > 0 {
        let end = longest.at(report.latency_us.max as f64);
        svg.rect("longest-bar", (LONGEST.0, y - 8.0), end - LONGEST.0, 16.0);
        let told = row.articles.iter().filter_map(|figures| figures.max_us.map(|micros| micros as f64));
        svg.text("label", Anchor::Start, (beside(end, told, longest), y + 4.5), &time(report.latency_us.max));
    }
}

/// Where a bar's label begins: right of the bar, and of the articles' signs that are near its end or beyond it.
fn beside(end: f64, told: impl Iterator<Item = f64>, scale: &Scale) -> f64 {
    told.filter(|value| *value > 0.0).map(|value| scale.at(value) + 6.0).fold(end, f64::max) + 8.0
}

/// The sign of an article's figure.
fn diamond(svg: &mut Svg, (x, y): (f64, f64)) {
    let mut path = Path::default();
    path.start((x - 6.0, y)).to((x, y - 6.0)).to((x + 6.0, y)).to((x, y + 6.0)).close();
    svg.path("article-sign", &path);
}

fn share(failed: u64, requests: u64) -> f64 {
    if requests == 0 { 0.0 } else { (failed as f64 / requests as f64).min(1.0) }
}

/// A power of ten as percent, without digits that say nothing.
fn percent(share: f64) -> String {
    let text = format!("{:.10}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proof::samples;

    /// The elements of that class in the picture.
    fn bars(picture: &str, class: &str) -> usize {
        let xml = roxmltree::Document::parse(picture).unwrap_or_else(|error| panic!("{error}: {picture}"));
        xml.descendants().filter(|node| node.attribute("class") == Some(class)).count()
    }

    #[test]
    fn rows_have_bars_and_what_did_not_fail_has_none() {
        let proof = samples::proof();
        let picture = proof.picture();
        assert_eq!(bars(&picture, "failed-bar"), 1, "{picture}");
        assert_eq!(bars(&picture, "longest-bar"), 2, "{picture}");
        assert_eq!(bars(&picture, "article-sign"), 2, "the figure and the legend: {picture}");
        for text in [
            "130 of 1,000",
            "0 of 1,000",
            ">absent<",
            ">broken<",
            "hard-restart · haproxy",
            "10,000 requests, 200 users",
        ] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
        assert!(proof.drawing().contains("0 of 1,000") && !proof.drawing().contains("<style>"));
    }

    #[test]
    fn a_picture_of_nothing_and_of_strange_names_is_a_picture() {
        let mut proof = samples::proof();
        proof.rows.truncate(1);
        proof.rows[0].server = "<script>\u{0}日本".into();
        proof.rows[0].group = None;
        assert!(!proof.picture().contains("<script>"));
        assert_eq!(bars(&proof.picture(), "failed-bar"), 1);
        proof.rows.clear();
        assert_eq!(bars(&proof.picture(), "failed-bar"), 0);
    }

    #[test]
    fn percents_are_short() {
        assert_eq!([1.0, 0.1, 1e-3, 1e-6].map(percent), ["100%", "10%", "0.1%", "0.0001%"]);
    }
}
