//! A proof as JSON, for programs.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::{
    failure::{Failure, micros},
    load::Series,
    proof::{Event, HeldResult, Measured, Meter, Proof},
    report::Report,
};

/// What of a row that ran goes into the JSON: the histograms are in the report as percentiles.
#[derive(Serialize)]
struct Numbers<'a> {
    #[serde(flatten)]
    report: &'a Report,
    events: &'a [Event],
    events_failed: usize,
    failed_per_event: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meter: Option<&'a Meter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<&'a HeldResult>,
    left_over: &'a [String],
    all_failures: &'a [Failure],
    series: Slots,
}

/// The series as columns, which is a fifth of the size of an object for each slot.
#[derive(Serialize)]
struct Slots {
    #[serde(rename = "interval_us", serialize_with = "micros")]
    interval: Duration,
    completed: Vec<u32>,
    failed: Vec<u32>,
    mean_us: Vec<u64>,
    max_us: Vec<u64>,
}

impl Slots {
    fn new(series: &Series) -> Slots {
        let slots = series.slots();
        Slots {
            interval: series.interval(),
            completed: slots.iter().map(|slot| slot.completed).collect(),
            failed: slots.iter().map(|slot| slot.failed).collect(),
            mean_us: slots.iter().map(|slot| slot.mean_us().unwrap_or(0)).collect(),
            max_us: slots.iter().map(|slot| slot.max_us).collect(),
        }
    }
}

impl Serialize for Measured {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let numbers = Numbers {
            report: &self.report,
            events: &self.events,
            events_failed: self.events_failed(),
            failed_per_event: self.failed_per_event(),
            meter: self.meter.as_ref(),
            held: self.held.as_ref(),
            left_over: &self.left_over,
            all_failures: &self.failures,
            series: Slots::new(&self.series),
        };
        numbers.serialize(serializer)
    }
}

impl Proof {
    /// The proof as one JSON object on one line: the fields of [`Proof`], in `rows` the fields of [`Row`](crate::proof::Row).
    /// `outcome` is an object with one member: `absent` or `broken` (a text), or `measured`: the fields of [`Report`], the
    /// events, all failures that were kept, and the series as one array for each quantity.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are always JSON")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::proof::samples;

    #[test]
    fn every_row_is_there_with_its_outcome() {
        let proof = samples::proof();
        let json: Value = serde_json::from_str(&proof.to_json()).expect("JSON");
        let rows = json["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), proof.rows.len());

        let measured = &rows[0]["outcome"]["measured"];
        let expect = proof.rows[0].measured().expect("the first sample is measured");
        assert_eq!(measured["requests"], expect.report.requests);
        assert_eq!(measured["failures"]["refused"], expect.report.failures["refused"]);
        assert_eq!(measured["events"].as_array().map(Vec::len), Some(expect.events.len()));
        assert_eq!(measured["events"][1]["at_us"], 400_000);
        assert_eq!(measured["series"]["interval_us"], 10_000);
        assert_eq!(measured["series"]["max_us"].as_array().map(Vec::len), Some(expect.series.slots().len()));
        assert_eq!(measured["all_failures"].as_array().map(Vec::len), Some(expect.failures.len()));

        let absent = rows.iter().find(|row| row["experiment"] == "hold").expect("the absent sample");
        assert!(absent["outcome"]["absent"].is_string(), "{absent}");
        assert!(json["machine"]["kernel"].is_string());
    }
}
