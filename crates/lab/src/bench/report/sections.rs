//! The parts of the page.

use std::fmt::Write;

use super::draw::{self, Bar, colour};
use super::text::{escape, grouped, megabytes, percent, short};
use crate::bench::glu::facts::{self, Landmark};
use crate::bench::outcome::Ratio;
use crate::bench::outcome::{Contender, SystemFacts};
use crate::bench::published::{self, Published};
use crate::bench::results::{Case, Figures, Results, Row};
use crate::bench::scenario::{
    self, GLU_SUITE, HTTP_SUITE, MAP_SUITE, Scenario, System, USSD_SUITE,
};

/// Ratios this near to 1 say nothing.
const NOISE: f64 = 0.05;
const COLUMNS: [&str; 15] = [
    "system",
    "requests/s",
    "mean ms",
    "σ",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "errors",
    "CPU µs / request",
    "core used",
    "load side",
    "MB peak / settled",
    "Intertie to it",
];

/// How replies are compared where engines print JSON.
const JSON_COMPARED: &str = " What an engine has mapped is compared as JSON: neither the order of \
    members nor how a number is written matters.";
/// What the published rows are.
const PUBLISHED: &str = "<p>The published rows are Ballerina's performance tests: four vCPUs, a \
    real network, JMeter, other machines. They stand here as a landmark; <strong>machines differ, \
    and no ratio to them means anything</strong>. Their memory is the heap after a full \
    collection.</p>\n";

/// How integration flows are measured, and what their published rows are.
const GLU_METHOD: &str = "<p>RabbitMQ and PostgreSQL are real servers on the cores of the load; \
    only the engine has a core of its own, and CPU is the engine's alone. Messages are persistent \
    and confirmed; PostgreSQL does not wait for its disk. Every acknowledged message is looked for \
    in the queue, by its number and its whole content, and every acknowledged order in the table. \
    <em>Latency</em>: queues that never run empty stand before a service that answers after a \
    while; messages in flight are those that the service has begun and not answered, memory for \
    each is what came to the idle system's, and at the end every message must have reached the \
    service.</p>\n\
    <p>The published rows are GLU.Ware's performance tests: virtual machines of a cloud, the \
    broker on the same processors, JMeter, payload and durability not said. Their CPU is all \
    processors of the engines divided by the transactions, an upper bound. They stand here as a \
    landmark; <strong>machines differ</strong>.</p>\n";

/// How menus are measured, and what their published rows are.
const USSD_METHOD: &str = "<p>A user is a subscriber: a dialogue has a session and a number of its \
    own, each key is sent when the screen before it has come, each screen is compared with what \
    it must be. In the first scenario each key is a request; in the others a request is a whole \
    dialogue, its latency that of the last key. RabbitMQ and PostgreSQL are real servers on the \
    cores of the load; every acknowledged order is looked for in the queue and in the table. \
    Subscribers who wait for the slow service begin one after the other over its time. \
    Sessions are in the data folder before their screens are sent.</p>\n\
    <p>The published rows are GLU.Ware's performance tests: virtual machines of a cloud, the \
    broker on the same processors, dialogues not described. They stand here as a landmark; \
    <strong>machines differ</strong>.</p>\n";

/// The scenarios that have rows or failures.
fn measured(results: &Results) -> impl Iterator<Item = &'static Scenario> {
    scenario::all().filter(|scenario| {
        let has_row = results
            .rows
            .iter()
            .any(|row| row.case.scenario == scenario.name);
        let failed = |name: &str| name == scenario.name;
        has_row
            || results
                .left_out
                .iter()
                .any(|it| it.is_failure && failed(&it.scenario))
    })
}

/// The cases of a scenario, in the order in which they were measured.
fn cases<'a>(results: &'a Results, scenario: &Scenario) -> Vec<&'a Case> {
    let mut cases: Vec<&Case> = Vec::new();
    for row in &results.rows {
        if row.case.scenario == scenario.name && !cases.contains(&&row.case) {
            cases.push(&row.case);
        }
    }
    cases
}

fn rows<'a>(results: &'a Results, case: &Case) -> Vec<&'a Row> {
    let rows = results.rows.iter();
    rows.filter(|row| row.case == *case).collect()
}

fn of(rows: &[&Row], system: System) -> Option<usize> {
    rows.iter().position(|row| row.system == system)
}

/// Links to the parts.
pub(super) fn contents(results: &Results) -> String {
    let mut text = String::from("<nav><ul>\n<li><a href=\"#summary\">Summary</a></li>\n");
    text.push_str("<li><a href=\"#method\">Method</a></li>\n");
    for scenario in measured(results) {
        let name = scenario.name;
        let _ = writeln!(text, "<li><a href=\"#{name}\">{name}</a></li>");
    }
    text.push_str("<li><a href=\"#systems\">Systems</a></li>\n</ul></nav>\n");
    text
}

