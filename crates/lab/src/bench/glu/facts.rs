//! What a reader of the suite's tables wants beside the columns: transactions for a second of CPU
//! beside the published ones, what became of the messages, and how full the flight was.

use super::super::results::{Case, Row, Variant};
use super::super::scenario::System;

const TABLE: &str = include_str!("../../../published/glu.csv");

/// A published row of GLU.Ware.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Landmark {
    /// What it was measured on.
    pub setup: String,
    /// Transactions a second.
    pub tps: f64,
    /// How many virtual processors its engines had, where that is published.
    pub vcpus: Option<f64>,
    pub error_percent: Option<f64>,
}

impl Landmark {
    /// Microseconds of all its processors for a transaction, broker included: they bound from above
    /// what the engine used.
    pub fn cpu(&self) -> Option<f64> {
        self.vcpus.map(|vcpus| vcpus * 1e6 / self.tps)
    }
}

/// The published rows that a case stands beside.
pub(crate) fn landmarks(case: &Case) -> Vec<Landmark> {
    let names: &[&str] = match (case.scenario.as_str(), case.variant, case.delay_ms) {
        ("straight", ..) => &["straight-line", "straight-line-single-node"],
        ("complex", ..) => &["complex"],
        ("latency", Variant::Queues(1), 100.0) => &["latency-100ms-1-silo"],
        ("latency", Variant::Queues(3), 100.0) => &["latency-100ms-3-silos"],
        ("menu-complex", ..) => &["ussd"],
        ("menu-latency", _, 100.0) => &["latency-100ms-3-silos"],
        ("latency" | "menu-latency", _, 3000.0) => &["latency-3000ms"],
        _ => &[],
    };
    let rows = TABLE.lines().map(fields).filter_map(|fields| {
        let name = fields.first()?;
        names.contains(&name.as_str()).then(|| landmark(&fields))?
    });
    rows.collect()
}

fn landmark(fields: &[String]) -> Option<Landmark> {
    let number = |index: usize| fields.get(index)?.trim().parse::<f64>().ok();
    Some(Landmark {
        setup: fields.get(3)?.clone(),
        tps: number(1)?,
        vcpus: number(2),
        error_percent: number(6),
    })
}

/// The fields of a line of CSV; those with commas stand in quotes (RFC 4180, without quotes
/// inside).
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => {
                if let Some(field) = fields.last_mut() {
                    field.push(letter);
                }
            }
        }
    }
    fields
}

