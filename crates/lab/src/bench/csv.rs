//! Results as one small table: a line for each row of a results.json, of whichever suite, with what
//! is known of the row as a whole. What a single round reached stays in results.json.

use std::fmt::Write;

use serde_json::Value;

/// Parts of a row that say more of it than a table can hold.
const LEFT_OUT: [&str; 5] = ["rounds", "samples", "checks", "warnings", "errors_by_kind"];

/// The rows as comma-separated values (RFC 4180), with the names of the columns first. A number in
/// an object has the names around it, joined by dots: `median.latency.mean`.
pub(super) fn table(results: &Value) -> String {
    let rows: Vec<Vec<(String, String)>> = results
        .get("rows")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|row| {
            let mut cells = Vec::new();
            flatten("", row, &mut cells);
            cells
        })
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, text) in rows.iter().flatten() {
        if !text.is_empty() && !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut out = columns.join(",");
    out.push('\n');
    for row in &rows {
        let cells = columns.iter().map(|column| {
            let cell = row.iter().find(|(name, _)| name == column);
            cell.map_or("", |(_, text)| text.as_str())
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

fn flatten(name: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    let below = |part: &str| match name {
        "" => part.to_owned(),
        _ => format!("{name}.{part}"),
    };
    match value {
        Value::Object(members) => {
            for (part, value) in members {
                if !LEFT_OUT.contains(&part.as_str()) {
                    flatten(&below(part), value, cells);
                }
            }
        }
        Value::Array(values) if name.ends_with("percentiles") => {
            let around = name.trim_end_matches("percentiles");
            for (at, value) in super::stats::PERCENTILES.iter().zip(values) {
                cells.push((format!("{around}p{at}"), cell(value)));
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&below(&index.to_string()), value, cells);
            }
        }
        _ => cells.push((name.to_owned(), cell(value))),
    }
}

/// Numbers with four digits that count; texts in quotes where they need them.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Number(number) if number.is_f64() => short(number.as_f64().unwrap_or(0.0)),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".to_owned();
    }
    let before = number.abs().log10().floor();
    // Between -300 and 300 for every number there is, so that it fits.
    let decimals = (3.0 - before).clamp(0.0, 9.0) as usize;
    let mut text = String::new();
    // invariant: writing to a String does not fail.
    let _ = write!(text, "{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines_without_their_rounds() {
        let results = serde_json::json!({ "rows": [
            { "system": "it", "delay": 0.0, "rate": null, "rounds": [{ "cpu": 1.0 }],
              "median": { "cpu": 13.583_145, "latency": { "percentiles": [1.0, 2.25] } } },
            { "system": "a, \"b\"", "lost": 3, "median": { "cpu": 123_456.7 } },
        ]});
        let expected = "\
            system,delay,median.cpu,median.latency.p50,median.latency.p75,lost\n\
            it,0,13.58,1,2.25,\n\
            \"a, \"\"b\"\"\",,123457,,,3\n";
        assert_eq!(table(&results), expected);
    }

    #[test]
    fn what_holds_no_rows_is_an_empty_table() {
        assert_eq!(table(&serde_json::json!({})), "\n");
    }
}