/// The table of ratios.
pub(super) fn summary(results: &Results) -> String {
    let others: Vec<System> = results
        .systems
        .iter()
        .map(|facts| facts.system)
        .filter(|it| !matches!(it, System::Intertie | System::Direct))
        .collect();
    let mut text = String::from(
        "<section id=\"summary\">\n<h2>Summary: CPU per request</h2>\n\
         <p>CPU time of Intertie per request, and as a ratio to that of each other system in the \
         same run. Below 1 Intertie needs less. ",
    );
    text.push_str(landmark(&others));
    text.push_str(
        "</p>\n<div class=\"wide\"><table>\n<thead><tr><th>case</th><th>requests/s</th>\
         <th>CPU µs / request</th>",
    );
    for system in &others {
        let _ = write!(text, "<th>to {}</th>", system.name());
    }
    text.push_str("<th>errors</th></tr></thead>\n<tbody>\n");
    for scenario in measured(results) {
        for case in cases(results, scenario) {
            summary_row(&mut text, scenario, &rows(results, case), &others);
        }
    }
    text.push_str("</tbody></table></div>\n");
    text.push_str(
        "<p class=\"soft\">Ratios are medians over rounds of neighbours in time. \
        Differences below 5 % mean nothing.</p>\n</section>\n",
    );
    text
}

/// What the system is that stands for the least work.
fn landmark(systems: &[System]) -> &'static str {
    if systems.contains(&System::Floor) {
        "The floor is a relay that copies bytes and reads nothing; a proxy cannot well be cheaper \
         with the same number of writes."
    } else if systems.contains(&System::Passthrough) {
        "Passthrough is Intertie with the same body and without the work on it."
    } else {
        ""
    }
}

fn summary_row(text: &mut String, scenario: &Scenario, rows: &[&Row], others: &[System]) {
    let Some(first) = rows.first() else {
        return;
    };
    let _ = write!(
        text,
        "<tr><td class=\"case\">{}<small>{}</small></td>",
        escape(scenario.title),
        escape(&first.case.label())
    );
    let ours = of(rows, System::Intertie).and_then(|index| rows.get(index));
    match ours {
        Some(row) => {
            let cpu = row.median.cpu.map_or_else(|| "–".to_owned(), short);
            let _ = write!(
                text,
                "<td>{}</td><td>{cpu}</td>",
                grouped(row.median.throughput)
            );
        }
        None => text.push_str("<td>–</td><td>not measured</td>"),
    }
    for system in others {
        let other = of(rows, *system).and_then(|index| rows.get(index));
        let ratio = ours
            .zip(other)
            .and_then(|(ours, other)| ours.cpu_for(other));
        text.push_str(&ratio_cell(ratio));
    }
    let errors = ours.map(|row| errors_cell(row.median.errors));
    text.push_str(errors.as_deref().unwrap_or("<td>–</td>"));
    text.push_str("</tr>\n");
}

fn ratio_cell(ratio: Option<Ratio>) -> String {
    match ratio {
        None => "<td>–</td>".to_owned(),
        Some(ratio) if ratio.median < 1.0 - NOISE => format!("<td class=\"less\">{ratio}</td>"),
        Some(ratio) if ratio.median > 1.0 + NOISE => format!("<td class=\"more\">{ratio}</td>"),
        Some(ratio) => format!("<td>{ratio}</td>"),
    }
}

fn errors_cell(errors: u64) -> String {
    match errors {
        0 => "<td>0</td>".to_owned(),
        _ => format!("<td class=\"bad\">{}</td>", grouped(errors as f64)),
    }
}

