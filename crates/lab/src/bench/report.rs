//! The report: one HTML file without scripts, with its styles and drawings inside.

mod draw;
mod sections;
pub(super) mod text;

use std::fmt::Write;

use super::results::Results;
use super::scenario::{GLU_SUITE, MAP_SUITE, USSD_SUITE};
pub(super) use sections::systems;
use text::escape;

pub(super) const STYLE: &str = include_str!("report/style.css");

/// The page of a run.
pub(super) fn html(results: &Results) -> String {
    let title = match results.suite.as_str() {
        GLU_SUITE => "Intertie integration benchmark",
        MAP_SUITE => "Intertie mapping benchmark",
        USSD_SUITE => "Intertie USSD benchmark",
        _ => "Intertie HTTP benchmark",
    };
    let mut page = String::new();
    // invariant: writing to a String does not fail.
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n<p class=\"lead\">{}, {} cores, Linux {}. Begun {}; \
         {} rounds of {} s after {} s of warm-up.</p>\n</header>\n",
        escape(&results.machine.processor),
        results.machine.cores,
        escape(&results.machine.kernel),
        escape(&results.started),
        results.method.rounds,
        results.method.seconds,
        results.method.warm_up,
    );
    page.push_str(&sections::contents(results));
    page.push_str(&sections::summary(results));
    page.push_str(&sections::method(results));
    page.push_str(&sections::scenarios(results));
    page.push_str(&systems(&results.systems));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

#[cfg(test)]
mod tests;