/// The lines below the table of a case.
pub(crate) fn lines(case: &Case, rows: &[&Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let landmarks = landmarks(case);
    let is_glu = !landmarks.is_empty() || rows.iter().any(|row| row.median.delivered.is_some());
    if is_glu {
        lines.extend(per_second(rows, &landmarks));
    }
    lines.extend(lock(case, rows));
    lines.extend(rows.iter().filter_map(|row| waiting(case, row)));
    for row in rows {
        let name = row.system.name();
        if let Some(flight) = row.median.flight {
            lines.push(format!(
                "{name}: {:.0} of {:.0} in flight on average, {:.1} % of in flight / delay, \
                 {:.1} kB of memory for each",
                flight.reached,
                flight.wanted,
                flight.of_ideal * 100.0,
                flight.bytes_each / 1e3
            ));
        }
        if let Some(sessions) = row.median.sessions {
            lines.push(format!(
                "{name}: {:.0} sessions of {:.0} B each ({:.0} B behind a start), the first \
                 screen {:.0} ms after `kill -9`",
                sessions.count,
                sessions.bytes_each,
                sessions.bytes_each_restarted,
                sessions.start_ms
            ));
        }
        if let Some(delivered) = row.median.delivered {
            lines.push(format!(
                "{name}: {} messages acknowledged, {} of them missing, {} came again, {} wrong",
                delivered.acknowledged, delivered.missing, delivered.again, delivered.wrong
            ));
        }
    }
    lines
}

/// How many transactions there are of those that subscribers and the slow service allow.
fn waiting(case: &Case, row: &Row) -> Option<String> {
    let is_it = case.scenario == "menu-latency" && case.delay_ms > 0.0;
    let ideal = case.streams.users() as f64 / (case.delay_ms / 1e3);
    is_it.then(|| {
        format!(
            "{}: {:.1} % of subscribers / delay",
            row.system.name(),
            row.median.throughput / ideal * 100.0
        )
    })
}

/// What tokens cost beside an open flow that gets the same requests.
fn lock(case: &Case, rows: &[&Row]) -> Option<String> {
    let cpu = |system: System| rows.iter().find(|row| row.system == system)?.median.cpu;
    if !matches!(case.variant, Variant::Warm | Variant::Cold) {
        return None;
    }
    let (ours, open) = (cpu(System::Intertie)?, cpu(System::Passthrough)?);
    let lock = ours - open;
    let mut line = format!("the lock costs {lock:.2} us of CPU for a request");
    let own = rows.iter().find(|row| row.system == System::Intertie)?;
    if let Some(check) = own.median.check_us {
        let rest = lock - check;
        line.push_str(&format!(
            ": {check:.2} us for a signature, {rest:.2} us for the rest"
        ));
    }
    Some(line)
}

/// Transactions for a second of the engine's CPU.
fn per_second(rows: &[&Row], landmarks: &[Landmark]) -> Option<String> {
    let ours = rows.iter().filter_map(|row| {
        let cpu = row.median.cpu.filter(|cpu| *cpu > 0.0)?;
        Some(format!("{} {:.0}", row.system.name(), 1e6 / cpu))
    });
    let published = landmarks.iter().filter_map(|row| {
        let each = row.tps / row.vcpus?;
        Some(format!("GLU.Ware {each:.0} a vCPU ({})", row.setup))
    });
    let all: Vec<String> = ours.chain(published).collect();
    (!all.is_empty()).then(|| format!("transactions for a second of CPU: {}", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::super::results::testing::row;
    use super::super::super::results::{Figures, Flight};
    use super::super::super::scenario::System;
    use super::super::Delivered;
    use super::*;

    fn case(scenario: &str, variant: Variant, delay_ms: f64) -> Case {
        Case {
            scenario: scenario.to_owned(),
            variant,
            delay_ms,
            ..row(System::Intertie, &[]).case
        }
    }

    #[test]
    fn cases_stand_beside_published_rows() {
        let tps = |scenario: &str, variant: Variant, delay: f64| {
            let rows = landmarks(&case(scenario, variant, delay));
            rows.iter().map(|row| row.tps).collect::<Vec<_>>()
        };
        assert_eq!(tps("straight", Variant::Plain, 0.0), [4400.0, 1885.0]);
        assert_eq!(tps("complex", Variant::Detached, 0.0), [754.0]);
        assert_eq!(tps("latency", Variant::Queues(1), 100.0), [350.0]);
        assert_eq!(tps("latency", Variant::Queues(3), 100.0), [702.0]);
        assert_eq!(tps("latency", Variant::Queues(1), 3000.0), [90.0]);
        assert_eq!(tps("menu-complex", Variant::Plain, 0.0), [914.9]);
        assert_eq!(tps("menu-latency", Variant::Queues(3), 100.0), [702.0]);
        assert!(tps("menu", Variant::Plain, 0.0).is_empty());
        assert!(tps("h1c", Variant::Plain, 0.0).is_empty());
        let straight = &landmarks(&case("straight", Variant::Plain, 0.0))[0];
        assert_eq!(straight.error_percent, Some(1.22));
        assert_eq!(straight.setup, "t3a.xlarge + 2x t3.medium, Docker Swarm");
        assert!((straight.cpu().unwrap() - 1818.18).abs() < 0.01);
        let silo = &landmarks(&case("latency", Variant::Queues(1), 3000.0))[0];
        assert_eq!(silo.cpu(), None);
    }

    #[test]
    fn a_lock_is_told_apart_from_the_signatures_that_it_checks() {
        let rows = |check_us: Option<f64>| {
            let mut rows = [
                row(System::Intertie, &[50.0]),
                row(System::Passthrough, &[20.0]),
            ];
            rows[0].median.check_us = check_us;
            rows
        };
        let line = |variant, rows: &[Row]| {
            let rows: Vec<&Row> = rows.iter().collect();
            lock(&case("jwt-es256", variant, 0.0), &rows)
        };
        let known = "the lock costs 30.00 us of CPU for a request";
        assert_eq!(line(Variant::Warm, &rows(None)).as_deref(), Some(known));
        let new = format!("{known}: 26.50 us for a signature, 3.50 us for the rest");
        assert_eq!(line(Variant::Cold, &rows(Some(26.5))), Some(new));
        assert_eq!(line(Variant::Plain, &rows(None)), None);
    }

    #[test]
    fn lines_tell_what_columns_do_not() {
        let mut row = row(System::Intertie, &[50.0]);
        row.median = Figures {
            delivered: Some(Delivered {
                acknowledged: 10,
                again: 1,
                ..Delivered::default()
            }),
            flight: Some(Flight {
                wanted: 1000.0,
                reached: 998.4,
                of_ideal: 0.987,
                bytes_each: 9_876.0,
            }),
            ..row.median
        };
        let lines = lines(&case("complex", Variant::Plain, 0.0), &[&row]);
        let wanted = "transactions for a second of CPU: intertie 20000, GLU.Ware 188 a vCPU \
                      (c5.xlarge, one engine)";
        assert!(lines[0].starts_with(&wanted[..60]), "{lines:?}");
        assert!(
            lines[1].contains("998 of 1000 in flight on average, 98.7 %"),
            "{lines:?}"
        );
        assert!(lines[1].contains("9.9 kB"), "{lines:?}");
        assert!(lines[2].contains("10 messages acknowledged, 0 of them missing, 1 came again"));
    }
}