/// How it was measured.
pub(super) fn method(results: &Results) -> String {
    let method = &results.method;
    let machine = &results.machine;
    let jvm = method.jvm_warm_up.map(|seconds| {
        format!(
            " Where a virtual machine compiles what it finds busy, load runs for {seconds} s \
             before the sample; its compiler and its collector run on the same core and count."
        )
    });
    let (compared, published) = match results.suite.as_str() {
        MAP_SUITE => (JSON_COMPARED, ""),
        GLU_SUITE => (JSON_COMPARED, GLU_METHOD),
        USSD_SUITE => ("", USSD_METHOD),
        HTTP_SUITE => ("", PUBLISHED),
        _ => ("", ""),
    };
    format!(
        "<section id=\"method\">\n<h2>Method</h2>\n\
         <p>Each sample starts the system afresh on a core of its own, opens all connections, \
         warms up for {warm} s and measures for {seconds} s. Systems take turns within a round; \
         figures are medians over {rounds} rounds, thin lines in the bars show the range.{jvm}\
         </p>\n\
         <p>A user sends its next request when its reply has come (closed loop), unless a rate is \
         given: then requests are due at fixed instants, and latency counts from there. Status and \
         body of every reply are compared with what is expected; each request has a number of its \
         own in the body, so that a mixed-up reply is an error.{compared}</p>\n\
         <p>CPU time is the scheduler's run time of all threads of the system and its child \
         processes, in nanoseconds. Samples in which others used more than {foreign} of a core \
         were taken again, up to three times. <em>Direct</em> is the generator against the stub \
         without a proxy: where it is not clearly faster than a system, or the load side is busy, \
         compare CPU per request and not requests per second. Everything runs over loopback, where \
         the sender pays for the receiver's TCP input: ratios over a network card differ.</p>\n\
         <p>Memory is the sum over processes of the resident peak (VmHWM), and of what is resident \
         after the load has gone.</p>\n\
         {published}\
         <dl><dt>Machine</dt><dd>{processor}, {cores} cores, {memory} MiB</dd>\
         <dt>Kernel</dt><dd>Linux {kernel}</dd><dt>Cores</dt><dd>{layout}</dd>\
         <dt>Command</dt><dd><code>{command}</code></dd></dl>\n</section>\n",
        warm = method.warm_up,
        jvm = jvm.unwrap_or_default(),
        seconds = method.seconds,
        rounds = method.rounds,
        foreign = percent(method.foreign_max),
        processor = escape(&machine.processor),
        cores = machine.cores,
        memory = grouped(machine.memory_mib as f64),
        kernel = escape(&machine.kernel),
        layout = escape(&machine.layout),
        command = escape(&results.command),
    )
}

/// Tables and drawings of all scenarios.
pub(super) fn scenarios(results: &Results) -> String {
    let mut text = String::new();
    for scenario in measured(results) {
        let _ = writeln!(
            text,
            "<section id=\"{}\">\n<h2>{}</h2>",
            scenario.name,
            escape(scenario.title)
        );
        let left_out = results
            .left_out
            .iter()
            .filter(|it| it.scenario == scenario.name);
        let reasons: Vec<String> = left_out
            .map(|it| format!("{} ({})", it.system.name(), escape(&it.reason)))
            .collect();
        if !reasons.is_empty() {
            let _ = writeln!(
                text,
                "<p class=\"soft\">Left out: {}.</p>",
                reasons.join("; ")
            );
        }
        let cases = cases(results, scenario);
        for case in &cases {
            case_part(&mut text, results, scenario, case);
        }
        text.push_str("</section>\n");
    }
    text
}

