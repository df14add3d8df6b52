//! Drawings of one case: bars for what a system reaches, lines for the percentiles of latency.

use std::fmt::Write;

use super::text::{escape, short};
use crate::bench::results::Row;
use crate::bench::scenario::System;
use crate::bench::stats::PERCENTILES;

const WIDTH: f64 = 262.0;
/// The least room of a name, and what a letter takes.
const NAME: f64 = 60.0;
const LETTER: f64 = 5.4;
const VALUE: f64 = 48.0;
const ROW: f64 = 20.0;
const HEAD: f64 = 30.0;
const HEIGHT_MIN: f64 = 158.0;

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
pub(super) fn colour(system: System) -> &'static str {
    match system {
        System::Intertie => "#0072b2",
        System::Passthrough => "#56b4e9",
        System::Baseline => "#332288",
        System::Floor => "#7a7f87",
        System::HaProxy => "#d55e00",
        System::Nginx => "#009e73",
        System::Envoy | System::RedpandaConnect => "#cc79a7",
        System::Camel => "#e69f00",
        System::Direct => "#b9c0c9",
    }
}

/// A figure of a system: the median, and the range over the rounds.
pub(super) struct Bar {
    pub system: System,
    pub value: f64,
    pub range: (f64, f64),
}

impl Bar {
    /// The bar of a row, if it has this figure.
    pub fn of(
        row: &Row,
        figure: impl Fn(&crate::bench::results::Figures) -> Option<f64>,
    ) -> Option<Self> {
        let value = figure(&row.median)?;
        let rounds: Vec<f64> = row.rounds.iter().filter_map(figure).collect();
        let low = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rounds.iter().copied().fold(0.0, f64::max);
        Some(Self {
            system: row.system,
            value,
            range: (low.min(value), high.max(value)),
        })
    }
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{0}\">\n\
         <text class=\"title\" x=\"10\" y=\"18\">{0}</text>\n",
        escape(title)
    )
}

fn height(bars: usize) -> f64 {
    (HEAD + ROW * bars as f64 + 10.0).max(HEIGHT_MIN)
}

/// Bars from the left; `most` is the value that fills the width.
pub(super) fn bars(title: &str, bars: &[Bar], most: f64, lines: usize) -> String {
    let mut svg = open(title, height(lines.max(bars.len())));
    let letters = bars.iter().map(|bar| bar.system.name().len()).max();
    let names = (LETTER * letters.unwrap_or(0) as f64).max(NAME);
    let room = WIDTH - names - VALUE - 14.0;
    let scale = |value: f64| room * (value / most.max(f64::MIN_POSITIVE)).min(1.0);
    for (index, bar) in bars.iter().enumerate() {
        let y = HEAD + ROW * index as f64;
        let (low, high) = (
            names + 10.0 + scale(bar.range.0),
            names + 10.0 + scale(bar.range.1),
        );
        let middle = y + 7.0;
        // invariant: writing to a String does not fail.
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"10\" y=\"{base}\">{name}</text>\
             <rect x=\"{x}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" rx=\"2\" \
             fill=\"{fill}\">\
             <title>{name}: {value}</title></rect>\
             <line class=\"range\" x1=\"{low:.1}\" y1=\"{middle}\" \
             x2=\"{high:.1}\" y2=\"{middle}\"/>\
             <text x=\"{after:.1}\" y=\"{base}\">{value}</text>",
            base = y + 11.0,
            name = bar.system.name(),
            x = names + 10.0,
            width = scale(bar.value).max(1.0),
            fill = colour(bar.system),
            value = short(bar.value),
            after = high + 5.0,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Latency at the percentiles, on a logarithmic scale.
pub(super) fn latencies(title: &str, rows: &[&Row], lines: usize) -> String {
    let height = height(lines);
    let mut svg = open(title, height);
    let series: Vec<(System, Vec<f64>)> =
        rows.iter().map(|row| (row.system, points(row))).collect();
    let all = || series.iter().flat_map(|(_, points)| points.iter().copied());
    let low = all()
        .fold(f64::INFINITY, f64::min)
        .max(1e-3)
        .log10()
        .floor();
    let high = all().fold(1e-3, f64::max).log10().ceil().max(low + 1.0);
    if !low.is_finite() {
        return svg + "</svg>\n";
    }
    let (top, bottom, left, right) = (HEAD + 2.0, height - 24.0, 40.0, WIDTH - 14.0);
    let y = |value: f64| bottom - (bottom - top) * (value.max(1e-3).log10() - low) / (high - low);
    let steps = PERCENTILES.len() as f64;
    let x = |index: usize| left + (right - left) * index as f64 / steps;
    for decade in low as i32..=high as i32 {
        let (value, at) = (10_f64.powi(decade), y(10_f64.powi(decade)));
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text class=\"name\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for (index, label) in [(0, "p50"), (2, "90"), (4, "99"), (5, "99.9"), (7, "max")] {
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            x(index),
            height - 8.0
        );
    }
    for (system, points) in &series {
        line(&mut svg, *system, points, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg
}

fn points(row: &Row) -> Vec<f64> {
    let latency = &row.median.latency;
    let percentiles = latency.percentiles.iter().copied();
    percentiles.chain([latency.max]).collect()
}

fn line(
    svg: &mut String,
    system: System,
    points: &[f64],
    x: &dyn Fn(usize) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
    let path: Vec<String> = points
        .iter()
        .enumerate()
        .map(|(index, value)| format!("{:.1},{:.1}", x(index), y(*value)))
        .collect();
    let width = if system == System::Intertie { 2.6 } else { 1.6 };
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\">\
         <title>{}</title></polyline>",
        path.join(" "),
        colour(system),
        system.name()
    );
}
