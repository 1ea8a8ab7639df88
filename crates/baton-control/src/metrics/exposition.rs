//! The text of a scrape, made piece by piece from values that were read.

use super::parts::Part;
use super::rows::{CHECKS, Metric, MetricForm, PROCESS, ProcessMetric, states_of};
use super::scrape::{Objects, Scrape};
use super::tables;
use super::text;
use crate::runtime::field::Value;
use crate::runtime::stat::ObjectKind;

/// A piece is closed when it has as many bytes. It may have more by the series of one object, or by the metrics of the process.
pub const PIECE_BYTES: usize = 16 * 1024;
/// What is said of a metric that only HAProxy with another compression library has.
const UNKNOWN: &str = "Memory of another compression library; not used";

/// A response that is being written. Needs no live state.
#[derive(Debug)]
pub struct Exposition {
    scrape: Scrape,
    /// Where in [`Part::ALL`] it is, at which metric of that part, and at which object.
    part: usize,
    metric: usize,
    object: usize,
    /// The family whose head was written last in this part.
    family: &'static str,
}

impl Exposition {
    /// Of values that were all read.
    pub fn new(scrape: Scrape) -> Exposition {
        Exposition { scrape, part: 0, metric: 0, object: 0, family: "" }
    }

    /// The next piece; `None` at the end.
    pub fn next_piece(&mut self) -> Option<String> {
        let mut out = String::new();
        while out.len() < PIECE_BYTES {
            let Some(part) = Part::ALL.get(self.part) else { break };
            if self.scrape.wants(*part) && !self.write(*part, &mut out) {
                break;
            }
            (self.part, self.metric, self.object, self.family) = (self.part + 1, 0, 0, "");
        }
        (!out.is_empty()).then_some(out)
    }

    /// Writes what fits of a part; whether that was all.
    fn write(&mut self, part: Part, out: &mut String) -> bool {
        match part {
            Part::Process => {
                PROCESS.iter().for_each(|metric| write_process(out, metric, &self.scrape));
                true
            }
            Part::Objects(kind) => self.write_objects(part.prefix(), kind, out),
            Part::Tables => tables::write(&self.scrape.tables, (&mut self.metric, &mut self.object), out),
            Part::Own => match &self.scrape.own {
                Some(own) => own.write(&mut self.object, out),
                None => true,
            },
        }
    }

    fn write_objects(&mut self, prefix: &str, kind: ObjectKind, out: &mut String) -> bool {
        let objects = &self.scrape.objects[kind as usize];
        while let Some(metric) = objects.metrics.get(self.metric) {
            while self.object < objects.labels.len() {
                if out.len() >= PIECE_BYTES {
                    return false;
                }
                if is_shown(objects, metric, (self.object, self.metric)) {
                    if self.family != metric.name {
                        self.family = metric.name;
                        text::head(out, prefix, metric.name, &metric.help(), metric.metric_type.word());
                    }
                    write_object(out, prefix, objects, metric, (self.object, self.metric));
                }
                self.object += 1;
            }
            (self.metric, self.object) = (self.metric + 1, 0);
        }
        true
    }
}

fn is_shown(objects: &Objects, metric: &Metric, (object, at): (usize, usize)) -> bool {
    match metric.form {
        MetricForm::Servers | MetricForm::Checks => objects.servers[object].states.iter().any(|count| *count > 0),
        MetricForm::Number
        | MetricForm::Seconds
        | MetricForm::Class(_)
        | MetricForm::State
        | MetricForm::Check
        | MetricForm::CheckCode => objects.cell(object, at).shown().is_some(),
    }
}

/// The series of an object.
fn write_object(out: &mut String, prefix: &str, objects: &Objects, metric: &Metric, (object, at): (usize, usize)) {
    let own = &*objects.labels[object];
    let value = objects.cell(object, at).shown().unwrap_or_default();
    let mut states = |states: &[&str], value: &dyn Fn(usize) -> f64| {
        for (state, word) in states.iter().enumerate() {
            let mut label = String::new();
            text::label_text(&mut label, "state", word);
            text::series(out, prefix, metric.name, &[own, &label], value(state), false);
        }
    };
    let is = |state: usize| if value == state as f64 { 1.0 } else { 0.0 };
    match metric.form {
        MetricForm::State => states(states_of(objects.kind), &is),
        MetricForm::Check => states(&CHECKS, &is),
        MetricForm::Servers => {
            let counts = &objects.servers[object].states;
            states(states_of(ObjectKind::Server), &|state| f64::from(counts[state]));
        }
        MetricForm::Checks => {
            let counts = &objects.servers[object].checks;
            states(&CHECKS, &|check| f64::from(counts[check]));
        }
        MetricForm::Number | MetricForm::CheckCode => text::series(out, prefix, metric.name, &[own], value, false),
        MetricForm::Seconds => text::series(out, prefix, metric.name, &[own], value, true),
        MetricForm::Class(code) => {
            let mut label = String::new();
            text::label_text(&mut label, "code", code);
            text::series(out, prefix, metric.name, &[own, &label], value, false);
        }
    }
}

/// A metric of the process, with the value of its line.
fn write_process(out: &mut String, metric: &ProcessMetric, scrape: &Scrape) {
    let line = metric.line.and_then(|name| scrape.process.iter().find(|(field, _)| field.name == name));
    let help = line.map_or(UNKNOWN, |(field, _)| field.doc);
    let prefix = Part::Process.prefix();
    text::head(out, prefix, metric.name, help, metric.metric_type.word());
    match line.map(|(_, value)| value) {
        // The text is the label.
        Some(version @ Value::Text(_)) => {
            let mut label = String::new();
            text::label(&mut label, "version", version);
            text::series(out, prefix, metric.name, &[&label], 1.0, false);
        }
        value => {
            let number = value.and_then(Value::number).unwrap_or(f64::NAN);
            text::series(out, prefix, metric.name, &[], number, false);
        }
    }
}
