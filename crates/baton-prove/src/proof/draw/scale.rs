//! Scales: from a value to a place on the drawing, and the values worth a tick.

/// One axis, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    kind: ScaleKind,
    /// The values at both ends; `low < high`.
    low: f64,
    high: f64,
    /// Where the ends are on the drawing; `start` may be greater (an axis that grows upwards).
    start: f64,
    end: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaleKind {
    Linear,
    Log,
}

/// The steps between ticks within a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

impl Scale {
    /// A linear scale from 0 to `high`.
    pub(crate) fn linear(high: f64, start: f64, end: f64) -> Scale {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        Scale { kind: ScaleKind::Linear, low: 0.0, high, start, end }
    }

    /// A logarithmic scale that holds all values between these and ends at round ones. What is not above zero counts as `least`.
    pub(crate) fn log(low: f64, high: f64, least: f64, start: f64, end: f64) -> Scale {
        let sound = |value: f64| if value.is_finite() && value > least { value } else { least };
        let (low, high) = (round_down(sound(low)), sound(high));
        let mut top = round_down(high);
        while top < high || top <= low {
            top = round_up_from(top);
        }
        Scale { kind: ScaleKind::Log, low, high: top, start, end }
    }

    /// A logarithmic scale with exactly these ends.
    pub(crate) fn log_exact(low: f64, high: f64, start: f64, end: f64) -> Scale {
        debug_assert!(low > 0.0 && low < high);
        Scale { kind: ScaleKind::Log, low, high, start, end }
    }

    /// The place of a value; what is outside of the scale is at its end.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            ScaleKind::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.start + share * (self.end - self.start)
    }

    /// Round values from low to high, about `most` of them at most. Those of a logarithmic scale are powers of ten, with 2 and 5
    /// between them where there is room.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        match self.kind {
            ScaleKind::Linear => self.linear_ticks(most),
            ScaleKind::Log => self.log_ticks(most),
        }
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let mut step = round_down(self.high / most.max(1) as f64);
        while self.high / step > most as f64 {
            step = round_up_from(step);
        }
        let count = (self.high / step + 1e-9) as usize;
        (0..=count).map(|number| number as f64 * step).collect()
    }

    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        let all: Vec<f64> =
            (first..=last).flat_map(|power| STEPS.map(|step| step * 10f64.powi(power))).filter(within).collect();
        if all.len() <= most {
            return all;
        }
        let tens: Vec<f64> = (first..=last).map(|power| 10f64.powi(power)).filter(within).collect();
        let each = tens.len().div_ceil(most.max(1)).max(1);
        tens.into_iter().step_by(each).collect()
    }
}

/// The greatest of 1, 2 and 5 times a power of ten that is not above the value, which is above zero.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powi(value.log10().floor() as i32);
    let step = STEPS.into_iter().rev().find(|step| step * power <= value * 1.000_001);
    step.unwrap_or(1.0) * power
}

/// The next round value after a round one.
fn round_up_from(round: f64) -> f64 {
    // 1 → 2 → 5 → 10: twice as much is never beyond the next one, and three times lies between it and the one after.
    round_down(round * 2.6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_values_follow_each_other() {
        let mut value = 0.001;
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(format!("{value:.3}"));
            value = round_up_from(value);
        }
        assert_eq!(seen, ["0.001", "0.002", "0.005", "0.010", "0.020", "0.050", "0.100", "0.200", "0.500", "1.000"]);
        assert_eq!([0.0123, 1.0, 1.99, 4.9, 7.0, 1e12].map(round_down), [0.01, 1.0, 1.0, 2.0, 5.0, 1e12]);
    }

    #[test]
    fn a_linear_scale_starts_at_zero_and_has_round_ticks() {
        let scale = Scale::linear(12.4, 100.0, 900.0);
        assert_eq!((scale.at(0.0), scale.at(12.4), scale.at(6.2)), (100.0, 900.0, 500.0));
        assert_eq!((scale.at(-1.0), scale.at(1e300), scale.at(f64::NAN)), (100.0, 900.0, 100.0));
        assert_eq!(scale.ticks(8), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(Scale::linear(0.0, 0.0, 1.0).ticks(5).len(), 6, "a scale of nothing is one of 1");
    }

    #[test]
    fn a_logarithmic_scale_ends_at_round_values_and_holds_all() {
        let scale = Scale::log(280.0, 32_000.0, 1.0, 300.0, 0.0);
        assert_eq!((scale.at(200.0), scale.at(50_000.0)), (300.0, 0.0));
        assert!(scale.at(280.0) < 300.0 && scale.at(32_000.0) > 0.0);
        assert_eq!(scale.ticks(9), [200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4]);
        assert_eq!(scale.ticks(5), [1e3, 1e4]);
        assert_eq!(scale.at(0.0), 300.0, "nothing has no logarithm");
    }

    #[test]
    fn scales_of_one_value_of_none_and_of_the_greatest_are_scales() {
        for (low, high) in [(5.0, 5.0), (0.0, 0.0), (f64::NAN, f64::INFINITY), (1.0, u64::MAX as f64)] {
            let scale = Scale::log(low, high, 1.0, 0.0, 100.0);
            let ticks = scale.ticks(8);
            assert!((1..=9).contains(&ticks.len()), "{low} {high} {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&scale.at(*tick))), "{low} {high} {ticks:?}");
        }
    }
}