fn case_part(text: &mut String, results: &Results, scenario: &Scenario, case: &Case) {
    let rows = rows(results, case);
    let ours = of(&rows, System::Intertie).and_then(|index| rows.get(index).copied());
    let _ = writeln!(text, "<h3>{}</h3>", escape(&case.label()));
    text.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for column in COLUMNS {
        let _ = write!(text, "<th>{column}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &rows {
        text.push_str(&table_row(row, ours));
    }
    if let Some(row) = published::find(case) {
        text.push_str(&published_row(&row));
    }
    for row in facts::landmarks(case) {
        text.push_str(&landmark_row(&row));
    }
    text.push_str("</tbody></table></div>\n");
    for line in facts::lines(case, &rows) {
        let _ = writeln!(text, "<p>{}.</p>", escape(&line));
    }
    notes(text, &rows);
    let of_scenario = results
        .rows
        .iter()
        .filter(|row| row.case.scenario == scenario.name);
    panels(text, &rows, &of_scenario.collect::<Vec<_>>());
}

fn table_row(row: &Row, ours: Option<&Row>) -> String {
    let figures = &row.median;
    let latency = &figures.latency;
    let class = if row.system == System::Intertie {
        " class=\"ours\""
    } else {
        ""
    };
    let mut text = format!(
        "<tr{class}><td><span class=\"dot\" style=\"background:{}\"></span>{}</td><td>{}</td>",
        colour(row.system),
        row.system.name(),
        grouped(figures.throughput)
    );
    let percentiles = [50.0, 90.0, 99.0, 99.9].map(|at| latency.at(at));
    let times = [latency.mean, latency.stddev]
        .into_iter()
        .chain(percentiles);
    for time in times.chain([latency.max]) {
        let cell = match figures.has_latency() {
            true => short(time),
            false => "–".to_owned(),
        };
        let _ = write!(text, "<td>{cell}</td>");
    }
    text.push_str(&errors_cell(figures.errors));
    let dash = || "–".to_owned();
    let memory = figures.memory_peak.zip(figures.memory_settled);
    let memory = memory.map(|(peak, settled)| [peak, settled].map(megabytes).join(" / "));
    let _ = write!(
        text,
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
        figures.cpu.map_or_else(dash, short),
        figures.core.map_or_else(dash, percent),
        percent(figures.load_core),
        memory.unwrap_or_else(dash),
    );
    text.push_str(&ratio_cell(ours.and_then(|ours| ours.cpu_for(row))));
    text.push_str("</tr>\n");
    text
}

fn published_row(row: &Published) -> String {
    format!(
        "<tr class=\"published\"><td>published</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>–</td><td>–</td><td>{}</td><td>–</td><td>–</td><td>{} %</td><td>–</td>\
         <td>–</td><td>–</td><td>{} heap</td><td>–</td></tr>\n",
        grouped(row.throughput),
        short(row.mean),
        short(row.stddev),
        short(row.p99),
        row.errors,
        short(row.memory_mb),
    )
}

fn landmark_row(row: &Landmark) -> String {
    let dash = || "–".to_owned();
    let percent = row.error_percent.map(|percent| format!("{percent} %"));
    let cpu = row.cpu().map(|cpu| format!("&lt; {}", short(cpu)));
    format!(
        "<tr class=\"published\"><td>published<small>{}</small></td><td>{}</td>{}\
         <td>{}</td><td>{}</td><td>–</td><td>–</td><td>–</td><td>–</td></tr>\n",
        escape(&row.setup),
        grouped(row.tps),
        "<td>–</td>".repeat(7),
        percent.unwrap_or_else(dash),
        cpu.unwrap_or_else(dash),
    )
}

fn notes(text: &mut String, rows: &[&Row]) {
    let mut notes = Vec::new();
    for row in rows {
        let name = row.system.name();
        notes.extend(
            row.warnings
                .iter()
                .map(|warning| format!("{name}: {warning}.")),
        );
        if row.repeated > 0 {
            notes.push(format!(
                "{name}: {} samples were taken again.",
                row.repeated
            ));
        }
    }
    if !notes.is_empty() {
        let notes = notes
            .iter()
            .map(|note| format!("<li>{}</li>\n", escape(note)));
        let _ = write!(
            text,
            "<ul class=\"notes\">\n{}</ul>\n",
            notes.collect::<String>()
        );
    }
}

/// Drawings of a case; all cases of a scenario have the same scale.
fn panels(text: &mut String, rows: &[&Row], all: &[&Row]) {
    let bars = |title: &str, figure: &dyn Fn(&Figures) -> Option<f64>| {
        let drawn: Vec<Bar> = rows.iter().filter_map(|row| Bar::of(row, figure)).collect();
        let values = all.iter().flat_map(|row| &row.rounds).filter_map(figure);
        draw::bars(title, &drawn, values.fold(0.0, f64::max), rows.len())
    };
    text.push_str("<div class=\"panels\">\n");
    text.push_str(&bars("Requests per second", &|it| Some(it.throughput)));
    text.push_str(&bars("CPU µs per request (less is better)", &|it| it.cpu));
    let megabytes = |it: &Figures| it.memory_peak.map(|bytes| bytes as f64 / 1e6);
    text.push_str(&bars("Peak memory, MB", &megabytes));
    text.push_str(&draw::latencies(
        "Latency in ms, by percentile",
        rows,
        rows.len(),
    ));
    text.push_str("</div>\n");
}

/// Versions, command lines and configurations.
pub(in crate::bench) fn systems<S: Contender>(systems: &[SystemFacts<S>]) -> String {
    let mut text = String::from("<section id=\"systems\">\n<h2>Systems</h2>\n<dl>");
    for facts in systems {
        let (name, version) = (facts.system.name(), escape(&facts.version));
        let _ = write!(text, "<dt>{name}</dt><dd>{version}</dd>");
    }
    text.push_str("</dl>\n");
    for facts in systems {
        for run in facts.runs.iter().filter(|run| !run.command.is_empty()) {
            let _ = write!(
                text,
                "<details><summary>{}, {}</summary>\n<pre>{}</pre>\n",
                facts.system.name(),
                escape(&run.scenario),
                escape(&run.command)
            );
            if !run.config.is_empty() {
                let _ = writeln!(text, "<pre>{}</pre>", escape(&run.config));
            }
            text.push_str("</details>\n");
        }
    }
    text.push_str("</section>\n");
    text
}
